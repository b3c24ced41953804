"""60 compactions at once with 60 appends lose nothing on S3, and a bad commit there is undone."""

import json
import threading
from collections import Counter
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from lakehouse.base.errors import Broken
from lakehouse.compact import deltalake_run
from lakehouse.compact.run import compact
from lakehouse.compact.verify import expected
from lakehouse.store import s3
from lakehouse_tests.compact.test_deltalake_run import append_and_compact_at_once
from lakehouse_tests.deltalake_tables import KEY, adopted, contents, lake_with, no_spark, rows
from lakehouse_tests.s3_servers import BUCKET, MINISTACK, s3_server
from lakehouse_tests.silent_server import COMMIT_FAULTS, Fault, faulty_server


@pytest.mark.parametrize("name", ["moto", "ministack"])
def test_sixty_appends_and_sixty_compactions_at_once_lose_nothing_on_s3_whatever_fails(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every third of our requests to commit fails, each time in the next way. No file is left."""
    if name == "ministack" and not MINISTACK.is_dir():
        pytest.skip("make bench installs MiniStack")
    (tmp_path / "home").mkdir()
    planned = cycle(way for fault in COMMIT_FAULTS for way in (None, None, fault))
    faults, in_turn = Counter[Fault | None](), threading.Lock()

    def fault_of(method: str, path: str) -> Fault | None:
        if method != "PUT" or "_delta_log" not in path or ".json" not in path:
            return None
        fault = next(planned)
        faults[fault] += 1
        return fault

    with (
        s3_server(name, tmp_path) as there,
        faulty_server(there["AWS_ENDPOINT_URL"], fault_of, in_turn=in_turn) as ours,
        faulty_server(there["AWS_ENDPOINT_URL"], lambda *_: None, in_turn=in_turn) as theirs,
    ):
        for variable, value in {**there, "AWS_ENDPOINT_URL": ours}.items():
            monkeypatch.setenv(variable, value)
        options = {"AWS_ENDPOINT_URL": theirs, "AWS_ALLOW_HTTP": "true"}
        uri = f"s3://{BUCKET}/warehouse/orders"
        unknown = append_and_compact_at_once(tmp_path, 60, uri=uri, storage_options=options)
        lake = lake_with(adopted(uri), tmp_path / "home")
        facts = lake.facts(KEY)
        assert facts is not None
        known = (*facts.snapshot.files, *facts.snapshot.tombstones)
        names = {file.name for file in lake.store.list(KEY) if file.name.endswith(".parquet")}
    of_log = {f"{KEY}/{file.path}" for file in known}
    left = {each for each in names - of_log if "_delta_log" not in each}
    print(f"{name}: {facts.snapshot.version} versions, faults {faults}, {unknown} unknown outcomes")
    assert faults.keys() == {None, *COMMIT_FAULTS}
    assert (left, expected(lake, KEY)) == (set(), None)


def test_a_compaction_on_s3_that_lost_a_row_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is lost from the file that deltalake wrote, before it is uploaded in parts."""
    (tmp_path / "home").mkdir()
    with s3_server("moto", tmp_path) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(s3, "_PART_BYTES", 5 * 1024 * 1024)
        options = {**environment, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
        uri = f"s3://{BUCKET}/warehouse/orders"
        for place in range(4):
            table = rows(Random(place), 60_000, place * 60_000)
            write_deltalake(uri, table, mode="append", storage_options=options)
        lake = lake_with(adopted(uri), tmp_path / "home")
        before = contents(uri, storage_options=options)
        real = deltalake_run._rewrite  # pyright: ignore[reportPrivateUsage]

        def with_a_lost_row(inputs: Any, folder: Path, *more: Any) -> Any:
            actions = real(inputs, folder, *more)
            [add] = [action["add"] for action in actions if "add" in action]
            path = folder / add["path"]
            pq.write_table(pq.read_table(path).slice(1), path)
            add["size"] = path.stat().st_size
            stats = json.loads(add["stats"])
            add["stats"] = json.dumps({**stats, "numRecords": stats["numRecords"] - 1})
            return actions

        monkeypatch.setattr(deltalake_run, "_rewrite", with_a_lost_row)
        with pytest.raises(Broken, match="Version 3 is restored"):
            compact(lake, no_spark, adopted(uri))
        assert DeltaTable(uri, storage_options=options).version() == 5
        assert contents(uri, storage_options=options) == before
        assert expected(lake, KEY) is None
        monkeypatch.setattr(deltalake_run, "_rewrite", real)
        outcome = compact(lake, no_spark, adopted(uri))
        assert (outcome.entry.compaction.files_removed, outcome.rows_verified) == (4, 240_000)
        assert outcome.plan.sentence.endswith("; by deltalake")
        assert contents(uri, storage_options=options) == before
