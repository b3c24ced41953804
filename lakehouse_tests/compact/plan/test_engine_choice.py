"""Which engine compacts a table, and why it is not deltalake."""

from dataclasses import replace

import pytest

from lakehouse.base.errors import Refused
from lakehouse.compact.plan.compaction import plan_table
from lakehouse.compact.plan.target_size import choose_engine, missing_in_deltalake
from lakehouse.declare.adopted import adopted_lines, adopted_table, parse_adopted
from lakehouse.declare.landing import Landing
from lakehouse.declare.policies import Compaction, ZOrder
from lakehouse.declare.table import Append, Table
from lakehouse.delta.snapshot import Column, Snapshot
from lakehouse_tests.support.example_snapshots import NO_PAST, QUIET, data_file, snapshot

PLAIN = replace(
    snapshot([data_file(10)]),
    columns=(Column(name="id", type="bigint"), Column(name="tags", type="array<string>")),
    features=frozenset({"appendOnly", "invariants"}),
)
ADOPTED = adopted_table("silver/orders", "/data/orders")


def with_features(*features: str, **properties: str) -> Snapshot:
    return replace(PLAIN, features=PLAIN.features | {*features}, properties=properties)


def of_type(type_: str) -> Snapshot:
    return replace(PLAIN, columns=(Column(name="v", type=type_),))


def partitioned(type_: str, value: str | None) -> Snapshot:
    columns = (*PLAIN.columns, Column(name="d", type=type_))
    files = (data_file(10, partition=(("d", value),)),)
    return replace(PLAIN, columns=columns, partition_columns=("d",), files=files)


MAPPED = with_features("columnMapping", **{"delta.columnMapping.mode": "name"})


def test_adopted_tables_that_deltalake_can_write_are_compacted_by_it() -> None:
    assert choose_engine(ADOPTED, PLAIN)[0] == "deltalake"
    landing = Landing(prefix="landing/o/", format="json", schema="id BIGINT")
    own = Table(key="bronze/orders", source=landing, write=Append())
    assert choose_engine(own, PLAIN)[0] == "spark"
    by_spark = replace(ADOPTED, compaction=Compaction(engine="spark"))
    assert choose_engine(by_spark, PLAIN)[0] == "spark"


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (with_features("deletionVectors"), "it has the feature deletionVectors"),
        (with_features("rowTracking", "domainMetadata"), "it has the feature domainMetadata"),
        (with_features("identityColumns"), "it has the feature identityColumns"),
        (MAPPED, "it has the feature columnMapping"),
        (with_features("columnMapping"), None),
        (with_features("changeDataFeed", "generatedColumns", "timestampNtz"), None),
        (of_type("void"), "column 'v' has the type void"),
        (of_type("struct<a:void>"), "column 'v' has the type struct<a:void>"),
        (partitioned("string", ""), "a partition has d = ''"),
        (partitioned("string", "a b"), None),
        (partitioned("int", "01"), "a partition has d = '01'"),
        (partitioned("int", None), None),
        (partitioned("date", "2026-01-31"), None),
        (partitioned("timestamp", "2026-01-31 00:00:00"), "a partition has d = '2026-01-31 00:00:"),
    ],
)
def test_what_deltalake_cannot_rewrite_is_named(found: Snapshot, why: str | None) -> None:
    missing = missing_in_deltalake(found)
    assert missing == why or (why and missing and missing.startswith(why))
    engine, why_not = choose_engine(ADOPTED, found)
    assert engine == ("deltalake" if why is None else "spark")
    assert why_not == (missing or "")


def test_a_declared_engine_that_cannot_compact_the_table_is_refused() -> None:
    declared = replace(ADOPTED, compaction=Compaction(engine="deltalake"))
    message = r'since it has the feature deletionVectors\. Use engine="auto"'
    with pytest.raises(Refused, match=message):
        choose_engine(declared, with_features("deletionVectors"))
    ordered = Compaction(engine="deltalake", data_layout=ZOrder(columns=("id",)))
    with pytest.raises(Refused, match="since its data_layout is ZOrder"):
        choose_engine(replace(ADOPTED, compaction=ordered), PLAIN)


def test_deltalake_writes_no_file_for_a_bin_without_rows() -> None:
    empty = replace(PLAIN, files=tuple(data_file(100, name, rows=0) for name in ("a", "b")))
    table = replace(ADOPTED, compaction=Compaction(engine="deltalake", **QUIET))
    found = plan_table(table, empty, NO_PAST, now_ms=0)
    assert (found.files_removed, found.files_added) == (2, 0)


def test_adopted_toml_names_the_engine() -> None:
    table = adopted_table("silver/orders", "/data/orders", engine="spark")
    lines = f'{adopted_lines(table)}engine = "spark"\n'
    assert parse_adopted(lines, name="adopted.toml") == {"silver/orders": table}
    with pytest.raises(Refused, match=r'Compaction\.engine is \'jvm\'\. Use "auto", "spark" or'):
        parse_adopted('["silver/o"]\nuri = "/o"\nengine = "jvm"\n', name="adopted.toml")
