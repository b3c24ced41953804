"""The time of a partition: by its own values, and by how long the partitions of its table are."""

from datetime import UTC, datetime
from itertools import combinations

import pytest

from lakehouse.core.archive.partition_times import partition_spans
from lakehouse.core.delta.snapshot import Column, PartitionValues
from lakehouse.core.errors import Refused


def spans(columns: dict[str, str], *rows: tuple[str | None, ...]) -> list[tuple[str, str] | None]:
    partitions = [tuple(zip(columns, row, strict=True)) for row in rows]
    typed = [Column(name=name, type=type_) for name, type_ in columns.items()]
    found = partition_spans("bronze/orders", typed, partitions)
    return [span_text(found[each]) for each in partitions]


def span_text(span: tuple[int, int] | None) -> tuple[str, str] | None:
    if span is None:
        return None
    start, end = (datetime.fromtimestamp(each / 1_000, tz=UTC) for each in span)
    return f"{start:%Y-%m-%d %H:%M}", f"{end:%Y-%m-%d %H:%M}"


# Columns with types, and the values of two partitions with the span of the first.
@pytest.mark.parametrize(
    ("columns", "first", "second", "expected"),
    [
        (
            {"day": "date"},
            ("2026-01-31",),
            ("2026-02-02",),
            ("2026-01-31 00:00", "2026-02-01 00:00"),
        ),
        ({"day": "string"}, ("2026-01-31",), ("x",), ("2026-01-31 00:00", "2026-02-01 00:00")),
        (
            {"region": "string", "day": "string"},
            ("eu", "2026-12-31"),
            ("us", "2026-12-30"),
            ("2026-12-31 00:00", "2027-01-01 00:00"),
        ),
        (
            {"event_date": "date", "event_hour": "int"},
            ("2026-01-31", "23"),
            ("2026-01-31", "0"),
            ("2026-01-31 23:00", "2026-02-01 00:00"),
        ),
        (
            {"at": "timestamp"},
            ("2026-01-31T22:00:00.000000Z",),
            ("2026-01-31 21:00:00",),
            ("2026-01-31 22:00", "2026-01-31 23:00"),
        ),
        (
            {"year": "int", "month": "int", "day": "int", "hour": "int"},
            ("2026", "1", "31", "5"),
            ("2026", "1", "31", "6"),
            ("2026-01-31 05:00", "2026-01-31 06:00"),
        ),
        (
            {"Year": "string", "Month": "string"},
            ("2026", "02"),
            ("2026", "03"),
            ("2026-02-01 00:00", "2026-03-01 00:00"),
        ),
        ({"year": "int"}, ("2024",), ("2025",), ("2024-01-01 00:00", "2025-01-01 00:00")),
        # A gap ends what counts: without the month, the day means nothing.
        (
            {"year": "int", "day": "int"},
            ("2024", "7"),
            ("2025", "8"),
            ("2024-01-01 00:00", "2025-01-01 00:00"),
        ),
    ],
)
def test_partitions_cover_the_time_that_their_values_say(
    columns: dict[str, str],
    first: tuple[str, ...],
    second: tuple[str, ...],
    expected: tuple[str, str],
) -> None:
    assert spans(columns, first, second)[0] == expected


def test_truncated_dates_are_as_long_as_the_unit_of_all_partitions() -> None:
    month = spans({"month": "date"}, ("2026-01-01",), ("2026-02-01",))
    day = spans({"month": "date"}, ("2026-01-01",), ("2026-02-01",), ("2026-02-02",))
    alone = spans({"at": "timestamp"}, ("2026-01-01 00:00:00",))
    assert month[0] == ("2026-01-01 00:00", "2026-02-01 00:00")
    assert day[0] == ("2026-01-01 00:00", "2026-01-02 00:00")
    assert alone == [("2026-01-01 00:00", "2027-01-01 00:00")]


def test_a_partition_never_ends_earlier_if_fewer_others_are_known() -> None:
    """What is unknown of other partitions can only postpone that one is old."""
    starts = (
        "2026-01-01 00:00:00",
        "2026-03-01 00:00:00",
        "2026-03-04 00:00:00",
        "2026-03-04 05:00:00",
    )
    rows = [((("at", text),)) for text in starts]
    columns = [Column(name="at", type="timestamp")]
    whole = partition_spans("bronze/orders", columns, rows)
    for count in range(1, len(rows)):
        for some in combinations(rows, count):
            for each, span in partition_spans("bronze/orders", columns, some).items():
                known = whole[each]
                assert span is not None
                assert known is not None
                assert span.end_ms >= known.end_ms


@pytest.mark.parametrize(
    ("columns", "row"),
    [
        ({"day": "date"}, (None,)),
        ({"day": "date"}, ("yesterday",)),
        ({"day": "date", "hour": "int"}, ("2026-01-31", "24")),
        ({"day": "date", "hour": "int"}, ("2026-01-31", None)),
        ({"year": "int", "month": "int"}, ("2026", "13")),
        ({"year": "int"}, (None,)),
    ],
)
def test_values_that_are_no_time_have_no_span(
    columns: dict[str, str], row: tuple[str | None, ...]
) -> None:
    assert spans(columns, row) == [None]


@pytest.mark.parametrize(
    ("columns", "row", "message"),
    [
        ({"region": "string"}, ("eu",), "none of them gives a time"),
        ({"bucket": "int"}, ("7",), "none of them gives a time"),
        ({"a": "date", "b": "date"}, ("2026-01-01", "2026-01-02"), "2 of them give a time"),
        (
            {"a": "date", "x_hour": "int", "y_hour": "int"},
            ("2026-01-01", "1", "2"),
            "each of them counts as an hour",
        ),
    ],
)
def test_partitions_without_one_time_are_refused(
    columns: dict[str, str], row: tuple[str, ...], message: str
) -> None:
    with pytest.raises(Refused, match=f"archive of bronze/orders: .*{message}"):
        spans(columns, row)


def test_a_table_without_partitions_has_no_spans() -> None:
    empty: list[PartitionValues] = []
    assert partition_spans("bronze/orders", [], empty) == {}
