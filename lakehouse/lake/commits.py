"""Commits without Spark, and the refusal to write where a commit could overwrite another one.

A conditional commit creates its version only if that version does not exist, so any number of
drivers and of other programs may write to one table. A write is refused unless:

1. The storage must honour a conditional create (`If-None-Match: *` on S3, link(2) on a disk). Each
   process tests a bucket before its first write there.
2. Spark must commit through a log store that uses it. The servers and drivers of this program do.
   Other Connect servers are asked. With LAKEHOUSE_LOG_STORE=platform nothing is asked: the
   platform that runs the server commits by a service of its own.

Tables are opened with deltalake, too, which needs neither Spark nor Java: after our own commits, it
writes the checkpoints.

Source: delta-io/delta v4.4.0, S3SingleDriverLogStore and HDFSLogStore: they check for the version,
then write or rename over it.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote
from uuid import uuid4

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Broken, Refused, Transient
from lakehouse.base.settings import s3_endpoint, s3_region
from lakehouse.base.text import Document
from lakehouse.delta.protocol import checkpoint_interval
from lakehouse.delta.snapshot import DataFile, Snapshot, TableFacts
from lakehouse.lake.lake import Lake
from lakehouse.spark.server.log_store import is_conditional, log_store_setting
from lakehouse.store import S3Store, store_at
from lakehouse.store.s3 import TAKEN, s3_place

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession

# The buckets, with their endpoints, that this process has tested already.
_honouring = set[tuple[str, str]]()


def refuse_unsafe_commits(lake: Lake, spark: "SparkSession", table_key: str, *, asked: str) -> None:
    """Refuses a write by Spark that could overwrite a commit; `asked` names the operation.

    Raises:
        Refused: the table's storage or the Spark server does not make conditional commits.
    """
    if lake.settings.log_store == "platform":
        return
    refuse_unsafe_storage(lake, table_key, asked=asked)
    setting = log_store_setting("s3a" if lake.on_s3(table_key) else "file")
    if not is_conditional(spark.conf.get(setting, "") or ""):
        raise Refused(
            f"{asked}: Spark's commits to {lake.table_uri(table_key)} are not conditional, so they "
            f"could overwrite commits of other programs. Start the Spark server with {setting} and "
            "the jar of this program's log store (docs/clusters.md). If the platform that runs the "
            "server makes commits safe by itself, use LAKEHOUSE_LOG_STORE=platform"
        )


def refuse_unsafe_storage(lake: Lake, table_key: str | None = None, *, asked: str) -> None:
    """Refuses to write to a table, or to the lake, if its bucket ignores conditional creates.

    Spark is not needed. Each process tests a bucket once, with an object that an adopted table
    keeps in its log's folder only during the test.
    """
    place = s3_place(lake.store, table_key or "")
    if place is None:
        return
    store, folder = place
    bucket = (s3_endpoint(os.environ) or "AWS", store.bucket)
    if bucket in _honouring:
        return
    is_foreign = table_key in lake.elsewhere
    name = f"{folder}/_delta_log/_lakehouse_taken".lstrip("/") if is_foreign else TAKEN
    is_safe = store.honours_conditions(name) and store.completes_conditionally(name)
    if is_foreign:
        store.delete([name])
    if not is_safe:
        raise Refused(
            f"{asked}: the bucket {store.bucket} ignores If-None-Match, so a commit could"
            " overwrite another one. Use AWS S3, or an S3 server that honours conditional writes"
        )
    _honouring.add(bucket)


Actions = list[Document]
# After each version that another writer created first, the log is read again.
_VERSIONS_TRIED = 50
_NONE: Mapping[str, str] = {}
PLAIN_PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}


def commit_info(operation: str, snapshot_version: int, metadata: Mapping[str, Any]) -> Document:
    """The `commitInfo` action of a commit of ours; `metadata` becomes its userMetadata."""
    return {
        "commitInfo": {
            "timestamp": now_ms(),
            "operation": operation,
            "operationParameters": {},
            "readVersion": snapshot_version,
            "isolationLevel": "Serializable",
            "isBlindAppend": False,
            "engineInfo": "lakehouse",
            "userMetadata": json.dumps(metadata),
        }
    }


# Types by the names of Arrow's. deltalake knows all of them, but takes a third of a second to load.
_LOG_TYPES = {
    "string": "string",
    "int64": "long",
    "bool": "boolean",
    "double": "double",
    "timestamp[us, tz=UTC]": "timestamp",
}


def _log_type(arrow: "pa.DataType") -> str | Document:
    """The type of a column in a table's log."""
    if str(arrow) in _LOG_TYPES:
        return _LOG_TYPES[str(arrow)]
    entries: Any = arrow
    return {
        "type": "map",
        "keyType": _log_type(entries.key_type),
        "valueType": _log_type(entries.item_type),
        "valueContainsNull": True,
    }


def new_table(
    columns: "pa.Schema",
    *,
    partition_by: Iterable[str] = (),
    properties: Mapping[str, str] = _NONE,
) -> Actions:
    """The actions that make a table with these columns."""
    fields = [
        {"name": each.name, "type": _log_type(each.type), "nullable": True, "metadata": {}}
        for each in columns
    ]
    metadata = {
        "id": str(uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [*partition_by],
        "configuration": {**properties},
        "createdTime": now_ms(),
    }
    return [{"protocol": PLAIN_PROTOCOL}, {"metaData": metadata}]


def file_action(
    kind: Literal["add", "remove"],
    file: DataFile,
    physical_names: Mapping[str, str] = _NONE,
    *,
    changes_data: bool = True,
) -> Document:
    """The action that adds a file, or removes a file without deleted rows now.

    `physical_names` are those of the table's columns, if mapped.
    """
    action = {
        "path": file.path,
        "partitionValues": {physical_names.get(name, name): text for name, text in file.partition},
        "size": file.size_bytes,
        "dataChange": changes_data,
    }
    if kind == "remove":
        return {kind: action | {"deletionTimestamp": now_ms(), "extendedFileMetadata": True}}
    statistics = {} if file.row_count is None else {"numRecords": file.row_count}
    more = {"modificationTime": file.modified_ms, "stats": json.dumps(statistics)}
    return {kind: action | more}


def file_actions(
    kind: Literal["add", "remove"], files: Iterable[DataFile], snapshot: Snapshot
) -> Actions:
    """The actions that add or remove files of this snapshot of a table."""
    return [file_action(kind, file, snapshot.physical_names) for file in files]


def transaction_action(app_id: str, version: int) -> Document:
    """The action that records a version of an application in the table's log."""
    return {"txn": {"appId": app_id, "version": version, "lastUpdated": now_ms()}}


def refuse_deleted_rows(key: str, files: Iterable[DataFile]) -> None:
    """Raises `Broken` if deletion vectors hide rows of files that only this program writes."""
    for file in files:
        if file.deletion_vector is not None:
            raise Broken(
                f"{key}: another program has deleted rows of {file.path}. Use RESTORE to return to "
                "the version before that deletion"
            )


def create_version(lake: Lake, key: str, version: int, actions: Actions) -> bool:
    """Creates a version of a table unless it exists; returns whether this call created it.

    In the folder of a table of other programs, the object that tests S3's conditional writes is
    deleted afterwards. The lake's own stays, because each process uses it.
    """
    store, name = lake.store.place_of(f"{key}/_delta_log/{version:020}.json")
    data = encoded(actions)
    if key not in lake.elsewhere or not isinstance(store, S3Store):
        return store.put_if_absent(name, data)
    # The credentials may only allow writes below the table's folder, so that folder becomes the
    # store's own prefix.
    folder, slash, file = name.rpartition("_delta_log/")
    store = store_at(f"s3://{store.bucket}/{folder}")
    try:
        return store.put_if_absent(f"{slash}{file}", data)
    finally:
        store.delete_each([TAKEN])


def encoded(actions: Iterable[Mapping[str, Any]]) -> bytes:
    """Actions as a file of the log: a line of JSON for each."""
    return "\n".join(json.dumps(action, separators=(",", ":")) for action in actions).encode()


def commit_after_newest(
    lake: Lake, snapshot: Snapshot, actions: Actions, check: Callable[[Snapshot], None]
) -> int:
    """Commits after the newest version; returns the created version.

    The commit's userMetadata must be unique: by it, the commit is recognized if the storage's
    answer was lost. `check` raises if the actions do not apply to a newer snapshot.

    Raises:
        Transient: other writers always committed first, or the next version exists, but the log
            does not show it.
    """
    [mark] = [action["commitInfo"]["userMetadata"] for action in actions if "commitInfo" in action]
    version = snapshot.version
    for _ in range(_VERSIONS_TRIED):
        if create_version(lake, snapshot.table, version + 1, actions):
            return version + 1
        newest = lake.facts(snapshot.table)
        if newest is None or newest.snapshot.version <= version:
            raise Transient(
                f"commit to {snapshot.table}: version {version + 1} exists, but the log does not"
                " show it; try again"
            )
        for commit in newest.history.commits:
            if commit.version > snapshot.version and commit.user_metadata == mark:
                return commit.version
        check(newest.snapshot)
        version = newest.snapshot.version
    raise Transient(
        f"commit to {snapshot.table}: other writers committed first {_VERSIONS_TRIED} times in a"
        " row. Nothing is lost. Use the same command again"
    )


def delete_dead_files(lake: Lake, key: str, horizon_ms: int, own_file: re.Pattern[str]) -> None:
    """Deletes the files of a table of ours that it does not have, and last had before the horizon.

    Of files that the log does not name, those with a name like `own_file` are deleted, which killed
    runs left behind.
    """
    facts = lake.facts(key)
    if facts is None:
        return
    live = {unquote(file.path) for file in facts.snapshot.files}
    removed_ms = {unquote(each.path): each.deleted_ms for each in facts.snapshot.tombstones}
    dead = list[str]()
    for each in lake.store.walk(key):
        path = each.key.removeprefix(f"{lake.store.prefix}{key}/")
        is_ours = path in removed_ms or own_file.fullmatch(path)
        last_ms = removed_ms.get(path, each.modified_ms)
        if path not in live and is_ours and last_ms is not None and last_ms < horizon_ms:
            dead.append(f"{key}/{path}")
    lake.store.delete(dead)


def open_with_deltalake(lake: Lake, key: str, *, version: int | None = None) -> "DeltaTable":
    """A table at its newest version, or at `version`, as deltalake reads it.

    deltalake decodes an address twice (delta-rs 1.6.6: for the folder `a%20b`, it opens `a b`). So
    it may open a wrong table, or find no table. The caller must compare the table's id.

    Raises:
        DeltaError: deltalake finds no table at the address, or cannot read the table.
        OSError: the storage does not answer (`storage_errors` translates this error).
    """
    from deltalake import DeltaTable

    uri = lake.table_uri(key)
    if not lake.on_s3(key):
        return DeltaTable(Path(uri).absolute().as_uri(), version=version)
    # The S3 options that boto3 reads from the environment, but deltalake does not.
    options = dict[str, str]()
    if endpoint := s3_endpoint(os.environ):
        options["AWS_ENDPOINT_URL"] = endpoint
        options["AWS_ALLOW_HTTP"] = str(endpoint.startswith("http://")).lower()
    if region := s3_region(os.environ):
        options["AWS_REGION"] = region
    return DeltaTable(uri, version=version, storage_options=options)


def open_same_table(lake: Lake, snapshot: Snapshot, *, version: int) -> "DeltaTable":
    """A snapshot's table at `version`; raises `Broken` if deltalake opens another table."""
    table = open_with_deltalake(lake, snapshot.table, version=version)
    table_id = str(table.metadata().id)
    if table_id != snapshot.table_id:
        raise Broken(
            f"compaction of {snapshot.table}: deltalake opened a wrong table for {snapshot.uri} "
            f'(id {table_id} instead of {snapshot.table_id}). Use engine="spark"'
        )
    return table


def with_due_checkpoint(lake: Lake, facts: TableFacts) -> TableFacts:
    """Writes a checkpoint if Delta's interval requires one; returns the table's current facts.

    Call it after a commit that this program wrote without Spark and deltalake, which write
    checkpoints after their commits themselves. If the checkpoint fails, the facts are returned
    unchanged, and the table's health shows the length of the log.
    """
    snapshot = facts.snapshot
    if snapshot.log.commit_count < checkpoint_interval(snapshot.properties):
        return facts
    with suppress(Exception), storage_errors(f"checkpoint of {snapshot.table}"):
        open_same_table(lake, snapshot, version=snapshot.version).create_checkpoint()
        return lake.facts(snapshot.table) or facts
    return facts


@contextmanager
def storage_errors(asked: str) -> Iterator[None]:
    """Translates errors of deltalake; `asked` names the operation.

    A panic is not an `Exception`, so error handlers would not catch it. A compaction whose panic
    comes after its commit would then be reported as failed.

    Raises:
        Transient: the storage does not answer.
        Broken: deltalake has panicked.
    """
    try:
        yield
    except OSError as error:
        cause = str(error).partition("\n")[0]
        raise Transient(
            f"{asked}: deltalake cannot reach the table: {cause}. Try again later"
        ) from error
    except BaseException as error:
        # pyo3 creates this class at run time, and no module exports it.
        if type(error).__name__ != "PanicException":
            raise
        cause = str(error).partition("\n")[0]
        raise Broken(
            f'{asked}: an internal error occurred in deltalake: {cause}. Use engine="spark", and '
            "report this error with the version of deltalake"
        ) from error
