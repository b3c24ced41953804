"""Which column of the archive has the values of a column of the table."""

import pytest

from lakehouse.base.errors import Refused
from lakehouse.delta.snapshot import Snapshot
from lakehouse.retain.plan.archive import names_in_archive
from lakehouse_tests.log_builder import LogBuilder

PHYSICAL = "delta.columnMapping.physicalName"


def table(
    city: str, *, member: str = "zip", physical: str = "m", nullable: bool = True
) -> Snapshot:
    """A table with a column of physical name `c`, which is a struct with one member."""
    mapped = {
        "name": member,
        "type": "string",
        "nullable": nullable,
        "metadata": {PHYSICAL: physical},
    }
    struct = {"type": "struct", "fields": [mapped]}
    column = {"name": city, "type": struct, "nullable": nullable, "metadata": {PHYSICAL: "c"}}
    log = LogBuilder().create()
    metadata = log._metadata([column], {"delta.columnMapping.mode": "name"})
    return log.commit("ALTER TABLE", metadata).snapshot()


def test_a_column_is_found_by_its_physical_name() -> None:
    assert names_in_archive(table("town", nullable=False), table("city")) == {"town": "city"}


@pytest.mark.parametrize("changed", [{"member": "code"}, {"physical": "n"}])
def test_a_member_that_was_renamed_or_dropped_and_added_again_is_refused(
    changed: dict[str, str],
) -> None:
    with pytest.raises(
        Refused, match="column city has another type or other fields than in the archive"
    ):
        names_in_archive(table("city", **changed), table("city"))  # type: ignore[arg-type]
