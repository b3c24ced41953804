"""Which fields of the files become columns of the table."""

from lakehouse.declare.landing import Dms


def test_operations_and_before_images_may_have_any_names_and_are_no_columns() -> None:
    assert Dms().row_fields(("Op", "id", "BI_id", "BI_score")) == ("id", "BI_score")
    assert Dms(operation="kind", before_prefix="old_").row_fields(
        ("kind", "Op", "id", "BI_id", "old_id")
    ) == ("Op", "id", "BI_id")
