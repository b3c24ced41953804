"""The story of a log; `lakehouse_tests/long` replays one that real Spark wrote."""

import json
from typing import Any

import pytest

from lakehouse.base.errors import Broken
from lakehouse.delta.log.read_log import read_file_history
from lakehouse.delta.snapshot import FileHistory
from lakehouse_tests.log_builder import LogBuilder


def told(log: LogBuilder) -> FileHistory:
    story = read_file_history(log.store, log.key, uri=f"/lake/{log.key}")
    assert story is not None
    return story


def test_a_commit_tells_what_it_added_and_removed_and_whether_rows_changed() -> None:
    log = LogBuilder().create(partition_by=["d"]).append([("d=1/a", 10), ("d=1/b", 20)])
    log.optimize(["d=1/a", "d=1/b"], into=("d=1/c", 30))
    log.set_properties(x="y").delete_rows({"d=1/c": 3})
    story = told(log)
    commits = [(each.operation, each.changed_data, each.is_rewrite) for each in story.commits]
    assert commits == [
        ("CREATE TABLE", False, False),
        ("WRITE", True, False),
        ("OPTIMIZE", False, True),
        ("SET TBLPROPERTIES", False, False),
        ("DELETE", True, False),
    ]
    last = story.commits[-1]
    assert last.removed_paths == ("d=1/c",)
    [file] = last.added
    assert (file.path, file.deleted_row_count, file.compacted) == ("d=1/c", 3, True)
    assert (last.shape.partition_columns, dict(last.shape.properties)) == (("d",), {"x": "y"})
    assert last.shape.files == ()


def test_a_story_has_the_clustering_of_each_version_also_without_its_beginning() -> None:
    log = LogBuilder().create(features=["clustering", "domainMetadata"]).append([("a", 10)])
    log.commit("CLUSTER BY", clustered("id")).append([("b", 10)]).set_properties(x="y").checkpoint()
    log.append([("c", 10)]).commit("CLUSTER BY", clustered()).append([("d", 10)])
    by = [commit.shape.clustering_columns for commit in told(log).commits]
    assert by == [(), (), ("id",), ("id",), ("id",), ("id",), (), ()]
    left = told(log.forget_before(5)).commits
    assert [commit.shape.clustering_columns for commit in left] == by[5:]


def clustered(*columns: str) -> dict[str, Any]:
    configuration = json.dumps({"clusteringColumns": [[column] for column in columns]})
    told = {"domain": "delta.clustering", "configuration": configuration, "removed": False}
    return {"domainMetadata": told}


CHECKPOINTS: dict[str, dict[str, Any]] = {
    "classic": {},
    "in parts": {"parts": 2},
    "V2": {"uuid": "0f1a2b3c-0000-4000-8000-000000000000", "sidecars": 1},
}


@pytest.mark.parametrize("checkpoint", CHECKPOINTS.values(), ids=CHECKPOINTS)
def test_a_story_without_its_beginning_starts_at_a_checkpoint(checkpoint: dict[str, Any]) -> None:
    log = LogBuilder().create().append([("a", 10), ("b", 20)])
    log.optimize(["a", "b"], into=("c", 25)).checkpoint(**checkpoint)
    log.append([("d", 5)]).checkpoint(**checkpoint).append([("e", 6)])
    story = told(log.forget_before(3))
    assert story.start is not None and story.first_version == 2
    assert [(file.path, file.size_bytes) for file in story.start.files] == [("c", 25)]
    assert [commit.version for commit in story.commits] == [3, 4]
    assert told(log.forget_before(4)).first_version == 3


def test_a_gap_that_no_checkpoint_closes_is_broken() -> None:
    log = LogBuilder().create().append([("a", 10)]).append([("b", 10)]).lose(1)
    with pytest.raises(Broken):
        told(log)
    assert told(log.checkpoint()).first_version == 2


@pytest.mark.parametrize("kept", [[], [0, 1], [1]])
def test_a_story_reaches_a_newest_version_with_only_a_checkpoint_left(kept: list[int]) -> None:
    log = LogBuilder().create().append([("a", 10)]).checkpoint().append([("b", 10)])
    log.append([("c", 10)]).checkpoint()
    for version in {*range(4)} - {*kept}:
        log.lose(version)
    story = told(log)
    assert (story.first_version, story.commits) == (3, ())


def test_where_there_is_no_table_there_is_no_story() -> None:
    log = LogBuilder()
    assert read_file_history(log.store, log.key, uri="/lake/bronze/t") is None
