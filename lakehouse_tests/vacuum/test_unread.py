"""A log that cannot be read stops its own table, and those whose files it may borrow. No Spark."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakehouse.base.errors import LakehouseError, Refused
from lakehouse.lake.lake import Lake, open_lake
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.log_builder import LogBuilder, add_of, vector_of
from lakehouse_tests.support.faults import KEY, PAST, age, paths, planned, report, story_of
from lakehouse_tests.support.vacuums import table_of

UUID = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"
NEIGHBOUR = "silver/s"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = open_lake(own_settings(tmp_path))
    story_of(lake)
    return lake


def spoiled(story: LogBuilder, version: int, content: bytes) -> None:
    story.store.put(story.commit_name(version), content)


def cut_checkpoint(story: LogBuilder) -> None:
    story.checkpoint()
    story.store.put(f"{story.key}/_delta_log/{story.version:020}.checkpoint.parquet", b"PAR1")
    story.lose(2)


def cut_sidecar(story: LogBuilder) -> None:
    story.checkpoint(uuid=UUID, sidecars=2).lose(2)
    story.store.put(f"{story.key}/_delta_log/_sidecars/{story.version} 0.parquet", b"PAR1")


def contradiction(story: LogBuilder) -> None:
    story.checkpoint()
    story.store.put(f"{story.key}/_delta_log/{story.version:020}.crc", b'{"numFiles":99}')


def unknown_feature(story: LogBuilder) -> None:
    features = {"readerFeatures": ["new"], "writerFeatures": ["new"]}
    story.commit(
        "UPGRADE", {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    )


DAMAGE: dict[str, Callable[[LogBuilder], object]] = {
    "a commit is empty": lambda story: spoiled(story, 2, b""),
    "a commit is cut": lambda story: spoiled(story, 2, story.store.read(story.commit_name(2))[:-9]),
    "a commit is text": lambda story: spoiled(story, 3, b"no action"),
    "a commit is missing": lambda story: story.lose(2),
    "a checkpoint is cut": cut_checkpoint,
    "a sidecar is cut": cut_sidecar,
    "a checksum contradicts": contradiction,
    "a feature is unknown": unknown_feature,
    "a field is of another type": lambda story: story.commit("WRITE", add_of("y", size="many")),
    "a column is unknown": lambda story: story.commit(
        "WRITE", add_of("y", partitionValues={"z": "1"})
    ),
    "the metadata is no schema": lambda story: story.commit("ALTER", {"metaData": {"id": "x"}}),
}


def neighbour(lake: Lake, *names: str, **fields: Any) -> LogBuilder:
    """Another table with four versions, which reads these files of its own or of others."""
    story = LogBuilder(lake.store, NEIGHBOUR).create()
    story.commit("WRITE", *(add_of(name, **fields) for name in names))
    return story.append([("own1", 1)]).append([("own2", 1)])


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("mode", ["FULL", "INVENTORY"])
def test_whatever_is_wrong_with_one_log_stops_that_table_alone(
    lake: Lake, damage: Callable[[LogBuilder], object], mode: Any
) -> None:
    damage(neighbour(lake, "own0"))
    age(lake)
    report(lake)
    assert paths(planned(lake, mode)) == PAST
    with pytest.raises(LakehouseError):
        planned(lake, "FULL", table_of(NEIGHBOUR))


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize(
    "spelling",
    ["file:{root}/bronze/t/d=1/orphan", "{root}/bronze/t/d=1/x", "../../bronze/t/d=1/orphan"],
)
def test_a_clone_that_cannot_be_read_stops_those_it_borrows_from_and_no_others(
    lake: Lake, damage: Callable[[LogBuilder], object], spelling: str
) -> None:
    other = LogBuilder(lake.store, "bronze/u").create().append([("live", 1), ("gone", 1)])
    other.store_data().delete(["gone"])
    damage(neighbour(lake, spelling.format(root=Path(lake.settings.root).resolve())))
    age(lake)
    told = f"vacuum of {KEY}: {NEIGHBOUR} cannot be read: .* may read files of {KEY} .* either repair {NEIGHBOUR}, or move it"
    with pytest.raises(Refused, match=told):
        planned(lake, "FULL")
    assert paths(planned(lake, "FULL", table_of("bronze/u"))) == ["gone"]


def test_a_deletion_vector_elsewhere_is_borrowed_too(lake: Lake) -> None:
    place = f"file:{Path(lake.settings.root).resolve()}/{KEY}/deletion_vector_{UUID}.bin"
    vector = vector_of(place, storage="p")
    for checkpointed in (False, True):
        story = neighbour(lake, "own0", deletionVector=vector)
        if checkpointed:
            story.checkpoint().append([("own3", 1)]).append([("own4", 1)]).forget_before(4).lose(4)
        else:
            spoiled(story, 3, b"")
        with pytest.raises(Refused, match=f"{NEIGHBOUR} cannot be read: .* may read files"):
            planned(lake, "FULL")


def test_what_an_unread_log_names_outside_of_the_lake_stays_wherever_it_lies(lake: Lake) -> None:
    spoiled(neighbour(lake, "s3a://alias-of-a-bucket/lake/bronze/t/d=1/orphan"), 3, b"")
    age(lake)
    assert paths(planned(lake, "FULL")) == ["d=1/gone"]


UNKNOWN: dict[str, Callable[[LogBuilder], object]] = {
    "first empty": lambda story: spoiled(story, 0, b""),
    "first cut": lambda story: spoiled(story, 0, story.store.read(story.commit_name(0))[:-9]),
    "first missing": lambda story: story.lose(0),
    "first missing, checkpoint cut": lambda story: (cut_checkpoint(story), story.lose(0)),
    "first missing, sidecar cut": lambda story: (cut_sidecar(story), story.lose(0)),
    "first missing, contradiction": lambda story: (contradiction(story), story.lose(0)),
    "no file": lambda story: [spoiled(story, version, b"") for version in (1, 2, 3)],
}


@pytest.mark.parametrize("damage", UNKNOWN.values(), ids=UNKNOWN)
def test_a_log_that_does_not_show_whether_it_is_a_clone_stops_all(
    lake: Lake, damage: Callable[[LogBuilder], object]
) -> None:
    damage(neighbour(lake, "own0"))
    age(lake)
    with pytest.raises(Refused, match=f"{NEIGHBOUR} cannot be read: .* may read files of {KEY}"):
        planned(lake, "FULL")


def test_an_unreadable_folder_of_tables_stops_those_whose_files_it_reads(lake: Lake) -> None:
    story = LogBuilder(lake.store, "bronze").create().append([("t/d=1/orphan", 3)])
    LogBuilder(lake.store, "bronze/u").create().append([("a", 1)]).store_data().delete(["a"])
    story.append([("x", 1)])
    spoiled(story, 2, b"")
    age(lake)
    with pytest.raises(Refused, match=f"bronze cannot be read: .* bronze may read files of {KEY}"):
        planned(lake, "FULL")
    assert paths(planned(lake, "FULL", table_of("bronze/u"))) == ["a"]
