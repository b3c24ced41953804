"""What is to be verified is forgotten when it was, or when it was found to be broken, and by nothing else."""

import contextlib
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import pytest
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from lakehouse.base.errors import Broken, Refused, Transient
from lakehouse.compact import verify
from lakehouse.compact.verify import Expected, expect_verification, expected, settled
from lakehouse.lake.lake import Lake
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.memory_store import MemoryStore

KEY = "bronze/events"


@pytest.fixture
def memory(memory: Lake) -> Lake:
    """A lake in memory, in which a compaction is to be verified."""
    expect_verification(memory, KEY, "a mark", version=1)
    return memory


def compacted(lake: Lake) -> LogBuilder:
    """The table, of which version 2 is that compaction."""
    log = LogBuilder(lake.store, KEY).create().append([("a", 1), ("b", 1)])
    marked = json.dumps({"compaction": "a mark"})
    return log.optimize(["a", "b"], into=("c", 2), user_metadata=marked)


def raised(found: Broken | None) -> contextlib.AbstractContextManager[object]:
    return pytest.raises(Broken, match=str(found)) if found else contextlib.nullcontext()


def look_again(lake: Lake) -> None:
    """The next run's verification, in which nothing runs."""
    verify.verify_left(lake, lambda: cast("Any", None), KEY)


VERDICTS = [
    (Broken("rows differ"), True),
    (Transient("the server is gone"), False),
    (KeyboardInterrupt(), False),
]


@pytest.mark.parametrize(("error", "is_forgotten"), VERDICTS)
def test_only_a_verdict_settles_it(memory: Lake, error: BaseException, is_forgotten: bool) -> None:
    with pytest.raises(type(error)), settled(memory, KEY, "a mark"):
        raise error
    assert (expected(memory, KEY) is None) == is_forgotten
    with settled(memory, KEY, "a mark"):
        pass
    assert expected(memory, KEY) is None


@pytest.mark.parametrize("found", [None, Broken("rows differ")])
def test_what_another_compaction_committed_meanwhile_is_still_to_be_verified(
    memory: Lake, found: Broken | None
) -> None:
    with raised(found), settled(memory, KEY, "a mark"):
        expect_verification(memory, KEY, "another mark", version=2)
        if found:
            raise found
    assert expected(memory, KEY) == Expected("another mark", 2)


@pytest.mark.parametrize("found", [None, Broken("rows differ")])
def test_a_note_that_stays_changes_no_finding(memory: Lake, found: Broken | None) -> None:
    class NothingGoes(MemoryStore):
        def delete(self, names: Iterable[str]) -> None:
            raise Transient(f"S3 answers SlowDown (503) of {sorted(names)}")

    lake = replace(memory, store=NothingGoes())
    expect_verification(lake, KEY, "a mark", version=1)
    with raised(found), settled(lake, KEY, "a mark"):
        if found:
            raise found
    assert expected(lake, KEY) is not None


CONDITIONS = [
    *((each, True) for each in ("FAILED_READ_FILE.FILE_NOT_EXIST", "PATH_NOT_FOUND")),
    ("DELTA_VERSION_NOT_FOUND", True),
    *((each, False) for each in ("FAILED_READ_FILE.NO_HINT", "OPERATION_CANCELED", None)),
]


@pytest.mark.parametrize(("condition", "is_final"), CONDITIONS)
def test_only_what_is_gone_for_good_ends_the_comparison_for_good(
    memory: Lake, monkeypatch: pytest.MonkeyPatch, condition: str | None, is_final: bool
) -> None:
    compacted(memory)
    error = SparkConnectGrpcException("the server says so", errorClass=condition)

    def fails(*_: object) -> int:
        raise error

    monkeypatch.setattr(verify, "verify", fails)
    with pytest.raises(Exception) as raised:  # noqa: PT011  # which one is the question
        look_again(memory)
    assert (isinstance(raised.value, Broken), expected(memory, KEY) is None) == (is_final, is_final)
    assert is_final or raised.value is error


def test_without_a_session_the_rows_are_still_to_be_compared(memory: Lake) -> None:
    compacted(memory)

    def no_java() -> Any:
        raise Refused("Spark needs Java")

    with pytest.raises(Refused, match="Java"):
        verify.verify_left(memory, no_java, KEY)
    assert expected(memory, KEY) == Expected("a mark", 1)


def test_a_compaction_is_compared_however_many_commits_came_after_it(
    memory: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = compacted(memory)
    for number in range(600):
        log.append([(f"more-{number}", 1)])
    compared: list[int] = []

    def compare(*given: Any) -> None:
        compared.append(given[4].version)

    monkeypatch.setattr(verify, "verify", compare)
    look_again(memory)
    assert compared == [2] and expected(memory, KEY) is None


@pytest.mark.parametrize(("forgotten", "is_told"), [(2, False), (3, True)])
def test_a_forgotten_commit_is_reported_once(memory: Lake, forgotten: int, is_told: bool) -> None:
    log = LogBuilder(memory.store, KEY).create()
    for number in range(5):
        log.append([(f"more-{number}", 1)])
    log.checkpoint().forget_before(forgotten)
    told = "began at version 1 ended before it compared the rows, and the log no longer shows whether it committed"
    with pytest.raises(Broken, match=told) if is_told else contextlib.nullcontext():
        look_again(memory)
    assert expected(memory, KEY) is None


@pytest.mark.parametrize("goes", ["before", "while it is compared", "log with it"])
def test_what_lies_on_a_disk_that_is_away_is_still_to_be_verified(
    memory: Lake, monkeypatch: pytest.MonkeyPatch, goes: str
) -> None:
    compacted(memory)
    log = [file.name for file in memory.store.list(f"{KEY}/_delta_log")]

    def fails(*_: object) -> int:
        memory.store.delete(log)
        raise SparkConnectGrpcException("the server says so", errorClass="PATH_NOT_FOUND")

    def is_refused(*_: object) -> int:
        monkeypatch.setattr(Lake, "facts", is_refused)
        raise Refused("S3 answers ExpiredToken (403)")

    monkeypatch.setattr(verify, "verify", is_refused if goes == "log with it" else fails)
    if goes == "before":
        memory.store.delete(log)
        look_again(memory)
    else:
        with pytest.raises(Refused if goes == "log with it" else SparkConnectGrpcException):
            look_again(memory)
    assert expected(memory, KEY) == Expected("a mark", 1)


def test_a_table_that_was_made_anew_has_nothing_to_compare(memory: Lake) -> None:
    LogBuilder(memory.store, KEY).create()
    look_again(memory)
    assert expected(memory, KEY) is None


def test_another_table_has_nothing_to_verify_and_a_damaged_record_is_told(memory: Lake) -> None:
    assert expected(memory, "bronze/events_too") is None
    memory.store.put(f"_lakehouse/unverified/{KEY}.json", b"{")
    message = r"_lakehouse/unverified/bronze/events.json cannot be read .*, or delete it"
    with pytest.raises(Broken, match=message):
        expected(memory, KEY)


def test_a_commit_that_an_earlier_run_undid_is_told_once_and_not_undone_again(
    memory: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    compacted(memory).commit("RESTORE", user_metadata='{"restored":1}')
    sums = iter([{(): (2, 5)}, {(): (1, 3)}])
    monkeypatch.setattr(verify, "content_sums", lambda *_: next(sums))
    told = "2 rows became 1 rows, .* Nothing is restored, because .* committed after version 2"
    with pytest.raises(Broken, match=told):
        look_again(memory)
    facts = memory.facts(KEY)
    assert facts is not None and facts.snapshot.version == 3
    assert expected(memory, KEY) is None


def test_a_commit_that_was_never_made_is_told_not_at_all(memory: Lake) -> None:
    LogBuilder(memory.store, KEY).create().append([("a", 1), ("b", 1)])
    look_again(memory)
    assert expected(memory, KEY) is None
