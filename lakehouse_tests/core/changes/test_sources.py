"""Which fields of the files become columns of the table."""

from lakehouse.core.changes.sources import Dms


def test_a_field_is_a_before_image_only_of_a_field_that_is_there() -> None:
    assert Dms().row_fields(("Op", "id", "BI_id", "BI_score")) == ("id", "BI_score")


def test_operations_and_before_images_may_have_other_names() -> None:
    assert Dms(operation="kind", before_prefix="old_").row_fields(("kind", "Op", "id", "BI_id", "old_id")) == ("Op", "id", "BI_id")
