"""Inventory reports as AWS writes them, in all three formats, into any store; and as it never should."""

import csv
import gzip
import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

from lakehouse.base.stored_objects import StoredObject
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake
from lakehouse.store import Store
from lakehouse.vacuum.inventory.plan import Reconciliation
from lakehouse.vacuum.inventory.run import newest_inventory, reconcile_inventory
from lakehouse.vacuum.inventory.stored_reports import REPORTS

# The columns that a report may have, in their order; those without a type are texts.
_NAMES = """bucket key version_id is_latest is_delete_marker size last_modified_date e_tag storage_class
    intelligent_tiering_access_tier"""
_TYPES = {"size": pa.int64(), "last_modified_date": pa.timestamp("ms")}
_TYPES |= dict.fromkeys(("is_latest", "is_delete_marker"), pa.bool_())
SUFFIX = {"CSV": "csv.gz", "ORC": "orc", "Parquet": "parquet"}


def reconciled(lake: Lake, declared: Iterable[Table] = (), *, now_ms: int) -> Reconciliation:
    """The newest inventory of the lake, held against the logs."""
    inventory = newest_inventory(lake)
    return reconcile_inventory(lake, declared, inventory, now_ms=now_ms)


def row_of(each: StoredObject, *, versions: bool = False) -> dict[str, Any]:
    """An object as a report has it; without `versions` the report is of current versions alone."""
    row = {
        "bucket": each.bucket,
        "key": each.key,
        "size": None if each.is_delete_marker else each.size_bytes,
        "last_modified_date": each.modified_ms,
        "e_tag": "0123",
        "storage_class": each.storage_class,
        "intelligent_tiering_access_tier": each.archive_tier,
    }
    if versions:
        row |= {"version_id": each.version_id, "is_latest": each.is_latest}
        row |= {"is_delete_marker": each.is_delete_marker}
    return row


def write_report(
    store: Store,
    rows: Iterable[Mapping[str, Any]],
    *,
    created_ms: int,
    file_format: str,
    files: int = 2,
    configuration: str = "daily",
    bucket: str | None = None,
    complete: bool = True,
    manifest: Mapping[str, Any] | None = None,
) -> str:
    """A report in several data files below the place that ours have; the name of its manifest. `manifest` overrides its fields."""
    kept = list(rows)
    folder = f"{REPORTS}/{bucket or store.bucket}/{configuration}"
    names = [name for name in _NAMES.split() if name in kept[0]]
    stamp = f"{datetime.fromtimestamp(created_ms / 1000, tz=UTC):%Y-%m-%dT%H-%MZ}"
    parts: list[dict[str, Any]] = []
    for number in range(files):
        data = data_file(kept[number::files], names, file_format)
        name = f"{folder}/data/{configuration}-{stamp}-{number}.{SUFFIX[file_format]}"
        store.put(name, data)
        checksum = hashlib.md5(data).hexdigest()
        parts.append({"key": store.prefix + name, "size": len(data), "MD5checksum": checksum})
    document = {
        "sourceBucket": bucket or store.bucket,
        "destinationBucket": f"arn:aws:s3:::{store.bucket}",
        "version": "2016-11-30",
        "creationTimestamp": str(created_ms),
        "fileFormat": file_format,
        "fileSchema": schema_text(names, file_format),
        "files": parts,
    } | (manifest or {})
    text = json.dumps(document).encode()
    store.put(f"{folder}/{stamp}/manifest.json", text)
    if complete:
        checksum = f"{hashlib.md5(text).hexdigest()}\n".encode()
        store.put(f"{folder}/{stamp}/manifest.checksum", checksum)
    return f"{folder}/{stamp}/manifest.json"


def data_file(rows: Sequence[Mapping[str, Any]], names: Sequence[str], file_format: str) -> bytes:
    """One data file's bytes."""
    if file_format == "CSV":
        return gzip.compress(csv_text(rows, names).encode())
    types = {name: _TYPES.get(name, pa.string()) for name in names}
    values = {name: [row[name] for row in rows] for name in names}
    table = pa.table({name: pa.array(values[name], type=types[name]) for name in names})
    out = io.BytesIO()
    if file_format == "ORC":
        orc.write_table(table, out, compression="zlib")
    else:
        zoned = types | {"last_modified_date": pa.timestamp("ms", tz="UTC")}
        pq.write_table(table.cast(pa.schema([(name, zoned[name]) for name in names])), out)
    return out.getvalue()


def csv_text(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """No header, every value quoted, keys URL-encoded with `/` kept and a space as `+`."""
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    for row in rows:
        writer.writerow([_csv_value(name, row[name]) for name in names])
    return out.getvalue()


def schema_text(names: Sequence[str], file_format: str) -> str:
    """The manifest's fileSchema."""
    if file_format == "CSV":
        return ", ".join(name.title().replace("_", "") for name in names)
    if file_format == "ORC":
        return f"struct<{','.join(f'{name}:string' for name in names)}>"
    fields = "".join(f"  optional binary {name} (UTF8);" for name in names)
    return f"message s3.inventory {{{fields}}}"


def _csv_value(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name == "key":
        return quote_plus(value, safe="/")
    if name == "last_modified_date":
        moment = datetime.fromtimestamp(value / 1000, tz=UTC)
        return f"{moment:%Y-%m-%dT%H:%M:%S}.{value % 1000:03}Z"
    return str(value).lower() if isinstance(value, bool) else str(value)
