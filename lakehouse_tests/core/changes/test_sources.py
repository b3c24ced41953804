"""Which fields of the files become columns of the table."""

from lakehouse.core.changes.sources import Dms


def test_a_field_is_a_before_image_only_of_a_field_that_is_there() -> None:
    assert Dms().row_fields(("Op", "id", "BI_id", "BI_score")) == ("id", "BI_score")
