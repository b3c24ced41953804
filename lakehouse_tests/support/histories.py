"""Random histories of a small table on a disk, with vacuums in between: what each version held is known, and read again after each."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Refused
from lakehouse.base.paths import vector_path
from lakehouse.lake.lake import Lake
from lakehouse.spark import statements
from lakehouse.vacuum.facts import LakeFacts
from lakehouse.vacuum.inventory.run import scan
from lakehouse.vacuum.plan.vacuum import VacuumOutcome
from lakehouse.vacuum.run import vacuum
from lakehouse_tests.support.vacuums import MONTH_SECONDS, data_files, deleted, table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = "bronze/t"
# How often each is drawn, against the others; the order is that of the draw.
OPERATIONS = {"append": 3, "update": 2, "merge": 2, "delete": 3, "optimize": 2}
OPERATIONS |= {"purge": 1, "restore": 2, "vectors": 1, "orphan": 2, "scan": 2}
ODD = (
    "plain.parquet",
    "a b+c%20.parquet",
    "ü€.parquet",
    "deletion_vector_0b4e1d6c-4d0c-4a3f-9a58-0123456789ab.bin",
    "x/y.parquet",
)

type_of_rows = Mapping[int, tuple[int, int]]


@dataclass(slots=True, kw_only=True)
class Log:
    """The commits as the files of the log have them, by version; read by nobody's rules but these."""

    adds: list[set[str]] = field(default_factory=list[set[str]])
    removes: list[dict[str, int]] = field(default_factory=list[dict[str, int]])

    def read(self, folder: Path) -> None:
        """Takes in the commits that are new."""
        while (path := folder / f"{len(self.adds):020}.json").exists():
            adds, removes = set[str](), dict[str, int]()
            for action in map(json.loads, path.read_text().splitlines()):
                if found := action.get("add"):
                    adds |= _files(found)
                if found := action.get("remove"):
                    removed_ms: int = found["deletionTimestamp"]
                    removes |= dict.fromkeys(_files(found), removed_ms)
            self.adds.append(adds)
            self.removes.append(removes)

    def oldest_kept(self, horizon_ms: int) -> int:
        """The first version that can be read if all that was removed before the horizon is gone."""
        oldest = [min(removes.values(), default=horizon_ms) for removes in self.removes]
        gone = [version for version, ms in enumerate(oldest) if ms < horizon_ms]
        return max(gone, default=0)

    def needed(self, since: int) -> set[str]:
        """The files, vectors among them, of the versions from `since` on."""
        live, found = set[str](), set[str]()
        for version, (adds, removes) in enumerate(zip(self.adds, self.removes, strict=True)):
            live = (live - removes.keys()) | adds
            found |= live if version >= since else set()
        return found


class FileHistory:
    """One history of a table, drawn by its seed; `told` is what happened, for whoever has to find out why it failed."""

    def __init__(self, lake: Lake, spark: "SparkSession", seed: int) -> None:
        self.lake, self.spark, self.random = lake, spark, Random(seed)
        self.told: list[str] = [f"seed {seed}"]
        self.log, self.rows, self.known = Log(), dict[int, tuple[int, int]](), list[type_of_rows]()
        self.uri, self.folder = lake.settings.table_uri(KEY), Path(lake.settings.root) / KEY
        self.table, self.oldest, self.deleted = statements.path_table(self.uri), 0, 0
        self.replay_steps: list[int] = []
        self.partitions = self.random.choice((1, 2, 3))
        self.has_fresh_report = False

    def run(self, *, operations: int, vacuums: int) -> int:
        """Everything of it; how many files the vacuums deleted.

        Raises:
            AssertionError: a version within the retention reads otherwise, or a file is gone that one of them needs, or is left.
        """
        self._create()
        pauses = {*self.random.sample(range(operations // 2, operations), vacuums - 1)}
        pauses.add(operations - 1)
        for number in range(operations):
            drawn = self.random.choices([*OPERATIONS], [*OPERATIONS.values()]) if number else []
            self._operate(drawn[0] if drawn else "append")
            if number in pauses:
                self._vacuum()
        return self.deleted

    def _create(self) -> None:
        properties = {
            "delta.enableDeletionVectors": self.random.choice(("true", "false")),
            "delta.enableChangeDataFeed": self.random.choice(("true", "false", "false")),
            "delta.checkpointInterval": str(self.random.choice((2, 3, 5, 100))),
        }
        pairs = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        by = " PARTITIONED BY (part)" if self.partitions > 1 else ""
        self._say(f"create{by} {properties}")
        self.spark.sql(
            f"CREATE TABLE {self.table} (id BIGINT, part INT, value INT) USING delta{by} TBLPROPERTIES ({pairs})"
        )
        self._remember()

    def _operate(self, name: str) -> None:
        getattr(self, f"_{name}")()
        self._remember()
        self.replay_steps.append(now_ms())

    def _append(self) -> None:
        first = self._new_id()
        ids = range(first, first + self.random.randint(1, 6))
        new = {id_: (id_ % self.partitions, 0) for id_ in ids}
        self._say(f"append {min(new)}..{max(new)}")
        self.spark.sql(f"INSERT INTO {self.table} VALUES {_values(new)}")
        self.rows |= new

    def _update(self) -> None:
        modulus, rest = self._some()
        self._say(f"update id % {modulus} = {rest}")
        self.spark.sql(f"UPDATE {self.table} SET value = value + 1 WHERE id % {modulus} = {rest}")
        for id_ in [id_ for id_ in self.rows if id_ % modulus == rest]:
            part, value = self.rows[id_]
            self.rows[id_] = (part, value + 1)

    def _merge(self) -> None:
        ids = [*self.random.sample([*self.rows], min(len(self.rows), 2)), self._new_id()]
        new = {id_: (id_ % self.partitions, self.random.randint(10, 99)) for id_ in ids}
        self._say(f"merge {sorted(new)}")
        self.spark.sql(
            f"MERGE INTO {self.table} t USING (SELECT * FROM VALUES {_values(new)} AS v(id, part, value)) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET value = s.value WHEN NOT MATCHED THEN INSERT *"
        )
        self.rows |= new

    def _delete(self) -> None:
        modulus, rest = self._some()
        condition = f"id % {modulus} = {rest}"
        goes = {id_ for id_ in self.rows if id_ % modulus == rest}
        if self.random.random() < 0.4:
            part = self.random.randrange(self.partitions)
            condition = f"part = {part}"
            goes = {id_ for id_, (own, _) in self.rows.items() if own == part}
        self._say(f"delete {condition}")
        self.spark.sql(f"DELETE FROM {self.table} WHERE {condition}")
        self.rows = {id_: row for id_, row in self.rows.items() if id_ not in goes}

    def _optimize(self) -> None:
        self._say("optimize")
        self.spark.sql(f"OPTIMIZE {self.table}")

    def _purge(self) -> None:
        self._say("purge")
        self.spark.sql(f"REORG TABLE {self.table} APPLY (PURGE)")

    def _vectors(self) -> None:
        self._say("deletion vectors on")
        self.spark.sql(
            f"ALTER TABLE {self.table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
        )

    def _restore(self) -> None:
        version = self.random.randint(self.oldest, len(self.known) - 1)
        self._say(f"restore {version}")
        self.spark.sql(f"RESTORE TABLE delta.`{self.uri}` TO VERSION AS OF {version}")
        self.rows = dict(self.known[version])

    def _orphan(self) -> None:
        folder = f"part={self.random.randrange(self.partitions)}/" if self.partitions > 1 else ""
        name = f"{folder}{self.random.randrange(1_000)}-{self.random.choice(ODD)}"
        old = self.random.random() < 0.7
        self._say(f"orphan {name}{' of long ago' if old else ''}")
        self.lake.store.put(f"{KEY}/{name}", b"orphan")
        if old:
            seconds = now_ms() / 1_000 - 3 * MONTH_SECONDS
            os.utime(self.folder / name, (seconds, seconds))

    def _scan(self) -> None:
        self._say("scan")
        scan(self.lake, now_ms=now_ms())
        self.has_fresh_report = True

    def _vacuum(self) -> None:
        """One vacuum; then every version that its retention keeps is read, and storage looked through."""
        kept_ms = self._set_retention()
        mode = self.random.choice(("LITE", "INVENTORY", "FULL", None))
        declared = table_of(KEY)
        before = data_files(self.lake)
        if mode == "INVENTORY" and self.random.random() < 0.7:
            self._scan()
        self._say(f"vacuum {mode}, retention {kept_ms} ms")
        facts = LakeFacts(self.lake, [declared])
        try:
            outcome = vacuum(facts, lambda: self.spark, declared, mode=mode)
        except Refused as error:
            # Without a scan since the last vacuum, there is no report that INVENTORY may use.
            if mode != "INVENTORY" or self.has_fresh_report:
                raise
            self._say(f"refused: {error}; FULL then")
            facts = LakeFacts(self.lake, [declared])
            outcome = vacuum(facts, lambda: self.spark, declared, mode="FULL")
        self.has_fresh_report = False
        self._remember()
        self._check(outcome, before)

    def _set_retention(self) -> int:
        """All past, what was removed before some moment past, or only what is months old past; in milliseconds."""
        began = now_ms()
        moments = [began - self.random.choice(self.replay_steps) for _ in range(2)]
        choices = (1, *moments, 7 * 86_400_000)
        kept_ms = max(1, self.random.choice(choices))
        self.spark.sql(
            f"ALTER TABLE {self.table} SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval {kept_ms} milliseconds')"
        )
        self._remember()
        return kept_ms

    def _check(self, outcome: VacuumOutcome, before: set[str]) -> None:
        horizon_ms, after = outcome.plan.horizon_ms, data_files(self.lake)
        self.oldest = max(self.oldest, self.log.oldest_kept(horizon_ms))
        needed, gone = self.log.needed(self.oldest), before - after
        self._say(
            f"{outcome.plan.mode}: {len(gone)} file(s) gone, versions {self.oldest} to {len(self.known) - 1} kept"
        )
        assert not gone & needed, self.story()
        assert needed <= after, self.story()
        planned = outcome.plan.file_count - len(outcome.spared)
        assert (outcome.failed, deleted(outcome)) == ({}, planned), self.story()
        if outcome.plan.mode == "FULL":
            left = {name for name in after - needed if name.endswith(".parquet")}
            assert not {name for name in left if self._is_past(name, horizon_ms)}, self.story()
        known = dict(enumerate(self.known[self.oldest :], self.oldest))
        assert self._read(range(self.oldest, len(self.known))) == known, self.story()
        self.deleted += len(gone)

    def _is_past(self, name: str, horizon_ms: int) -> bool:
        removed_ms = [ms for removes in self.log.removes if (ms := removes.get(name)) is not None]
        modified_ms = (self.folder / name).stat().st_mtime_ns // 1_000_000
        return modified_ms < horizon_ms and all(ms < horizon_ms for ms in removed_ms)

    def _read(self, versions: range) -> dict[int, type_of_rows]:
        """The rows of these versions: of all by deltalake, and of the first and the last by Spark, too.

        Spark takes a second for each version, which it has to put together first.
        """
        found = {version: self._rows_of(self._by_deltalake(version)) for version in versions}
        for version in {versions[0], versions[-1]}:
            query = f"SELECT id, part, value FROM {self.table} VERSION AS OF {version}"
            assert self._rows_of(self.spark.sql(query).collect()) == found[version], self.story()
        return found

    def _by_deltalake(self, version: int) -> Iterable[Sequence[int]]:
        table = DeltaTable(self.uri, version=version)
        rows = QueryBuilder().register("t", table).execute("SELECT id, part, value FROM t")
        return zip(*(column.to_pylist() for column in pa.table(rows).columns), strict=True)

    def _rows_of(self, rows: Iterable[Sequence[int]]) -> type_of_rows:
        found = dict[int, tuple[int, int]]()
        for id_, part, value in rows:
            assert id_ not in found, self.story()
            found[id_] = (part, value)
        return found

    def _new_id(self) -> int:
        return max((id_ for rows in self.known for id_ in rows), default=-1) + 1

    def _some(self) -> tuple[int, int]:
        modulus = self.random.randint(2, 5)
        return modulus, self.random.randrange(modulus)

    def _remember(self) -> None:
        """The rows of now for every version that the log got since."""
        self.log.read(self.folder / "_delta_log")
        self.known += [dict(self.rows)] * (len(self.log.adds) - len(self.known))

    def _say(self, what: str) -> None:
        self.told.append(what)

    def story(self) -> str:
        """All of it so far."""
        return "\n".join(self.told)


def _values(rows: type_of_rows) -> str:
    return ", ".join(f"({id_}, {part}, {value})" for id_, (part, value) in rows.items())


def _files(action: Mapping[str, Any]) -> set[str]:
    """The files that an action names, relative to the table: its path, and that of its vector."""
    vector = action.get("deletionVector")
    # Without the sign at its end a name that ends like an offset is cut.
    name = vector and vector_path(f"{vector['storageType']}{vector['pathOrInlineDv']}@")
    return {unquote(action["path"])} | ({name} if name else set())
