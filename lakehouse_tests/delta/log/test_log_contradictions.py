"""A checkpoint that is valid Parquet may lack files: every figure that the log records of itself is compared with it."""

import json
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pyarrow.parquet as pq
import pytest

from lakehouse.base.errors import Broken
from lakehouse.delta.log import read_facts
from lakehouse_tests.checkpoint_parquet import checkpoint_parquet
from lakehouse_tests.log_builder import LogBuilder, add_of, vector_of

UUID = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"
LOG = "bronze/t/_delta_log"
CHECKPOINT = f"{LOG}/{6:020}.checkpoint.parquet"
KINDS: dict[str, dict[str, Any]] = {
    "classic": {},
    "three parts": {"parts": 3},
    "V2 with sidecars": {"uuid": UUID, "sidecars": 2},
    "V2 in JSON with sidecars": {"uuid": UUID, "sidecars": 2, "json_file": True},
    "V2": {"uuid": UUID},
}


def story() -> LogBuilder:
    """Seven versions: one file is added by each of five commits, one is removed, and one gets a deletion vector."""
    log = LogBuilder().create(reader_features=["deletionVectors", "v2Checkpoint"])
    for name in ("a", "b%20b", "c", "d", "e"):
        log.append([(name, 10)])
    return log.commit("DELETE", *removal(log, "a"), *removal(log, "c"), vectored("c"))


def removal(log: LogBuilder, path: str) -> list[dict[str, Any]]:
    return [dict(log._remove(path, data_change=True))]


def vectored(path: str) -> dict[str, Any]:
    return add_of(path, size=10, deletionVector=vector_of("0" * 20, 3))


def put(log: LogBuilder, name: str, value: Any) -> None:
    log.store.put(f"{LOG}/{name}", json.dumps(value).encode())


def point(log: LogBuilder, **fields: Any) -> None:
    """`_last_checkpoint` as Spark writes it, but for these fields; those that are None are left out."""
    files = [file for file in log.store.list(LOG) if ".checkpoint" in file.name]
    figures = {
        "version": log.version,
        "size": len(log._checkpoint_rows()),
        "parts": len(files) if len(files) > 1 else None,
        "sizeInBytes": sum(file.size_bytes for file in files),
        "numOfAddFiles": len(log._live),
        **fields,
    }
    put(log, "_last_checkpoint", {name: each for name, each in figures.items() if each is not None})


def checksum(log: LogBuilder, **fields: Any) -> None:
    """The version checksum as Spark writes it, but for these fields."""
    size_bytes = sum(add["size"] for add in log._live.values())
    figures = {"numFiles": len(log._live), "tableSizeBytes": size_bytes, "numMetadata": 1}
    put(log, f"{log.version:020}.crc", {**figures, **fields})


def cut(log: LogBuilder, *paths: str, **options: Any) -> LogBuilder:
    """A checkpoint of the newest version that lacks these files; the log goes on as if it had them."""
    live = dict(log._live)
    for path in paths:
        del log._live[path]
    log.checkpoint(**options)
    log._live.clear()
    log._live.update(live)
    return log


def broken(log: LogBuilder, *texts: str) -> str:
    with pytest.raises(Broken) as caught:
        log.facts()
    message = str(caught.value)
    assert all(text in message for text in texts), message
    return message


def live(log: LogBuilder) -> list[str]:
    return sorted(file.path for file in log.snapshot().files)


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("forgotten", [0, 3, 7])
def test_figures_that_agree_are_no_contradiction(options: dict[str, Any], forgotten: int) -> None:
    log = story().checkpoint(**options).forget_before(forgotten)
    is_v2 = "uuid" in options
    point(log, **({"size": 99, "sizeInBytes": 99, "parts": None} if is_v2 else {}))
    checksum(log)
    assert live(log) == ["b%20b", "c", "d", "e"]
    log.append([("f", 1)])  # the pointer and the checksum lag behind now
    assert len(live(log)) == 5
    checksum(log)
    assert len(live(log)) == 5


UNSAID: dict[str, dict[str, Any]] = {
    "of an older checkpoint": {"version": 5, "numOfAddFiles": 99, "size": 99, "sizeInBytes": 99},
    "of older writers": {"numOfAddFiles": None, "sizeInBytes": None},
    "unknown to the writer": {"numOfAddFiles": -1, "size": -1, "sizeInBytes": -1},
    "of other types": {"numOfAddFiles": "4", "size": None, "sizeInBytes": 1.5, "parts": [1]},
    "without a version": {"version": None, "numOfAddFiles": 99},
}


@pytest.mark.parametrize("fields", UNSAID.values(), ids=UNSAID)
def test_what_a_pointer_does_not_say_is_no_contradiction(fields: dict[str, Any]) -> None:
    log = story().checkpoint()
    point(log, **fields)
    assert len(live(log)) == 4


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"7", b'"x"', b"[" * 100_000, b"\xff"])
def test_a_pointer_or_checksum_that_cannot_be_read_says_nothing(content: bytes) -> None:
    log = story().checkpoint()
    log.store.put(f"{LOG}/_last_checkpoint", content)
    log.store.put(f"{LOG}/{6:020}.crc", content)
    assert len(live(log)) == 4


AT_6 = ("2 files at version 6", f"numFiles in {LOG}/{6:020}.crc is 4")
LACKS = {
    "pointer": ("holds 2 files", "numOfAddFiles in _last_checkpoint is 4"),
    "checksum": AT_6,
    "later checksum": ("3 files at version 7", f"numFiles in {LOG}/{7:020}.crc is 5"),
    "checksum of a checkpoint": AT_6,
    "commits": ("holds 2 of the 4 files that the commits 1 to 6 added",),
}


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(("how", "texts"), LACKS.items(), ids=LACKS)
def test_a_checkpoint_that_lacks_files_is_broken_and_named_with_both_counts(
    options: dict[str, Any], how: str, texts: tuple[str, ...]
) -> None:
    log = cut(story(), "b%20b", "c", **options)
    if how == "pointer":
        point(log)
    if how in ("checksum", "checksum of a checkpoint"):
        checksum(log)
    if "later" in how or how == "checksum of a checkpoint":
        log.append([("f", 1)])
    if how == "later checksum":
        checksum(log)
    log.forget_before(1 if how == "commits" else 7)
    message = broken(log, f"{LOG}/{6:020}.checkpoint", *texts)
    assert "Restore the log from a backup" in message


@pytest.mark.parametrize("fields", [{"numFiles": 5}, {"tableSizeBytes": 41}])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_checksum_that_contradicts_is_broken(fields: dict[str, int], checkpointed: bool) -> None:
    log = story()
    if checkpointed:
        log.checkpoint()
    checksum(log, **fields)
    broken(log, f"{6:020}.crc", str(*fields.values()))
    log.append([("f", 1)])
    if not checkpointed:  # nothing that was read is of version 6
        assert len(live(log)) == 5


def test_a_checkpoint_that_brings_removed_files_back_is_broken() -> None:
    log = story()
    log._live["a"] = log._live["d"] | {"path": "a"}
    log.checkpoint().forget_before(5)
    told = "holds 1 file that the commits 5 to 6 removed and did not add again, for example a"
    broken(log, CHECKPOINT, told)


@pytest.mark.parametrize(
    "spelling", [{"b%20b": "b b"}, {"b%20b": "./b%20b"}, {"file:/x/y": "file:///x/y"}]
)
def test_another_spelling_of_a_path_is_no_contradiction(spelling: dict[str, str]) -> None:
    [(in_commit, in_checkpoint)] = spelling.items()
    log = LogBuilder().create().append([(in_commit, 10), ("a", 1)])
    add = log._live.pop(in_commit)
    log._live[in_checkpoint] = add | {"path": in_checkpoint}
    log.checkpoint()
    assert live(log) == sorted(["a", in_checkpoint])


def test_only_what_commits_right_before_the_checkpoint_say_is_compared() -> None:
    log = story().checkpoint().lose(3).append([("f", 1)]).checkpoint()
    assert len(live(log)) == 5


def test_a_pointer_to_a_version_that_the_log_does_not_reach_is_broken() -> None:
    log = story()
    point(log, version=7)
    broken(log, "its _last_checkpoint names version 7, but the log reaches only version 6")
    facts = read_facts(log.store, log.key, uri="x", version=5)
    assert facts is not None and facts.snapshot.file_count == 5


@pytest.mark.parametrize("version", [0, 3])
def test_a_commit_missing_before_a_checkpoint_that_contradicts_is_broken(version: int) -> None:
    log = cut(story(), "d").lose(version)
    point(log)
    text = "numOfAddFiles in _last_checkpoint is 4"
    assert "Restore the log from a backup" in broken(log, "holds 3 files", text)


SPOILED: dict[str, Callable[[bytes], bytes | None]] = {
    "empty": lambda _: b"",
    "cut": lambda content: content[:-9],
    "text": lambda _: b"no Parquet",
    "missing": lambda _: None,
}


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("how", SPOILED)
@pytest.mark.parametrize("kept", [0, 1, 3, 4])
def test_a_checkpoint_that_cannot_be_read_is_broken_until_it_is_removed(
    options: dict[str, Any], how: str, kept: int
) -> None:
    log = LogBuilder().create(reader_features=["v2Checkpoint"]).append([("a", 10)])
    log.append([("b", 10), ("c", 10)]).checkpoint(**options).append([("d", 10)]).forget_before(kept)
    files = log.store.list(LOG)
    checkpoints = [file.name for file in files if ".checkpoint" in file.name]
    sidecars = [file.name for file in files if "_sidecars" in file.name]
    name = [*checkpoints, *sidecars][-1]
    content = SPOILED[how](log.store.read(name))
    log.store.delete([name])
    if content is not None:
        log.store.put(name, content)
    is_only_file = how == "missing" and not {"sidecars", "parts"} & options.keys()
    if kept == 4 and is_only_file:
        assert read_facts(log.store, log.key, uri="x") is None  # nothing of the log is left
        return
    if kept or how != "missing" or sidecars:  # a part that is gone makes no checkpoint
        broken(log, "bronze/t/_delta_log" if sidecars or how != "missing" else "log of bronze/t")
    if not kept:
        log.store.delete(checkpoints)
        assert live(log) == ["a", "b", "c", "d"]


def test_a_checkpoint_with_a_damaged_path_cannot_be_read() -> None:
    log = story().checkpoint()
    content = BytesIO()
    table = pq.read_table(BytesIO(log.store.read(CHECKPOINT)))
    pq.write_table(table, content, compression="none", use_dictionary=False)
    log.store.put(CHECKPOINT, content.getvalue().replace(b"b%20b", b"b\xff20b"))
    broken(log, f"checkpoint {CHECKPOINT} cannot be read", f"or remove {CHECKPOINT} if")


def test_a_sidecar_of_another_size_than_the_checkpoint_records_is_not_read() -> None:
    log = story().checkpoint(uuid=UUID, sidecars=2)
    log.store.put(f"{LOG}/_sidecars/6 1.parquet", checkpoint_parquet([], stats="both"))
    broken(log, "its sidecar 6 1.parquet has", "bytes, but the checkpoint records")
