"""Changes at one position follow their arrival, as one transaction leaves them."""

from pyspark.sql import SparkSession

from lakehouse import Debezium, Landing, Merge, Table
from lakehouse.cdc.columns import change_order
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table
from lakehouse_tests.support.example_lake import land, rows_in

PREFIX = "landing/parcels/"


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


def test_changes_at_one_position_follow_the_offsets_in_file_names_in_whatever_loads_they_arrive(
    lake: Lake, spark: SparkSession
) -> None:
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
        assert rows_in(lake, table.key, "id", "state") == [
            (7, "shipped"),
            (8, "back"),
            (9, "shipped"),
        ]


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


def test_numbers_in_names_count_as_numbers_and_other_names_by_the_time_of_landing(
    spark: SparkSession,
) -> None:
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
