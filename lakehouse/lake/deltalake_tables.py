"""Opens tables with deltalake, which needs neither Spark nor Java."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lakehouse.base.errors import Broken, Transient
from lakehouse.base.settings import s3_endpoint, s3_region
from lakehouse.delta.protocol import checkpoint_interval
from lakehouse.delta.snapshot import Snapshot, TableFacts
from lakehouse.lake.lake import Lake

if TYPE_CHECKING:
    from deltalake import DeltaTable


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
    return DeltaTable(uri, version=version, storage_options=_s3_options())


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
    with suppress(Exception), panics_translated(f"checkpoint of {snapshot.table}"):
        open_same_table(lake, snapshot, version=snapshot.version).create_checkpoint()
        return lake.facts(snapshot.table) or facts
    return facts


@contextmanager
def panics_translated(asked: str) -> Iterator[None]:
    """Raises `Broken` for a panic in deltalake; `asked` names the operation.

    A panic is not an `Exception`, so error handlers would not catch it. A compaction whose panic
    comes after its commit would then be reported as failed.
    """
    try:
        yield
    except BaseException as error:
        # pyo3 creates this class at run time, and no module exports it.
        if type(error).__name__ != "PanicException":
            raise
        cause = str(error).partition("\n")[0]
        raise Broken(
            f'{asked}: an internal error occurred in deltalake: {cause}. Use engine="spark", and '
            "report this error with the version of deltalake"
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
            f"{asked}: deltalake cannot reach the table: {cause}. Try again later"
        ) from error


def _s3_options() -> dict[str, str]:
    """The S3 options that boto3 reads from the environment, but deltalake does not."""
    options = dict[str, str]()
    if endpoint := s3_endpoint(os.environ):
        options["AWS_ENDPOINT_URL"] = endpoint
        options["AWS_ALLOW_HTTP"] = str(endpoint.startswith("http://")).lower()
    if region := s3_region(os.environ):
        options["AWS_REGION"] = region
    return options
