"""Opens tables with deltalake, which needs neither Spark nor Java."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lakehouse.core.errors import Transient
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


@contextmanager
def storage_errors(asked: str) -> Iterator[None]:
    """Raises `Transient` if the storage does not answer deltalake; `asked` names the operation."""
    try:
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
