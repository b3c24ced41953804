"""`adopted.toml`: what is written is read back, and what cannot be is refused by name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.base.errors import Refused
from lakehouse.declare.adopted import adopted_lines, adopted_table, parse_adopted, toml_text
from lakehouse.declare.policies import (
    AfterWrite,
    Archive,
    Compaction,
    LiquidClustering,
    Ttl,
    Vacuum,
)
from lakehouse.declare.table import Adopted, Table


def test_a_table_is_adopted_by_two_lines_and_read_back() -> None:
    table = adopted_table("silver/orders", "s3://warehouse/orders")
    lines = adopted_lines(table)
    assert lines == '["silver/orders"]\nuri = "s3://warehouse/orders"\n'
    assert parse_adopted(lines, name="adopted.toml") == {"silver/orders": table}


def test_its_clustering_is_read_back_too() -> None:
    table = adopted_table("gold/events", "/data/events", cluster_by=("a b", 'c"d'))
    assert table.compaction.data_layout == LiquidClustering(columns=("a b", 'c"d'))
    assert parse_adopted(adopted_lines(table), name="adopted.toml") == {"gold/events": table}


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_no_text_leaves_its_quotes(text: str) -> None:
    import tomllib

    assert tomllib.loads(f"word = {toml_text(text)}") == {"word": text}


def test_archive_and_ttl_are_knobs_of_an_entry_too() -> None:
    for knob, archive, ttl in (
        (
            'archive = {older_than_days = 40, clock = "newest_row"}',
            Archive(older_than_days=40, clock="newest_row"),
            None,
        ),
        ('ttl = {column = "at", days = 7}', None, Ttl(column="at", days=7)),
    ):
        lines = f'["gold/events"]\nuri = "/data/events"\n{knob}\n'
        table = parse_adopted(lines, name="adopted.toml")["gold/events"]
        assert (table.archive, table.ttl) == (archive, ttl)


REFUSED = {
    "not toml": "is not TOML",
    'silver = "x"': r"Use an entry \[",
    '[silver.orders]\nuri = "/data"': r'the key of an entry is quoted, for example \["silver/orders"\]',
    '["silver/orders"]\nurl = "/data"': "Use uri",
    '["silver/orders"]\nuri = "data"': "Use an absolute folder",
    '["silver/orders"]\nuri = "gs://b/x"': "Use a folder, file:///folder",
    '["silver/orders"]\nuri = "/data"\nwriters = "none"': "has 'writers'. Use uri",
    '["silver/orders"]\nuri = "/data"\norphans = "all"': 'Use "keep" or "delete"',
    '["silver/orders"]\nuri = "/data"\ncluster_by = "a"': "Use a list of columns",
    '["silver/orders"]\nuri = "/data"\narchive = 31': "archive is 31. Use a table of older_than_days",
    '["silver/orders"]\nuri = "/data"\narchive = {kep_days = 1}': "archive has 'kep_days'. Use keep_",
    '["silver/orders"]\nuri = "/data"\nttl = {column = "at"}': "ttl lacks 'days'. Use column and days",
    '["silver/orders"]\nuri = "/data"\nttl = {column = 1, days = 7}': "Ttl.column is 1. Use a string",
    '["silver/orders"]\nuri = "/data"\narchive = {keep_days = -1}': "a whole number, 0 or more",
    '["copper/orders"]\nuri = "/data"': "a layer of bronze, silver, gold",
}


@pytest.mark.parametrize(("text", "said"), REFUSED.items(), ids=range(len(REFUSED)))
def test_an_entry_that_cannot_be_is_refused_with_its_file(text: str, said: str) -> None:
    with pytest.raises(Refused, match=rf"(?s)adopted\.toml.*{said}"):
        parse_adopted(text, name="adopted.toml")


BESIDE = {
    "transform": {"transform": lambda: None},
    "properties": {"properties": {"a": "b"}},
    "retention": {"vacuum": Vacuum(retention_hours=200)},
    "AfterWrite": {"compaction": Compaction(strategy=AfterWrite())},
}


@pytest.mark.parametrize("said", BESIDE)
def test_what_only_a_writer_can_do_is_refused_beside_adopted(said: str) -> None:
    with pytest.raises(Refused, match=said):
        Table(key="silver/orders", write=Adopted(uri="/data/orders"), **BESIDE[said])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("uri", "said"),
    {
        "s3a://bucket/t": "Use 's3://bucket/t'",
        "file:///data/t": "Use '/data/t'",
        "/data/../t/": "Use '/t'",
        "data/t": "Use an absolute folder, or s3://bucket/folder",
        "gs://b/t": "Use a folder, file:///folder or s3://",
    }.items(),
)
def test_a_declaration_spells_an_address_in_its_one_way(uri: str, said: str) -> None:
    with pytest.raises(Refused, match=said):
        Adopted(uri=uri)


def test_credentials_in_a_declaration_are_refused_and_not_repeated() -> None:
    with pytest.raises(Refused) as refused:
        Adopted(uri="s3://key:hush@bucket/t")
    assert "hush" not in str(refused.value)
