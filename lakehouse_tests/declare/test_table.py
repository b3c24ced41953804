"""Declarations: a fault is refused when the declaration is made, with what to do."""

import re
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from lakehouse.base.errors import Refused
from lakehouse.declare.landing import Csv, Debezium, Dms
from lakehouse.declare.policies import Archive, Compaction, LiquidClustering, Ttl, ZOrder
from lakehouse.declare.table import Append, Landing, Merge, Overwrite, Table, table
from lakehouse.lake.declared_tables import module_tables

LANDING = Landing(prefix="landing/orders/", format="json", schema="id STRING, day DATE")
BY_DAY, BY_ID_AND_DAY = Append(partition_by=("day",)), Merge(keys=("id",), order_by=("day",))
CHANGES = replace(LANDING, changes=Debezium())
ORDERS = Table(key="bronze/orders", source=LANDING, write=Append())
SHOPS = Table(key="bronze/shops", source=LANDING, write=Overwrite())


def derived(**more: Any) -> Table:
    options = {
        "key": "silver/orders_seen",
        "inputs": (ORDERS,),
        "transform": lambda orders: orders,
        "write": Append(),
        **more,
    }
    return Table(**options)


def landed(**more: Any) -> Table:
    return replace(ORDERS, **more)


def landing(**more: Any) -> Landing:
    return replace(LANDING, **more)


def dms(**more: Any) -> Landing:
    return replace(LANDING, **{"schema": "Op STRING, id STRING", "changes": Dms(), **more})


def clustered(*columns: str) -> Compaction:
    return Compaction(data_layout=LiquidClustering(columns=columns))


def z_order(*columns: str) -> Compaction:
    return Compaction(data_layout=ZOrder(columns=columns))


# What is declared, and what the refusal says of it.
REFUSED: list[tuple[Callable[[], object], str]] = [
    (
        lambda: landed(write=BY_DAY, compaction=clustered("id")),
        "Table bronze/orders: LiquidClustering cannot be combined with Append.partition_by ('day',)",
    ),
    (lambda: derived(compaction=clustered(*"abcde")), "LiquidClustering has 5 columns"),
    (
        lambda: derived(write=BY_DAY, compaction=z_order("id", "Day")),
        "contains the partition column 'Day'",
    ),
    (lambda: landed(compaction=z_order("idd")), "ZOrder.columns holds the unknown column 'idd'"),
    (lambda: landed(archive=Archive()), "archive is set, but only whole partitions are archived"),
    (
        lambda: landed(
            source=landing(schema="id STRING, shop INT, day DATE"),
            write=Append(partition_by=("shop",)),
            archive=Archive(),
        ),
        "no column of partition_by ('shop',) can give a partition its time",
    ),
    (lambda: derived(write=BY_ID_AND_DAY, archive=Archive()), "only whole partitions are archived"),
    (
        lambda: derived(
            write=Append(partition_by=("day",)), archive=Archive(), ttl=Ttl(column="day", days=9)
        ),
        "archive and ttl are both set",
    ),
    (
        lambda: Archive(older_than_days=0),
        "Archive.older_than_days is 0. Use a whole number, 1 or more",
    ),
    (
        lambda: Archive(storage_class="GLACIER"),
        """Archive.storage_class is 'GLACIER'. Use "STANDARD",""",
    ),
    (lambda: Archive(clock="row"), """Use "now" or "newest_row"."""),  # type: ignore[arg-type]
    (
        lambda: landed(properties={"lakehouse.clustering": "x"}),
        "properties holds 'lakehouse.clustering'",
    ),
    (lambda: derived(ttl=7), "Table silver/orders_seen: ttl is 7. Use Ttl or None"),
    (lambda: landed(write="append"), "Table bronze/orders: write is 'append'. Use Append, Merge,"),
    (lambda: landed(key="orders"), "Table.key is 'orders'. Use layer/name"),
    (lambda: landed(key="raw/orders"), "a layer of bronze, silver, gold"),
    (lambda: landed(key="bronze/Orders"), "Table.key is 'bronze/Orders'"),
    (lambda: landed(key="bronze/1st"), "begins with a letter"),
    (lambda: landed(key="bronze/../x"), "Table.key is"),
    (lambda: landed(key="bronze/a-b"), "Table.key is"),
    (lambda: landed(key="bronze/" + "a" * 101), "Table.key is"),
    (lambda: landed(source=None), "not both or neither"),
    (lambda: derived(source=LANDING), "not both or neither"),
    (lambda: landed(inputs=(SHOPS,)), "inputs= is set, but with source="),
    (lambda: derived(inputs=()), "inputs is empty"),
    (lambda: landed(write=BY_ID_AND_DAY), "Either merge in a table downstream"),
    (
        lambda: landed(write=Append(partition_by=("dax",))),
        "holds the unknown column 'dax'. Did you mean",
    ),
    (lambda: landed(write=Append(partition_by=("id", "day"))), "all 2 columns are in partition_by"),
    (lambda: landed(fresh_within_hours=0), "fresh_within_hours is 0"),
    (lambda: landed(fresh_within_hours=float("inf")), "fresh_within_hours is inf"),
    (lambda: landed(fresh_within_hours=float("nan")), "fresh_within_hours is nan"),
    (lambda: derived(transform=lambda order: order), "its transform is <lambda>(order)"),
    (lambda: derived(inputs=(ORDERS, SHOPS)), "Use one that takes orders, shops"),
    (
        lambda: derived(inputs=(ORDERS, replace(SHOPS, key="silver/orders"))),
        "inputs holds two tables named 'orders'",
    ),
    (lambda: landing(schema=" "), "Landing.schema is ' '. Use a Spark DDL string"),
    (
        lambda: Landing(prefix="landing/x/", format="json"),
        "Landing.schema is missing. Use `lakehouse schema FILE` with one of the files",
    ),
    (lambda: landing(schema="id, day"), "Landing.schema is 'id, day'"),
    (lambda: landing(schema="id STRING, ID INT"), "holds 'ID' twice"),
    (lambda: landing(derived={"day": "now()"}), "holds 'day' twice"),
    (lambda: landing(derived={"x": " "}), "Landing.derived['x'] is empty"),
    (lambda: landing(schema="_source_file STRING"), "starts with _"),
    (lambda: landing(required=("idd",)), "Landing.required holds the unknown column 'idd'"),
    (lambda: landing(required="id"), "is 'id', which is one string"),
    (lambda: landing(format="xml"), "Landing.format is 'xml'. Use avro, csv, json or parquet"),
    (lambda: landing(prefix="landing/orders"), "ends with '/'"),
    (lambda: landing(prefix="/landing/"), "below the lake's root"),
    (lambda: landing(prefix="landing/../x/"), "below the lake's root"),
    (lambda: landing(prefix="s3://b/x/"), "below the lake's root"),
    (lambda: landing(prefix="landing/*/"), "Landing.prefix is"),
    (lambda: landing(prefix="_lakehouse/"), "like landing/orders/"),
    (lambda: landing(prefix="bronze/orders/incoming/"), "Use another folder, like landing/"),
    (lambda: landing(prefix="gold/"), "gold/ holds the lake's own files"),
    (lambda: landing(prefix="Silver/x/"), "Silver/ holds"),
    (lambda: landing(prefix="quarantine/bronze/x/"), "quarantine/ holds"),
    (lambda: landing(prefix="inventory/local/"), "inventory/ holds"),
    (lambda: landing(prefix=""), "like landing/"),
    (
        lambda: landing(format="csv", csv=Csv(delimiter="::")),
        "Csv.delimiter is '::'. Use one printable ASCII",
    ),
    (lambda: landing(format="csv", csv=Csv(delimiter="1")), "Csv.delimiter is '1'"),
    (
        lambda: landing(format="csv", csv=Csv(decimal=",")),
        "Csv.delimiter and Csv.decimal are both ','. Use Csv(delimiter=';')",
    ),
    (
        lambda: landing(format="csv", csv=Csv(delimiter="'", quote="'")),
        "Csv.delimiter and Csv.quote are both",
    ),
    (
        lambda: landing(csv=Csv(delimiter=";")),
        "Landing.csv is set, but the format is 'json'. Leave it out",
    ),
    (
        lambda: landing(format="parquet", encoding="cp1252"),
        "Landing.encoding is 'cp1252', but the format",
    ),
    (lambda: landing(encoding="latin-77"), "Landing.encoding is 'latin-77'. Use an encoding"),
    (lambda: landing(encoding="base64"), "Landing.encoding is 'base64'"),
    (lambda: landing(release_files=2), "Landing.release_files is 2 and release_minutes is 0"),
    (lambda: landing(max_file_bytes=0), "Landing.max_file_bytes is 0"),
    (lambda: Append(partition_by="day"), "Use a tuple of names, like ('day',)"),
    (lambda: Append(partition_by=("day", "Day")), "Append.partition_by holds 'Day' twice"),
    (lambda: Append(partition_by=("",)), "holds the empty name ''"),
    (lambda: Merge(keys=(), order_by=("at",)), "Merge.keys is empty"),
    (lambda: derived(write=Merge(keys=("id",))), "Merge.order_by is empty"),
    (lambda: derived(write=replace(BY_ID_AND_DAY, deletes="soft")), "Merge.deletes is 'soft', but"),
    (
        lambda: Merge(keys=("id",), deletes="none"),
        'Merge.deletes is \'none\'. Use "hard" or "soft"',
    ),
    (lambda: landed(source=CHANGES), "change data is written by Merge"),
    (lambda: landed(source=CHANGES, write=BY_ID_AND_DAY), "Merge.order_by is set, but changes="),
    (lambda: landed(source=CHANGES, write=Merge(keys=("idd",))), "Did you mean 'id'?"),
    (
        lambda: landing(changes=Dms(operation="op")),
        "Dms.operation holds the unknown column 'op'. Use one of",
    ),
    (lambda: dms(changes=Dms(position=("seq",))), "Dms.position holds the unknown column 'seq'"),
    (lambda: dms(changes=Dms(committed_at="at")), "Dms.committed_at"),
    (lambda: dms(format="csv", schema="id INT, Op STRING"), "Landing.schema begins with 'id'"),
    (lambda: dms(format="csv"), 'Use null_value="NULL" (the default of that'),
    (lambda: Dms(position="seq"), "Dms.position is 'seq'"),
    (
        lambda: landing(format="csv", changes=Debezium()),
        "Landing.format is 'csv' with changes=Debezium()",
    ),
    (lambda: Debezium(position="scn"), "Use fields of source with their types, like 'scn BIGINT'"),
    (lambda: landing(null_value="-", changes=Debezium()), "Landing.null_value is '-' with"),
    (lambda: Debezium(lateness_hours=1e9), "Use a number from 0 to 87600"),
    (lambda: Debezium(lateness_hours=-1), "Debezium.lateness_hours is -1"),
    (lambda: Merge(keys=("id", "id"), order_by=("at",)), "Merge.keys holds 'id' twice"),
    (lambda: Merge(keys="id", order_by=("at",)), "Merge.keys is 'id', which is one string"),
    (
        lambda: landed(evolution="always"),
        'Table bronze/orders: evolution is \'always\'. Use "automatic", "ask" or',
    ),
    (
        lambda: landed(renamed={"Day": "day"}),
        "names that differ only in upper and lower case are one column",
    ),
    (lambda: landed(renamed={"id": "day"}), "maps 'id' to 'day', but 'id' is still declared"),
    (lambda: landed(renamed={"town": "city"}), "renamed holds the unknown column 'city'"),
    (lambda: derived(renamed={"a": "b", "b": "c"}), "Use only the present name as the target"),
    (lambda: Merge(keys=("id",), order_by=("at", "id")), "Merge.order_by holds the key 'id'"),
]


@pytest.mark.parametrize(("declare", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_a_meaningless_declaration_is_refused(declare: Callable[[], object], said: str) -> None:
    with pytest.raises(Refused, match=re.escape(said)) as refusal:
        declare()
    assert re.search(r"\b(Use|use|Leave|Set|Name|Either|Did you mean)\b", str(refusal.value))


ACCEPTED: dict[str, Callable[[], object]] = {
    "optimized write beside the sensor": lambda: landed(
        properties={"delta.autoOptimize.optimizeWrite": "true"}
    ),
    "liquid clustering of a table without partitions": lambda: derived(
        compaction=clustered(*"abcd")
    ),
    "a partition that is derived": lambda: landed(
        source=landing(derived={"h": "hour(at)"}), write=Append(partition_by=("h",))
    ),
    "nested types and comments": lambda: landing(
        schema="a STRUCT<b: INT, c: ARRAY<INT>>, d DECIMAL(10, 2) COMMENT 'x, y', `e f` INT"
    ),
    "a transform that takes anything": lambda: derived(
        inputs=(ORDERS, SHOPS), transform=lambda **frames: frames
    ),
    "a transform with more that has defaults": lambda: derived(
        transform=lambda orders, today=None: orders
    ),
    "a prefix of Hive folders": lambda: landing(prefix="landing/day=1/x.y-z_0/"),
    "CSV of DMS with empty nulls": lambda: dms(format="csv", null_value=""),
    "Parquet of DMS, which has nulls": lambda: dms(format="parquet"),
}


@pytest.mark.parametrize("declare", ACCEPTED.values(), ids=ACCEPTED)
def test_a_declaration_that_can_be_meant_is_not(declare: Callable[[], object]) -> None:
    declare()


def test_the_decorator_makes_a_table_of_a_transform_and_its_docstring() -> None:
    @table(
        key="gold/daily",
        inputs=[ORDERS],
        write=Overwrite(),
        compaction=Compaction(min_small_files=3),
    )
    def daily(orders: Any) -> Any:
        """Orders per day."""
        return orders

    assert (daily.key, daily.inputs) == ("gold/daily", (ORDERS,))
    assert daily.description == "Orders per day."
    assert daily.compaction.min_small_files == 3
    assert daily.transform is not None and daily.transform(5) == 5


def module(name: str, **values: object) -> ModuleType:
    found = ModuleType(name)
    vars(found).update(values)
    return found


def test_tables_are_found_inputs_first_and_once_even_where_modules_share_them() -> None:
    silver = derived(key="silver/a", inputs=(ORDERS,))
    gold = derived(key="gold/a", inputs=(silver, SHOPS), transform=lambda a, shops: a)
    found = module_tables(
        [
            module("gold", gold=gold, silver=silver),
            module("all", o=ORDERS, s=SHOPS, silver=silver, other=1),
        ]
    )
    assert list(found) == ["bronze/orders", "bronze/shops", "silver/a", "gold/a"]
    assert found["gold/a"] is gold


def test_two_tables_of_one_key_are_refused_even_if_they_are_alike() -> None:
    with pytest.raises(Refused, match="'bronze/orders' is declared twice, the second time in b"):
        module_tables([module("a", orders=ORDERS), module("b", orders=landed())])


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ([], "is in no module of the tables package"),
        ([landed(description="x")], "is not the table declared with that key"),
    ],
)
def test_an_input_that_is_not_among_the_tables_is_refused(listed: list[Table], said: str) -> None:
    with pytest.raises(Refused, match=f"silver/orders_seen: its input bronze/orders {said}"):
        module_tables([module("m", seen=derived(), **{value.name: value for value in listed})])
