"""The rows that lack a required column are counted from the log, whatever form it has."""

from dataclasses import replace
from typing import Any

import pytest

from lakehouse import Append, Landing, Table
from lakehouse.engine.evolution.compare import count_missing
from lakehouse.engine.lake import Lake
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.memory_store import MemoryStore

SHOPS = Table(
    key="bronze/t",
    source=Landing(
        prefix="landing/shops/",
        format="json",
        schema="id BIGINT, name STRING, at STRUCT<x: INT>",
        required=("id", "name", "at"),
    ),
    write=Append(),
)
COLUMNS: dict[str, Any] = {"id": "long", "name": "string"}


def told(rows: int, **nulls: Any) -> dict[str, Any]:
    return {"numRecords": rows, "nullCount": nulls}


def missing(story: LogBuilder, table: Table = SHOPS) -> dict[str, int | None]:
    lake = Lake(settings=None, store=story.store)  # type: ignore[arg-type]
    return dict(count_missing(lake, table, story.facts()))


FORMS = {"commits": {}, "json": {"stats": "json"}, "struct": {"stats": "struct"}}


@pytest.mark.parametrize("form", FORMS)
def test_statistics_of_commits_and_of_checkpoints_in_json_are_counted(form: str) -> None:
    story = LogBuilder().create(columns=COLUMNS)
    story.append([("a", 1, told(3, id=0, name=2)), ("b", 1, told(5, id=0, name=5))]).delete(["b"])
    if form != "commits":
        story.checkpoint(**FORMS[form])
    story.append([("c", 1, told(4, id=0, name=1, at={"x": 4}))])
    known = form != "struct"
    # The table lacks the column `at`, so that all its rows do.
    assert missing(story) == {"id": 0 if known else None, "name": 3 if known else None, "at": 7}


def test_statistics_of_another_shape_are_unknown() -> None:
    for stats in ("{}", '{"nullCount": 5}', '{"numRecords": 1, "nullCount": {"id": "x"}}'):
        story = LogBuilder().create(columns=COLUMNS).append([("a", 1, told(3, id=0, name=0))])
        add = {"path": "b", "partitionValues": {}, "size": 1, "modificationTime": 1}
        story.commit("WRITE", {"add": {**add, "dataChange": True, "stats": stats}})
        assert missing(story)["id"] is None


def test_a_renamed_column_is_counted_under_the_name_that_the_table_has() -> None:
    story = LogBuilder().create(columns=COLUMNS).append([("a", 1, told(3, id=0, name=2))])
    landing = replace(SHOPS.landing, schema="id BIGINT, title STRING", required=("title",))
    renamed = replace(SHOPS, source=landing, renamed={"name": "title"})
    assert missing(story, renamed) == {"title": 2}


def test_the_log_is_read_only_if_statistics_are_needed() -> None:
    class NoReads(MemoryStore):
        def list(self, prefix: str) -> Any:
            raise AssertionError(prefix)

    facts = LogBuilder().create(columns=COLUMNS).append([("a", 1, 3)]).facts()
    lake = Lake(settings=None, store=NoReads())  # type: ignore[arg-type]
    landing = replace(SHOPS.landing, required=("at",))
    assert count_missing(lake, replace(SHOPS, source=landing), facts) == {"at": 3}
    derived = Table(key="silver/t", inputs=(SHOPS,), write=Append(), transform=lambda t: t)
    assert count_missing(lake, derived, facts) == {}
