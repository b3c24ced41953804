"""A Delta log written like a story, into any store, with no Spark.

    story = LogBuilder(store, "bronze/t").create(partition_by=["d"]).append([("d=1/a", 10), ("d=1/b", 20)])
    story.optimize(["d=1/a", "d=1/b"], into=("d=1/c", 30)).checkpoint()

A file is (path, size), (path, size, rows) or (path, size, statistics); its partition is read from the `name=value` folders of its path.
Commit `v` happens `v` minutes after `START_MS`. Source of every shape: what Delta 4.4.0 writes.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self
from unittest.mock import patch
from urllib.parse import quote, unquote

from lakehouse.delta.log import TableFacts, read_facts, read_log
from lakehouse.delta.snapshot import Snapshot
from lakehouse.store import Store
from lakehouse_tests.checkpoint_parquet import checkpoint_parquet
from lakehouse_tests.memory_store import MemoryStore

START_MS = 1_700_000_000_000
MINUTE_MS = 60_000

type_of_file = tuple[str, int] | tuple[str, int, int | Mapping[str, Any] | None]
type_of_action = Mapping[str, Any]


def add_of(path: str, **fields: Any) -> dict[str, Any]:
    """The action that adds a file of one byte in no partition, but for these fields."""
    return {
        "add": {
            "path": path,
            "partitionValues": {},
            "size": 1,
            "modificationTime": 1,
            "dataChange": True,
            **fields,
        }
    }


def vector_of(
    place: str, cardinality: int = 1, *, storage: str = "u", offset: int | None = 1
) -> dict[str, Any]:
    """A deletion vector as its file's action tells it."""
    return {
        "storageType": storage,
        "pathOrInlineDv": place,
        "offset": offset,
        "sizeInBytes": 34,
        "cardinality": cardinality,
    }


class LogBuilder:
    """A table's log in the making; every method adds one commit, unless it says otherwise, and returns the builder."""

    def __init__(
        self,
        store: Store | None = None,
        key: str = "bronze/t",
        *,
        table_id: str = "00000000-0000-0000-0000-000000000000",
    ) -> None:
        self.store = MemoryStore() if store is None else store
        self.key = key
        self.table_id = table_id
        self.version = -1
        self._vectors = 0
        self._live: dict[str, dict[str, Any]] = {}
        self._removed: dict[tuple[str, str], dict[str, Any]] = {}
        self._single: dict[tuple[str, str], dict[str, Any]] = {}
        self._partition_by: tuple[str, ...] = ()

    def create(
        self,
        *,
        columns: Mapping[str, str] | None = None,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        features: Sequence[str] = (),
        reader_features: Sequence[str] = (),
    ) -> Self:
        """An empty table; without `columns` it has `id` and the partition columns. With features, protocol 3 and 7."""
        self._partition_by = tuple(partition_by)
        types = columns or {"id": "long", **dict.fromkeys(partition_by, "string")}
        fields = [
            {"name": name, "type": type_, "nullable": True, "metadata": {}}
            for name, type_ in types.items()
        ]
        protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
        if features or reader_features:
            protocol = {
                "minReaderVersion": 1,
                "minWriterVersion": 7,
                "writerFeatures": [*reader_features, *features],
            }
        if reader_features:
            protocol |= {"minReaderVersion": 3, "readerFeatures": list(reader_features)}
        return self.commit(
            "CREATE TABLE", {"protocol": protocol}, self._metadata(fields, properties or {})
        )

    def append(
        self,
        files: Iterable[type_of_file],
        *,
        transaction: tuple[str, int] | None = None,
        metrics: Mapping[str, str] | None = None,
    ) -> Self:
        """New rows in new files, under an application's transaction id if one is given."""
        actions: list[type_of_action] = [
            {"add": self._add(file, data_change=True)} for file in files
        ]
        if transaction:
            actions.append(
                {
                    "txn": {
                        "appId": transaction[0],
                        "version": transaction[1],
                        "lastUpdated": self._now_ms(1),
                    }
                }
            )
        return self.commit(
            "WRITE", *actions, parameters={"mode": "Append", "partitionBy": "[]"}, metrics=metrics
        )

    def overwrite(self, files: Iterable[type_of_file]) -> Self:
        """Every file replaced."""
        removes = [self._remove(path, data_change=True) for path in list(self._live)]
        return self.commit(
            "WRITE",
            *removes,
            *({"add": self._add(file, data_change=True)} for file in files),
            parameters={"mode": "Overwrite"},
        )

    def optimize(
        self,
        paths: Iterable[str],
        *,
        into: type_of_file | Sequence[type_of_file],
        user_metadata: str | None = None,
    ) -> Self:
        """Files merged into others, with no change of data."""
        outputs = [into] if isinstance(into[0], str) else into
        removes = [self._remove(path, data_change=False) for path in paths]
        adds = [{"add": self._add(file, data_change=False)} for file in outputs]  # type: ignore[arg-type]
        return self.commit("OPTIMIZE", *removes, *adds, user_metadata=user_metadata)

    def delete(self, paths: Iterable[str]) -> Self:
        """Whole files removed with their rows."""
        return self.commit("DELETE", *(self._remove(path, data_change=True) for path in paths))

    def rewrite(self, paths: Iterable[str], into: Iterable[type_of_file]) -> Self:
        """Files replaced by others with changed rows, as a MERGE does it."""
        removes = [self._remove(path, data_change=True) for path in paths]
        return self.commit(
            "MERGE", *removes, *({"add": self._add(file, data_change=True)} for file in into)
        )

    def vectors(self) -> set[str]:
        """The live files that have a deletion vector."""
        return {path for path, add in self._live.items() if "deletionVector" in add}

    def delete_rows(self, rows: Mapping[str, int]) -> Self:
        """Rows of files marked deleted: each file gets a new deletion vector of that many rows in all."""
        actions: list[type_of_action] = []
        for path, cardinality in rows.items():
            self._vectors += 1
            add = {
                **self._live[path],
                "deletionVector": vector_of(f"{self._vectors:020}", cardinality),
                "dataChange": True,
            }
            actions += [self._remove(path, data_change=True), {"add": add}]
        return self.commit("DELETE", *actions)

    def readd(self, paths: Iterable[str]) -> Self:
        """The same files added again without data change, as a backfill of row ids or statistics does."""
        return self.commit(
            "ROW TRACKING BACKFILL",
            *({"add": {**self._live[path], "dataChange": False}} for path in paths),
        )

    def set_properties(self, **properties: str) -> Self:
        """New table properties, in addition."""
        old = self._single["metaData", ""]
        configuration = {
            **old["configuration"],
            **{name.replace("__", "."): value for name, value in properties.items()},
        }
        return self.commit(
            "SET TBLPROPERTIES", {"metaData": {**old, "configuration": configuration}}
        )

    def commit(
        self,
        operation: str,
        *actions: type_of_action,
        parameters: Mapping[str, Any] | None = None,
        user_metadata: str | None = None,
        committed_ms: int | None = None,
        metrics: Mapping[str, str] | None = None,
    ) -> Self:
        """Any actions at all."""
        self.version += 1
        timestamp = self._now_ms() if committed_ms is None else committed_ms
        about = {"operationParameters": parameters or {}, "operationMetrics": metrics or {}}
        info: dict[str, Any] = {"timestamp": timestamp, "operation": operation, **about}
        if user_metadata is not None:
            info["userMetadata"] = user_metadata
        lines = [{"commitInfo": info}, *actions]
        for action in lines:
            for kind, value in action.items():
                self._take(kind, dict(value))
        self.store.put(
            self.commit_name(self.version),
            "\n".join(json.dumps(line, ensure_ascii=False) for line in lines).encode(),
        )
        return self

    def checkpoint(
        self,
        *,
        parts: int = 1,
        stats: str = "both",
        sidecars: int = 0,
        uuid: str = "",
        json_file: bool = False,
        tombstones: bool = True,
    ) -> Self:
        """A checkpoint of the newest version, which is no commit. `stats`: both, json, struct or none; `sidecars`: V2, with so many.

        Without `tombstones` it drops them, as Delta does with those that are past the retention.
        """
        name = f"{self.key}/_delta_log/{self.version:020}.checkpoint"
        if not tombstones:
            self._removed.clear()
        rows = self._checkpoint_rows()
        if uuid:
            name += f".{uuid}"
        if sidecars:
            rows = self._move_to_sidecars(rows, count=sidecars, stats=stats)
        if json_file:
            kept = [{"checkpointMetadata": {"version": self.version}}, *rows]
            self.store.put(f"{name}.json", "\n".join(json.dumps(row) for row in kept).encode())
            return self
        for part in range(parts):
            part_name = (
                f"{name}.{part + 1:010}.{parts:010}.parquet" if parts > 1 else f"{name}.parquet"
            )
            self.store.put(part_name, checkpoint_parquet(rows[part::parts], stats=stats))
        return self

    def forget_before(self, version: int) -> Self:
        """The commits before `version` cleaned up, as log retention does; no commit."""
        self.store.delete([self.commit_name(number) for number in range(version)])
        return self

    def lose(self, version: int) -> Self:
        """One commit file lost; no commit."""
        self.store.delete([self.commit_name(version)])
        return self

    def store_data(self) -> Self:
        """The live files put into the store, each of its own size; no commit."""
        for add in self._live.values():
            self.store.put(f"{self.key}/{unquote(add['path'])}", b"x" * add["size"])
        return self

    def facts(self, *, newest_commits: int = 500) -> TableFacts:
        """What the log reader makes of the log."""
        with patch.object(read_log, "NEWEST_COMMITS", newest_commits):
            facts = read_facts(self.store, self.key, uri=f"/lake/{self.key}")
        assert facts is not None
        return facts

    def snapshot(self) -> Snapshot:
        """The layout of `facts`."""
        return self.facts().snapshot

    def commit_name(self, version: int) -> str:
        """The name of a commit's file in the store."""
        return f"{self.key}/_delta_log/{version:020}.json"

    def _now_ms(self, ahead: int = 0) -> int:
        return START_MS + (self.version + ahead) * MINUTE_MS

    def _metadata(
        self, fields: Sequence[Mapping[str, Any]], properties: Mapping[str, str]
    ) -> type_of_action:
        return {
            "metaData": {
                "id": self.table_id,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": list(self._partition_by),
                "configuration": dict(properties),
                "createdTime": START_MS,
            }
        }

    def _add(self, file: type_of_file, *, data_change: bool) -> dict[str, Any]:
        path, size, *rows = file
        folders = dict(part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)
        values = {
            name: unquote(unquote(folders[name])) for name in self._partition_by if name in folders
        }
        add: dict[str, Any] = {
            "path": path,
            "partitionValues": {
                name: None if value == "__HIVE_DEFAULT_PARTITION__" else value
                for name, value in values.items()
            },
            "size": size,
            "modificationTime": self._now_ms(1),
            "dataChange": data_change,
        }
        if rows != [None]:
            told = (
                rows[0]
                if rows and isinstance(rows[0], Mapping)
                else {"numRecords": rows[0] if rows else size}
            )
            add["stats"] = json.dumps(told, separators=(",", ":"))
        return add

    def _remove(self, path: str, *, data_change: bool) -> type_of_action:
        live = self._live[path]
        remove = {
            "path": path,
            "deletionTimestamp": self._now_ms(1),
            "dataChange": data_change,
            "extendedFileMetadata": True,
            "partitionValues": live["partitionValues"],
            "size": live["size"],
        }
        return {
            "remove": remove
            | ({"deletionVector": live["deletionVector"]} if "deletionVector" in live else {})
        }

    def _take(self, kind: str, value: dict[str, Any]) -> None:
        identity = (value.get("path", ""), json.dumps(value.get("deletionVector")))
        if kind == "add":
            self._live[value["path"]] = value
            self._removed.pop(identity, None)
        elif kind == "remove":
            self._live.pop(value["path"], None)
            self._removed[identity] = value
        elif kind != "commitInfo":
            self._single[kind, value.get("appId") or value.get("domain") or ""] = value

    def _checkpoint_rows(self) -> list[dict[str, Any]]:
        single = [
            {kind: value} for (kind, _), value in self._single.items() if not value.get("removed")
        ]
        adds = [{"add": {**add, "dataChange": False}} for add in self._live.values()]
        return [
            *single,
            *adds,
            *({"remove": {**remove, "dataChange": False}} for remove in self._removed.values()),
        ]

    def _move_to_sidecars(
        self, rows: Sequence[dict[str, Any]], *, count: int, stats: str
    ) -> list[dict[str, Any]]:
        files = [row for row in rows if row.keys() & {"add", "remove"}]
        kept = [row for row in rows if not row.keys() & {"add", "remove"}]
        for number in range(count):
            name = f"{self.version} {number}.parquet"
            data = checkpoint_parquet(files[number::count], stats=stats)
            self.store.put(f"{self.key}/_delta_log/_sidecars/{name}", data)
            kept.append(
                {
                    "sidecar": {
                        "path": quote(name),
                        "sizeInBytes": len(data),
                        "modificationTime": START_MS,
                    }
                }
            )
        return kept
