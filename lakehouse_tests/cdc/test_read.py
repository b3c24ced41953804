"""Every shape of a change is read, and a record that is none stands in quarantine with its reason."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from lakehouse import Debezium, Dms, Landing, Merge, Table
from lakehouse.cdc.read import CHANGED_AT, DELETED, POSITION, change_order
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.land.ledger import landed_files
from lakehouse.land.parse_lines import ORIGIN, REASON
from lakehouse.land.plan.batches import Batch
from lakehouse.land.plan.records import RESCUED
from lakehouse.land.run import parsed_records
from lakehouse.land.staging import stage
from lakehouse.materialize.run import write_table
from lakehouse.spark.temporary_confs import ANSI, session_confs
from lakehouse_tests.support.example_lake import land, rows_in

KEY, QUARANTINE, PREFIX = "bronze/people", "quarantine/bronze/people", "landing/people/"


def people(
    changes: Dms | Debezium, write: Merge, *, schema: str = "id BIGINT, v STRING", **more: Any
) -> Table:
    of_source = (
        {"format": "csv", "null_value": "NULL"} if isinstance(changes, Dms) else {"format": "json"}
    )
    return Table(
        key=KEY,
        source=Landing(prefix=PREFIX, schema=schema, changes=changes, **{**of_source, **more}),
        write=write,
    )


def read(lake: Lake, spark: SparkSession, table: Table) -> tuple[list[Row], list[tuple[int, str]]]:
    """The landed changes in the order in which they take effect, and the lines that are none, each with why; nothing is loaded."""
    from pyspark.sql import functions as F  # noqa: N812

    assert table.source is not None
    batch = Batch(number=1, files=tuple(landed_files(lake.store, table.source)), prefix=PREFIX)
    staged, _ = stage(lake.store, KEY, batch, table.source)
    session = TableSession(lake=lake, spark=spark, table=table)
    with session_confs(spark, {ANSI: "false"}):
        lines = parsed_records(session, staged, ()).orderBy(F.expr(change_order())).collect()
    told = sorted(
        (line[ORIGIN[0]], line[ORIGIN[1]], line[REASON]) for line in lines if line[REASON]
    )
    return [line for line in lines if line[REASON] is None], [(line, why) for _, line, why in told]


def mysql(
    op: str, file: str, pos: int, *, before: object = None, after: object = None
) -> dict[str, Any]:
    return {
        "before": before,
        "after": after,
        "source": {"file": file, "pos": pos, "row": 0, "ts_ms": 1},
        "op": op,
    }


UNAVAILABLE = "__debezium_unavailable_value"
ONLY_TIMED = (
    "this row of a snapshot has no position, and its time may be later than the time of a newer"
    " change. Use Debezium(position=…) with fields of source that order changes, for example"
    " 'scn BIGINT' (Oracle) or 'commit_lsn STRING, change_lsn STRING' (SQL Server, Db2). For"
    " unwrapped rows, add.fields=op shows which rows are of a snapshot"
)
ENVELOPED: Sequence[tuple[object, str | None]] = [
    # Binlog files are compared by number: 999999 is before 1000000.
    (
        mysql("u", "mysql-bin.1000000", 4, before={"id": 1, "v": "b"}, after={"id": 1, "v": "c"}),
        None,
    ),
    (mysql("c", "mysql-bin.999999", 900, after={"id": 1, "v": "b"}), None),
    # Within a file by position, as a number.
    (
        {
            "schema": {},
            "payload": mysql("u", "mysql-bin.999999", 1000, after={"id": 2, "v": "later"}),
        },
        None,
    ),
    (mysql("r", "mysql-bin.999999", 999, after={"id": 2, "v": "sooner"}), None),
    (mysql("d", "mysql-bin.999999", 5, before={"id": 3, "v": None}), None),
    ("null", None),
    ({"schema": None, "payload": None}, None),
    (' {"payload": null, "schema": {"type": "struct"}} ', None),
    (mysql("c", "mysql-bin.999999", 4, after={"id": 3, "v": "old"}), None),
    (
        mysql("x", "mysql-bin.1", 1, after={"id": 4, "v": ""}),
        "the operation x is not one of c, r, u, d",
    ),
    ({"before": None, "after": {"id": 4}, "source": {"ts_ms": 1}}, "the operation is missing"),
    ({"id": 4, "v": "no envelope"}, "the operation is missing"),
    (mysql("c", "mysql-bin.1", 1, after={"v": "no key"}), "the key id is missing"),
    (mysql("d", "mysql-bin.1", 1, after={"id": 4}), "the key id is missing"),
    ({"after": {"id": 4}, "source": {"pos": 1}, "op": "c"}, "the position is missing"),
    (mysql("c", "mysql-bin.1", 1, after={"id": 4}), "required field v is missing"),
    (
        mysql("c", "mysql-bin.1", 1, after={"id": "four", "v": "a"}),
        "field id is 'four', a text, and the line has no schema that makes it a number",
    ),
    (
        {"schema": {}, "payload": {"after": {"id": 4, "v": ""}, "source": {"ts_ms": 1}}, "op": "c"},
        "the operation is missing",
    ),
    (
        mysql("u", "mysql-bin.1", 1, after={"id": 4, "v": "a", "big": UNAVAILABLE}),
        "field big was not sent (__debezium_unavailable_value), and no older value of its row",
    ),
    # A time is no position of a row of a snapshot, and one beyond the calendar is none.
    ({"after": {"id": 5, "v": "read"}, "source": {"ts_ms": 9}, "op": "r"}, ONLY_TIMED),
    ({"after": {"id": 5, "v": "changed"}, "source": {"ts_ms": 10**18}, "op": "u"}, None),
    ("nulls", "not JSON"),
    (
        {"payload": mysql("d", "mysql-bin.1", 1, before={"id": 4, "v": "a", "at": 10**12})},
        "field at is 1000000000000, and the line does not name its unit",
    ),
]


@pytest.mark.long
def test_events_of_mysql_are_ordered_by_file_and_position(lake: Lake, spark: SparkSession) -> None:
    land(lake, "a.json", [line for line, _ in ENVELOPED], prefix=PREFIX)
    columns = {"schema": "id BIGINT, v STRING, at TIMESTAMP", "derived": {"loud": "upper(v)"}}
    table = people(Debezium(), Merge(keys=("id",)), required=("v",), **columns)
    outcome = write_table(lake, spark, table)
    expected = [(1, "c", "C"), (2, "later", "LATER"), (5, "changed", "CHANGED")]
    assert rows_in(lake, KEY, "id", "v", "loud") == expected
    bad = [
        (line if isinstance(line, str) else json.dumps(line), why) for line, why in ENVELOPED if why
    ]
    found = rows_in(lake, QUARANTINE, "raw", "reason")
    assert [
        (raw, why[: len(wanted)])
        for (raw, why), (_, wanted) in zip(found, sorted(bad), strict=True)
    ] == sorted(bad)
    # In: 23 lines. Three took effect; of seven, newer ones were known, or they deleted nothing.
    assert (outcome.rows_written, outcome.rows_superseded, outcome.rows_quarantined) == (3, 7, 13)


def test_unwrapped_rows_have_an_operation_and_an_order(lake: Lake, spark: SparkSession) -> None:
    lines = [
        {"id": 1, "payload": "new", "__op": "c", "__source_scn": "7", "__source_ts_ms": 5},
        {"id": 1, "payload": "newer", "__deleted": "false", "__scn": 8, "__source_ts_ms": 6},
        {"id": 2, "payload": "gone", "__deleted": "true", "__scn": 9},
        {"id": 3, "payload": "x", "__deleted": "false"},
        {"id": 4, "payload": "x"},
    ]
    land(lake, "a.json", lines, prefix=PREFIX)
    by_scn = Debezium(unwrapped=True, position="scn BIGINT, rs_id STRING")
    changes, others = read(
        lake, spark, people(by_scn, Merge(keys=("id",)), schema="id BIGINT, payload STRING")
    )
    expected = [(1, "new", False, 7), (1, "newer", False, 8), (2, "gone", True, 9)]
    assert [(row.id, row.payload, row[DELETED], row[POSITION].scn) for row in changes] == expected
    assert others == [(4, "the position is missing"), (5, "the operation is missing")]


def test_unwrapped_rows_need_more_than_their_time(lake: Lake, spark: SparkSession) -> None:
    lines = [
        {
            "id": 1,
            "v": "changed",
            "__op": "u",
            "__deleted": "false",
            "__source_ts_ms": 1500,
            "__v": 7,
        },
        {"id": 1, "v": "old", "__deleted": "false", "__source_ts_ms": 2000},
        {"id": 2, "v": "old", "__op": "r", "__deleted": "false", "__source_ts_ms": 2000},
        {"id": 3, "v": "gone", "__deleted": "true", "__source_ts_ms": 2000},
    ]
    land(lake, "a.json", lines, prefix=PREFIX)
    changes, others = read(lake, spark, people(Debezium(unwrapped=True), Merge(keys=("id",))))
    expected = [(1, "changed", '{"__v": 7}', False), (3, "gone", None, True)]
    assert [(row.id, row.v, row[RESCUED], row[DELETED]) for row in changes] == expected
    assert others == [(2, ONLY_TIMED), (3, ONLY_TIMED)]


@pytest.mark.long
def test_a_soft_deletion_keeps_the_last_known_values(lake: Lake, spark: SparkSession) -> None:
    schema = "id BIGINT, v STRING, w STRING, n INT, ok BOOLEAN"
    table = people(
        Debezium(), Merge(keys=("id",), deletes="soft"), schema=schema, derived={"loud": "upper(v)"}
    )

    def event(op: str, lsn: int, id_: int, **values: object) -> dict[str, Any]:
        side = "before" if op == "d" else "after"
        return {side: {"id": id_, "v": None, "w": None, **values}, "source": {"lsn": lsn}, "op": op}

    rows = [event("c", lsn, lsn, v="a", w="b", n=5, ok=True) for lsn in (1, 2, 3, 4, 9)]
    land(lake, "1.json", [*rows, event("d", 5, 4), event("c", 30, 8, v="new")], prefix=PREFIX)
    write_table(lake, spark, table)
    # Debezium sends zeros with a deletion for columns that are NOT NULL.
    of_the_table = [
        event("d", 5, 1, v="", n=0, ok=False),
        event("d", 6, 2, v="told"),
        event("u", 7, 3, w="c"),
        event("d", 8, 3),
        event("d", 8, 6, v="never loaded"),
    ]
    in_one_batch = [
        event("c", 10, 7, v="x", w="y"),
        event("u", 11, 7, v="z"),
        event("d", 12, 7),
        event("d", 13, 7),
    ]
    # A change that is older than the table's row is no value of the deletion after it.
    older = [
        event("c", 3, 4, v="older"),
        event("d", 14, 4, w="told"),
        event("c", 29, 8, v="old"),
        event("d", 31, 8),
    ]
    land(lake, "2.json", [*of_the_table, *in_one_batch, *older], prefix=PREFIX)
    write_table(lake, spark, table)
    gone = [
        (1, "a", "b", "A"),
        (2, "a", "b", "A"),
        (3, None, "c", None),
        (4, "a", "b", "A"),
        (6, None, None, None),
        (7, "z", None, "Z"),
    ]
    gone.append((8, "new", None, "NEW"))
    here = (9, "a", "b", "A")
    expected = [*((*row, True) for row in gone), (*here, False)]
    assert rows_in(lake, KEY, "id", "v", "w", "loud", "_deleted") == expected
    assert rows_in(lake, KEY, "id", "n", "ok")[:3] == [(1, 5, True), (2, 5, True), (3, None, None)]


DMS_SCHEMA = "Op STRING, id BIGINT, v STRING, BI_id BIGINT, at STRING"


def test_dms_without_position_follows_files_and_lines(lake: Lake, spark: SparkSession) -> None:
    land(lake, "LOAD0000000A.csv", ["1,loaded,,2013-01-01 00:00:00", "2,loaded,,"], prefix=PREFIX)
    ongoing = [
        "U,1,first,,2013-01-02 00:00:00",
        "U,1,second,NULL,2013-01-02 00:00:00",
        "D,2,NULL,,2013-01-02 01:00:00",
    ]
    bad = [",3,x,,2013-01-02 00:00:00", "Z,3,x,,2013-01-02 00:00:00", "I,,x,,2013-01-02 00:00:00"]
    untimed = ["I,3,x,,", "I,4,x,,NULL", "I,5,x,,soon"]
    # The file is older by its name; it landed before the task began to make folders by date.
    land(lake, "20130101-000000001.csv", ["U,1,zeroth,,2013-01-01 12:00:00"], prefix=PREFIX)
    land(lake, "2013/01/02/20130102-000000001.csv", [*ongoing, *bad, *untimed], prefix=PREFIX)
    changes, others = read(
        lake, spark, people(Dms(committed_at="at"), Merge(keys=("id",)), schema=DMS_SCHEMA)
    )
    assert [(row.id, row.v, row[DELETED], row[CHANGED_AT] is None) for row in changes] == [
        (1, "loaded", False, False),
        (2, "loaded", False, True),
        *((1, value, False, False) for value in ("zeroth", "first", "second")),
        (2, None, True, False),
        *((id_, "x", False, True) for id_ in (3, 4, 5)),
    ]
    reasons = [
        "the operation is missing",
        "the operation Z is not one of I, U, D",
        "the key id is missing",
    ]
    assert others == [*enumerate(reasons, 4)]


def test_dms_has_a_word_for_null_and_nothing_for_empty(lake: Lake, spark: SparkSession) -> None:
    """Only where the word is empty, too, an empty field is null: what stands for null is DMS's setting CsvNullValue."""
    schema = "Op STRING, id STRING, v STRING, n INT, w STRING COMMENT 'x', seq STRING"
    rows = ["a,NULL,NULL,NULL,NULL", "b,,,,", ",x,1,y,", 'c,"",2,"NULL ",']
    land(lake, "LOAD00000001.csv", rows, prefix=PREFIX)
    land(lake, "20130101-1.csv", ["U,c,,3,NULL,7", "U,c,x,4,x,", "U,c,x,4,x,NULL"], prefix=PREFIX)
    newest: dict[str, dict[object, object]] = {
        "NULL": {
            "": ("x", 1, "y", 1),
            "a": (None, None, None, None),
            "b": ("", None, "", 0),
            "c": ("", 3, None, 0),
        },
        "": {"b": (None, None, None, None), "c": ("x", 4, "x", 1)},
    }
    reasons = {
        "NULL": ["the position is missing"] * 2,
        "": ["the position is missing", "a field does not fit the schema", "the key id is missing"],
    }
    for null_value, found in newest.items():
        options = {"schema": schema, "null_value": null_value, "derived": {"length": "length(v)"}}
        changes, others = read(
            lake, spark, people(Dms(position=("seq",)), Merge(keys=("id",)), **options)
        )
        assert {row.id: (row.v, row.n, row.w, row.length) for row in changes} == found
        assert [why for _, why in others] == reasons[null_value]


def event(op: str, lsn: int, id_: int, **values: object) -> dict[str, Any]:
    """Of Debezium, with the row before and after it."""
    row = {"id": id_, "v": op, **values}
    return {"before": row, "after": None if op == "d" else row, "source": {"lsn": lsn}, "op": op}


@pytest.mark.long
def test_a_deletion_that_is_told_again_takes_effect(lake: Lake, spark: SparkSession) -> None:
    """It is remembered, and the table has its row again, as a RESTORE brings one back."""
    table = people(Debezium(), Merge(keys=("id",)))
    land(lake, "1.json", [event("c", 1, 2), event("d", 5, 1)], prefix=PREFIX)
    write_table(lake, spark, table)
    spark.sql(f"UPDATE delta.`{lake.settings.table_uri(KEY)}` SET id = 1")
    land(lake, "0.json", [event("d", 5, 1)], prefix=PREFIX)
    write_table(lake, spark, table)
    assert rows_in(lake, KEY, "id") == []


def test_files_that_lack_a_source_s_column_load_nulls(lake: Lake, spark: SparkSession) -> None:
    changes, write = Dms(position=("seq",)), Merge(keys=("id",))
    table = people(changes, write, schema="Op STRING, id BIGINT, v STRING, fax STRING, seq INT")
    land(lake, "LOAD00000001.csv", ["id,v,fax,seq", "1,a,555,NULL", "2,a,556,NULL"], prefix=PREFIX)
    land(lake, "20130101-1.csv", ["Op,id,v,seq", "U,1,b,2"], prefix=PREFIX)
    land(lake, "20130101-2.csv", ["Op,id,v,fax,seq", "U,1,c,557,1", "U,2,c,558,1"], prefix=PREFIX)
    land(lake, "20130101-3.csv", ["Op,id,v,fex,seq", "U,1,d,559,3"], prefix=PREFIX)
    [aside] = write_table(lake, spark, table).set_aside
    assert aside.why.startswith("its header is 'Op,id,v,fex,seq' and not Op,id,v,fax,seq. Land it")
    assert rows_in(lake, KEY, "id", "v", "fax") == [(1, "b", None), (2, "c", "558")]


@pytest.mark.long
def test_a_late_full_load_brings_no_deleted_key_back(lake: Lake, spark: SparkSession) -> None:
    table = people(
        Dms(position=("seq",), lateness_hours=0),
        Merge(keys=("id",)),
        schema="Op STRING, id BIGINT, v STRING, seq INT",
    )
    land(lake, "LOAD00000001.csv", ["1,a,NULL", "2,a,NULL", "3,a,NULL"], prefix=PREFIX)
    land(lake, "20130101-1.csv", ["D,1,a,1"], prefix=PREFIX)
    write_table(lake, spark, table)
    # All deletions are remembered yet: a row of a full load is of a key that was never deleted, or is superseded.
    land(lake, "LOAD00000002.csv", ["1,b,NULL", "5,b,NULL"], prefix=PREFIX)
    land(lake, "20130101-2.csv", ["D,2,a,2"], prefix=PREFIX)
    assert write_table(lake, spark, table).rows_quarantined == 0
    assert rows_in(lake, KEY, "id", "v") == [(3, "a"), (5, "b")]
    land(lake, "LOAD00000003.csv", ["1,b,NULL", "2,b,NULL", "3,b,NULL", "4,b,NULL"], prefix=PREFIX)
    land(lake, "20130101-3.csv", ["I,4,c,3"], prefix=PREFIX)
    outcome = write_table(lake, spark, table)
    assert (outcome.rows_quarantined, outcome.rows_superseded) == (2, 1)
    assert rows_in(lake, KEY, "id", "v") == [(3, "b"), (4, "c"), (5, "b")]
    why = "this row of a full load arrived after deletions were forgotten (Dms.lateness_hours)"
    quarantined = rows_in(lake, QUARANTINE, "line", "reason")
    expected = [(1, why), (4, why)]
    assert [(line, reason.partition(",")[0]) for line, reason in quarantined] == expected


@pytest.mark.long
def test_a_file_that_waited_brings_no_deleted_row_back(lake: Lake, spark: SparkSession) -> None:
    """As one that was set aside when it landed, and is read again weeks later; what landed since, or is newer, is loaded."""
    table = people(Debezium(lateness_hours=0), Merge(keys=("id",)))
    waiting = Path(lake.settings.root) / PREFIX / "0.json"
    # The first deletion is forgotten with the second.
    for name, events in (
        ("1", [*(event("c", 1, id_) for id_ in (1, 2, 3)), event("d", 5, 1)]),
        ("2", [event("d", 5, 2)]),
    ):
        land(lake, f"{name}.json", events, prefix=PREFIX)
        write_table(lake, spark, table)
    late = [event("u", 4, 1), event("u", 4, 3), event("d", 4, 7), event("c", 6, 8)]
    land(lake, "0.json", late, prefix=PREFIX)
    os.utime(waiting, (waiting.stat().st_mtime - 3_600,) * 2)
    land(lake, "4.json", [event("c", 2, 9)], prefix=PREFIX)
    assert write_table(lake, spark, table).rows_quarantined == 1
    assert rows_in(lake, KEY, "id", "v") == [(3, "u"), (8, "c"), (9, "c")]
    [(file, line, why)] = rows_in(lake, QUARANTINE, "source_file", "line", "reason")
    assert (file, line) == (f"{PREFIX}0.json", 1)
    assert why.startswith("this row's file landed before deletions that have been forgotten since")


def parcel(op: str, pos: int, id_: int, state: str) -> dict[str, object]:
    row = {"id": id_, "state": state}
    before, after = (row, None) if op == "d" else (None, row)
    source = {"file": "mysql-bin.000012", "pos": pos, "row": 0, "ts_ms": 1}
    return {"before": before, "after": after, "source": source, "op": op}


# As Kafka Connect names and cuts files; 7, 8 and 9 are each one compressed transaction, whose changes have one position.
FILES = {
    "parcels-0-998.json": [
        parcel("c", 900, 7, "new"),
        parcel("c", 900, 9, "new"),
        parcel("u", 1629, 9, "packed"),
        parcel("u", 1629, 9, "shipped"),
    ],
    "parcels-0-999.json": [
        parcel("u", 1629, 7, "packed"),
        parcel("c", 900, 8, "new"),
        parcel("d", 2048, 8, "new"),
    ],
    "parcels-0-1000.json": [parcel("u", 1629, 7, "shipped"), parcel("c", 2048, 8, "back")],
}


@pytest.mark.long
def test_changes_at_one_position_follow_offsets_of_files(lake: Lake, spark: SparkSession) -> None:
    names = [*FILES]
    for number, loads in enumerate([[names], [names[2:], names[:2]]]):
        source = Landing(
            prefix=f"landing/parcels{number}/",
            format="json",
            schema="id BIGINT, state STRING",
            changes=Debezium(),
        )
        table = Table(key=f"bronze/parcels{number}", source=source, write=Merge(keys=("id",)))
        for load in loads:
            for name in load:
                land(lake, name, FILES[name], prefix=source.prefix)
            write_table(lake, spark, table)
        expected = [(7, "shipped"), (8, "back"), (9, "shipped")]
        assert rows_in(lake, table.key, "id", "state") == expected


# Files in the order in which their changes take effect, each with the second at which it landed.
ARRIVED = [
    [("orders+0+0000000998.json", 3), ("orders+0+0000001000.json", 1)],
    [("a/b/orders-0-998.json.gz", 3), ("orders-0-1000.json.gz", 1)],
    [("topics/partition=0/t+0+9.json", 2), ("topics/partition=0/t+0+10.json", 1)],
    [("20130101-000000001.csv", 9), ("20130102-000000000.csv", 1)],
    [("part-9.json", 1), ("part-1.json", 2)],
    [("part-9.json", 1), ("part-10.json", 1)],
    [
        ("63ac78dc-3173-4e6a-8123-123456789012.json", 1),
        ("0000000a-0000-0000-0000-00000000000b.json", 2),
    ],
]


@pytest.mark.long
def test_names_with_numbers_count_by_these_and_others_by_their_time(spark: SparkSession) -> None:
    rows = [
        (case, name, second)
        for case, files in enumerate(ARRIVED)
        for name, second in reversed(files)
    ]
    found = spark.createDataFrame(rows, "arrival INT, _source_file STRING, second INT").selectExpr(
        "arrival",
        "_source_file",
        "1 AS _position",
        "CAST(1 AS BIGINT) AS _source_line",
        "timestamp_seconds(second) AS _landed_at",
    )
    ordered = found.selectExpr("arrival", "_source_file", f"{change_order()} AS place")
    told = [(row[0], row[1]) for row in ordered.orderBy("arrival", "place").collect()]
    assert told == [(case, name) for case, files in enumerate(ARRIVED) for name, _ in files]
