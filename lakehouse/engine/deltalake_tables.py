"""Opens tables with deltalake, which needs neither Spark nor Java."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakehouse.core.delta.protocol import checkpoint_interval
from lakehouse.core.delta.snapshot import Snapshot, TableFacts
from lakehouse.core.errors import Broken, Transient
from lakehouse.core.s3_address import s3_endpoint, s3_region
from lakehouse.engine.lake import Lake

if TYPE_CHECKING:
    from deltalake import DeltaTable


def open_with_deltalake(lake: Lake, key: str, *, version: int | None = None) -> "DeltaTable":
    """A table at its newest version, or at `version`, as deltalake reads it.

    deltalake decodes an address twice, so it may find another table than the one at `key`, or none
    (delta-rs 1.6.6: a folder `a%20b` is read as `a b`). Compare the table's id.

    Raises:
        DeltaError: deltalake finds no table there, or cannot read it.
        OSError: the storage does not answer (`storage_errors` translates it).
    """
    from deltalake import DeltaTable

    uri = lake.table_uri(key)
    if not lake.on_s3(key):
        return DeltaTable(Path(uri).absolute().as_uri(), version=version)
    return DeltaTable(uri, version=version, storage_options=_s3_options())


def open_same_table(lake: Lake, snapshot: Snapshot, *, version: int) -> "DeltaTable":
    """The table of a snapshot at `version`; `Broken` if deltalake finds another one there."""
    table = open_with_deltalake(lake, snapshot.table, version=version)
    table_id = str(table.metadata().id)
    if table_id != snapshot.table_id:
        raise Broken(
            f"compaction of {snapshot.table}: deltalake opened another table at {snapshot.uri} "
            f'(id {table_id} instead of {snapshot.table_id}). Use engine="spark"'
        )
    return table


def protocol_and_metadata(lake: Lake, snapshot: Snapshot) -> list[dict[str, Any]]:
    """The actions of a commit that creates a table like this one."""
    table = open_same_table(lake, snapshot, version=snapshot.version)
    metadata = table.metadata()
    protocol = table.protocol()
    features = {
        "readerFeatures": protocol.reader_features,
        "writerFeatures": protocol.writer_features,
    }
    return [
        {
            "protocol": {
                "minReaderVersion": protocol.min_reader_version,
                "minWriterVersion": protocol.min_writer_version,
                **{name: found for name, found in features.items() if found is not None},
            }
        },
        {
            "metaData": {
                "id": str(metadata.id),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": table.schema().to_json(),
                "partitionColumns": metadata.partition_columns,
                "configuration": metadata.configuration,
                "createdTime": metadata.created_time,
            }
        },
    ]


def with_due_checkpoint(lake: Lake, facts: TableFacts) -> TableFacts:
    """Writes the checkpoint that Delta's interval asks for, and returns the facts after it.

    Spark and deltalake do that after a commit of their own. Without a checkpoint, the table stays
    as it is, and its health shows the log's length.
    """
    snapshot = facts.snapshot
    if snapshot.log.commit_count < checkpoint_interval(snapshot.properties):
        return facts
    with suppress(Exception), panics_translated(f"checkpoint of {snapshot.table}"):
        open_same_table(lake, snapshot, version=snapshot.version).create_checkpoint()
        return lake.facts(snapshot.table) or facts
    return facts


@contextmanager
def panics_translated(asked: str) -> Iterator[None]:
    """Raises `Broken` for a panic in deltalake; `asked` names the operation.

    A panic is no `Exception`. Handlers of errors would not see it, and a compaction that has
    committed would be reported as failed.
    """
    try:
        yield
    except BaseException as error:
        # pyo3 makes the class when it first needs it; no module exports it.
        if type(error).__name__ != "PanicException":
            raise
        cause = str(error).partition("\n")[0]
        raise Broken(
            f'{asked}: deltalake failed by a fault of its own: {cause}. Use engine="spark", and '
            "report this with the version of deltalake"
        ) from error


@contextmanager
def storage_errors(asked: str) -> Iterator[None]:
    """Raises `Transient` if the storage does not answer deltalake; `asked` names the operation."""
    try:
        with panics_translated(asked):
            yield
    except OSError as error:
        cause = str(error).partition("\n")[0]
        raise Transient(
            f"{asked}: deltalake cannot reach the table: {cause}; try again later"
        ) from error


def _s3_options() -> dict[str, str]:
    """What deltalake does not read from the environment as boto3 does."""
    options = dict[str, str]()
    if endpoint := s3_endpoint(os.environ):
        options["AWS_ENDPOINT_URL"] = endpoint
        options["AWS_ALLOW_HTTP"] = str(endpoint.startswith("http://")).lower()
    if region := s3_region(os.environ):
        options["AWS_REGION"] = region
    return options
