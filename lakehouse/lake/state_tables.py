"""The lake's own Delta tables, written and read without Spark: its operations and its notes.

1. Rows are written as a file of their own. The commit that names the file creates its version only
   if that does not exist, so any number of processes may write.
2. The writer that finds `_MERGED_COUNT` small files (files of any size, if newer rows replace older
   ones) merges them in one commit, which is refused if one of them is no longer live. A day later,
   a writer deletes the files that were merged.

**Safety properties** (tests in `test_state_table.py`)
- Appends and merges at the same time neither lose nor double a row.
- If a file cannot be read, the whole state is unknown, and `Broken` is raised.

`_lakehouse/records` is what the lake notes about its tables. Of each kind, table and key, the
newest row counts. A row without a value deletes the note; both are gone after the next merge.

`_lakehouse/operations` is the lake's history, with a row for each ended operation. Any Delta reader
can query it. A process that is killed between a table's commit and its row leaves no row; the
table's own log still has the commit.
"""

import io
import json
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from operator import itemgetter
from threading import Lock
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Broken, LakehouseError
from lakehouse.base.operation import Figure, Pause, UpkeepOperation, VacuumRecord
from lakehouse.base.text import DAY_MS, Document, printable
from lakehouse.declare.prices import requests_by_class
from lakehouse.declare.table import Table
from lakehouse.delta.log import TableFacts
from lakehouse.delta.snapshot import DataFile, Snapshot
from lakehouse.lake.commits import (
    Actions,
    commit_after_newest,
    commit_info,
    create_version,
    delete_dead_files,
    file_action,
    new_table,
    open_with_deltalake,
    refuse_deleted_rows,
    refuse_unsafe_storage,
    storage_errors,
)
from lakehouse.lake.lake import Lake
from lakehouse.store import Store

_MERGED_COUNT = 64
_SMALL_BYTES = 256 * 1024
# Clocks of two machines may differ by five minutes (`lake.lease.check_clock`).
_CLOCKS_MS = 600_000
_OWN_FILE = re.compile(r"part-[0-9a-f]{32}\.parquet")
TIME = pa.timestamp("us", tz="UTC")
_MILLISECONDS = pa.timestamp("ms", tz="UTC")
# A reader of an older version has a day to finish.
_PROPERTIES = {
    "delta.checkpointInterval": "32",
    "delta.deletedFileRetentionDuration": "interval 1 days",
    "delta.logRetentionDuration": "interval 7 days",
}
_LOG = logging.getLogger(__name__)


# The values of a row by column. Times are in milliseconds since 1970.
Rows = list[Document]


class _MergedByAnotherError(Exception):
    pass


@dataclass(slots=True)
class _Known:
    """What this process has read from one lake: the log, and the rows by live file and table.

    `looked` is when the newest look for a newer version began (`time.monotonic`).
    """

    facts: TableFacts | None = None
    rows: dict[str, dict[str, Rows]] = field(default_factory=dict[str, Any])
    looked: float = -1.0
    lock: Any = field(default_factory=Lock)


class StateTable:
    """The table `key` of a lake. Its `schema` has strings, numbers, times (`TIME`) and maps.

    Each row is about one table of the lake, which the column `table` names. `current` selects, from
    all rows, those that no newer row replaces; by default, no row replaces another one.
    """

    def __init__(
        self, key: str, schema: pa.Schema, *, current: Callable[[Rows], Rows] | None = None
    ) -> None:
        self._key = key
        self._schema = schema
        self._current = current
        self._known = WeakKeyDictionary[Store, _Known]()

    def read(self, lake: Lake, table_key: str | None = None, *, written_since_ms: int = 0) -> Rows:
        """The rows, without files from before a time; only those about one table, if given.

        If nothing has changed, this costs two requests, which calls at the same time share.

        Raises:
            Broken: a file or the log cannot be read, or another program has deleted rows.
        """
        asked = time.monotonic()
        known = self._known.setdefault(lake.store, _Known())
        with known.lock:
            if known.looked <= asked:
                self._refresh(lake, known)
            files = () if known.facts is None else known.facts.snapshot.files
            recent = [each for each in files if each.modified_ms >= written_since_ms - _CLOCKS_MS]
            return self._rows_in(lake, known, recent, table_key)

    def append(self, lake: Lake, rows: Rows) -> None:
        """Adds rows in one commit.

        Raises:
            Refused: the storage does not honour conditional creates.
            LakehouseError: they could not be added. They may be there nevertheless if the storage's
                answer was lost.
        """
        refuse_unsafe_storage(lake, asked=self._key)
        known = self._known.setdefault(lake.store, _Known())
        with known.lock:
            self._refresh(lake, known)
            facts = known.facts or self._create(lake)
        self._commit(lake, facts.snapshot, rows)
        if len(self._mergeable(facts)) >= _MERGED_COUNT:
            with suppress(_MergedByAnotherError, LakehouseError):
                self._merge(lake)

    def _create(self, lake: Lake) -> TableFacts:
        shape = new_table(self._schema, properties=_PROPERTIES)
        actions = [commit_info("CREATE TABLE", -1, {}), *shape]
        create_version(lake, self._key, 0, actions)
        return lake.existing_facts(self._key)

    def _refresh(self, lake: Lake, known: _Known) -> None:
        """Reads the log again if it has a newer version, and forgets files that are not live."""
        looked = time.monotonic()
        newest = None if known.facts is None else known.facts.newest
        if lake.has_moved_on(self._key, newest):
            known.facts = lake.facts(self._key)
            files = () if known.facts is None else known.facts.snapshot.files
            live = {file.path for file in files}
            known.rows = {path: rows for path, rows in known.rows.items() if path in live}
        known.looked = looked

    def _rows_in(
        self, lake: Lake, known: _Known, files: Sequence[DataFile], table_key: str | None = None
    ) -> Rows:
        """The rows in some files, or those about one table. Files that are not known are read."""
        unread = [file for file in files if file.path not in known.rows]
        refuse_deleted_rows(self._key, unread)
        names = [f"{self._key}/{file.path}" for file in unread]
        try:
            for file, data in zip(unread, lake.store.read_many(names), strict=True):
                table = pq.ParquetFile(io.BytesIO(data)).read().select(self._schema.names)
                by_table = dict[str, Rows]()
                for row in _rows_of(table):
                    by_table.setdefault(row["table"], []).append(row)
                known.rows[file.path] = by_table
        except (FileNotFoundError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
            raise Broken(
                f"{self._key}: a file cannot be read ({type(error).__name__}: {error}). Restore it "
                "from a copy of the lake, or use RESTORE to return to an earlier version"
            ) from error
        by_table = [known.rows[file.path] for file in files]
        if table_key is not None:
            return [row for rows in by_table for row in rows.get(table_key, ())]
        return [row for rows in by_table for each in rows.values() for row in each]

    def _merge(self, lake: Lake) -> None:
        """Replaces the mergeable files by one, and deletes those that earlier merges replaced."""
        facts = lake.existing_facts(self._key)
        files = self._mergeable(facts)
        if len(files) < _MERGED_COUNT:
            return
        rows = self._rows_in(lake, _Known(), files)
        if self._current is not None:
            rows = self._current(rows)
        self._commit(lake, facts.snapshot, rows, replaced=files)
        delete_dead_files(lake, self._key, now_ms() - DAY_MS, _OWN_FILE)
        self._write_checkpoint(lake)

    def _mergeable(self, facts: TableFacts) -> Sequence[DataFile]:
        files = facts.snapshot.files
        if self._current is not None:
            return files
        return [file for file in files if file.size_bytes < _SMALL_BYTES]

    def _commit(
        self, lake: Lake, snapshot: Snapshot, rows: Rows, replaced: Sequence[DataFile] = ()
    ) -> None:
        """Commits a file with these rows, in place of the `replaced` files."""
        buffer = io.BytesIO()
        pq.write_table(_table_of(rows, self._schema), buffer)
        path = f"part-{uuid4().hex}.parquet"
        data = buffer.getvalue()
        replaced_paths = {file.path for file in replaced}
        info = commit_info("OPTIMIZE" if replaced else "WRITE", snapshot.version, {"file": path})
        file = DataFile(path=path, size_bytes=len(data), modified_ms=now_ms(), row_count=len(rows))
        removes = [file_action("remove", each, changes_data=False) for each in replaced]
        actions: Actions = [info, *removes, file_action("add", file, changes_data=not replaced)]

        def check(newest: Snapshot) -> None:
            if not replaced_paths <= {file.path for file in newest.files}:
                raise _MergedByAnotherError

        lake.store.put(f"{self._key}/{path}", data)
        commit_after_newest(lake, snapshot, actions, check)

    def _write_checkpoint(self, lake: Lake) -> None:
        """Writes a checkpoint and deletes expired log files, so that the log stays short."""

        try:
            with storage_errors(f"checkpoint of {self._key}"):
                table = open_with_deltalake(lake, self._key)
                table.create_checkpoint()
                table.cleanup_metadata()
        except Exception as error:  # the next merge tries again
            _LOG.warning("no checkpoint of %s was written: %s", self._key, error)


def _table_of(rows: Rows, schema: pa.Schema) -> pa.Table:
    """The rows as Arrow, by way of JSON: `pyarrow.array` would import pandas, for 0.25 s."""
    if not rows:
        return schema.empty_table()
    maps = [each for each in schema if isinstance(each.type, pa.MapType)]
    parsed = _with_times(schema, pa.int64())
    for each in maps:
        pair = {"key": each.type.key_type, "value": each.type.item_type}
        column = pa.field(each.name, pa.list_(pa.struct(pair)))
        parsed = parsed.set(parsed.get_field_index(each.name), column)
    lines = list[str]()
    for row in rows:
        values = {name: row[name] for name in schema.names}
        for each in maps:
            pairs = values[each.name].items()
            values[each.name] = [{"key": key, "value": value} for key, value in pairs]
        lines.append(json.dumps(values))
    data = "\n".join(lines).encode()
    table = pj.read_json(
        io.BytesIO(data),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=pj.ParseOptions(explicit_schema=parsed),
    )
    for each in maps:
        place = schema.get_field_index(each.name)
        lists = table[each.name].combine_chunks()
        column = pa.MapArray.from_arrays(lists.offsets, *lists.values.flatten())
        table = table.set_column(place, each.name, column)
    return table.cast(_with_times(schema, _MILLISECONDS)).cast(schema)


def _rows_of(table: pa.Table) -> Rows:
    """The rows. Reading a time as an object would import pandas."""
    in_ms = table.cast(_with_times(table.schema, _MILLISECONDS))
    return in_ms.cast(_with_times(table.schema, pa.int64())).to_pylist(maps_as_pydicts="strict")


def _with_times(schema: pa.Schema, kind: pa.DataType) -> pa.Schema:
    """The schema with another type for its times."""
    return pa.schema([each.with_type(kind) if each.type == TIME else each for each in schema])


_NOTE_SCHEMA = pa.schema(
    {
        "kind": "string",
        "table": "string",
        "key": "string",
        "at": TIME,
        "value": "string",
    }
)


def _parsed(text: str, table: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise Broken(
            f"{table}: a value is not JSON ({error}). Use RESTORE to return to an earlier version"
        ) from error


def read_records(lake: Lake, kind: str, table_key: str | None = None) -> dict[tuple[str, str], Any]:
    """The noted values of a kind by table and key; only those of one table, if given.

    Raises as `StateTable.read`.
    """
    rows = [row for row in _NOTES.read(lake, table_key) if row["kind"] == kind]
    return {(row["table"], row["key"]): _parsed(row["value"], RECORDS) for row in _current(rows)}


def put_records(lake: Lake, kind: str, values: Mapping[tuple[str, str], Any]) -> None:
    """Notes values by table and key; `None` deletes. Raises as `StateTable.append`.

    The table is empty for a note about the whole lake. Values are JSON.
    """
    at_ms = now_ms()
    rows = Rows()
    for (table, key), value in values.items():
        text = None if value is None else json.dumps(value)
        rows.append({"kind": kind, "table": table, "key": key, "at": at_ms, "value": text})
    if rows:
        _NOTES.append(lake, rows)


_PAUSE = "pause"


def pause_table(lake: Lake, pause: Pause) -> None:
    """Records a pause, replacing an earlier one."""
    content = asdict(pause)
    del content["table"]
    put_records(lake, _PAUSE, {(pause.table, ""): content})


def resume_table(lake: Lake, table_key: str) -> None:
    """Ends the pause of a table."""
    put_records(lake, _PAUSE, {(table_key, ""): None})


def pauses(lake: Lake, table_key: str | None = None) -> dict[str, Pause]:
    """Every pause by its table, including expired pauses; only that of one table, if given.

    Raises:
        Broken: the lake's records cannot be read.
    """
    noted = read_records(lake, _PAUSE, table_key)
    return {table: Pause(table=table, **value) for (table, _), value in noted.items()}


def pause_of(lake: Lake, table_key: str) -> Pause | None:
    """The pause of one table, even if expired. Raises as `pauses`."""
    return pauses(lake, table_key).get(table_key)


def _current(rows: Rows) -> Rows:
    newest = dict[tuple[str, str, str], Document]()
    for row in sorted(rows, key=itemgetter("at")):
        newest[row["kind"], row["table"], row["key"]] = row
    return [row for row in newest.values() if row["value"] is not None]


RECORDS = "_lakehouse/records"
_NOTES = StateTable(RECORDS, _NOTE_SCHEMA, current=_current)


OPERATIONS = "_lakehouse/operations"
_FIGURES = pa.map_(pa.string(), pa.float64())
_OPERATION_SCHEMA = pa.schema(
    {
        "table": "string",
        "kind": "string",
        "operation_id": "string",
        "started_at": TIME,
        "ended_at": TIME,
        "result": "string",
        "reason": "string",
        "why": "string",
        "run": "string",
        "by_person": "bool",
        "seconds": "float64",
        "vcpu_seconds": "float64",
        "usd": "float64",
        "requests": pa.map_(pa.string(), pa.int64()),
        "predicted": _FIGURES,
        "actual": _FIGURES,
        "detail": "string",
    }
)
# Should include the last vacuum that searched storage (mode INVENTORY or FULL), because its time
# decides whether a new search is due. Otherwise, the next vacuum searches early, which is safe.
_VACUUM_DAYS = 90


def read_operations(
    lake: Lake, table_key: str | None = None, *, kind: str = "", since_ms: int = 0
) -> list[UpkeepOperation]:
    """The operations that ended at `since_ms` or later, in the order of their end.

    Only those of one table and of one kind, if given. Raises as `StateTable.read`.
    """
    rows = [
        row
        for row in _OPERATIONS.read(lake, table_key, written_since_ms=since_ms)
        if row["ended_at"] >= since_ms and kind in ("", row["kind"])
    ]
    operations = list[UpkeepOperation]()
    for row in sorted(rows, key=itemgetter("ended_at")):
        values = dict(row)
        predicted = values.pop("predicted")
        actual = values.pop("actual")
        operations.append(
            UpkeepOperation(
                started_ms=values.pop("started_at"),
                ended_ms=values.pop("ended_at"),
                figures=tuple(Figure(name, predicted[name], actual[name]) for name in predicted),
                detail=_parsed(values.pop("detail"), OPERATIONS),
                **values,
            )
        )
    return operations


def vacuum_records(lake: Lake, table_key: str) -> tuple[VacuumRecord, ...]:
    """The vacuums of a table in the last `_VACUUM_DAYS`, oldest first.

    Records of another version of this program are omitted. If no search for orphans is left, the
    next vacuum searches again.

    Raises:
        Broken: the lake's operations cannot be read.
    """
    since_ms = now_ms() - _VACUUM_DAYS * DAY_MS
    records = list[VacuumRecord]()
    for each in read_operations(lake, table_key, kind="vacuum", since_ms=since_ms):
        with suppress(TypeError):
            records.append(VacuumRecord(**each.detail))
    return tuple(records)


def ended_operation(table: Table, kind: str, seconds: float, **more: Any) -> UpkeepOperation:
    """An operation that took `seconds` and ended now, with its price; `more` are further fields.

    Their `requests`, if any, are part of the price.
    """
    prices = table.prices
    ended_ms = now_ms()
    counts = requests_by_class(more.get("requests", {}))
    return UpkeepOperation(
        table=table.key,
        kind=kind,
        started_ms=ended_ms - int(seconds * 1000),
        ended_ms=ended_ms,
        seconds=seconds,
        vcpu_seconds=seconds * prices.vcpus,
        usd=prices.run_usd(seconds=seconds, get_requests=counts["get"], put_requests=counts["put"]),
        **more,
    )


def record_operation(lake: Lake, operation: UpkeepOperation) -> None:
    """Adds an operation. Raises as `StateTable.append`."""
    same = {name: getattr(operation, name, None) for name in _OPERATION_SCHEMA.names}
    row = same | {
        "started_at": operation.started_ms,
        "ended_at": operation.ended_ms,
        "predicted": {each.name: each.predicted for each in operation.figures},
        "actual": {each.name: each.actual for each in operation.figures},
        # An error may name a file whose name has bytes that are not UTF-8.
        "why": printable(operation.why, keep="\n"),
        "detail": json.dumps(operation.detail),
    }
    _OPERATIONS.append(lake, [row])


def record_if_possible(lake: Lake, operation: UpkeepOperation) -> None:
    """Adds an operation whose outcome must not be hidden by an error of the history."""
    try:
        record_operation(lake, operation)
    except LakehouseError as error:
        _LOG.warning(
            "the %s of %s is not in the lake's history: %s", operation.kind, operation.table, error
        )


_OPERATIONS = StateTable(OPERATIONS, _OPERATION_SCHEMA)
