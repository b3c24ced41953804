"""Handles differences between deltalake and Spark in Parquet files and statistics.

**Safety properties** (tests in `test_deltalake_differences.py`)
- No value changes for Spark: files that deltalake would misread are left to Spark.
- No row becomes invisible: bounds that may be wrong are omitted, because readers skip a file or a
  row group by its bounds. (Exception: footers keep the bounds of floats inside structs, because
  deltalake accepts no options for these columns.)
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from deltalake import WriterProperties

_SPARK_VERSION = b"org.apache.spark.version"
# Spark versions before 3.1.0 write Julian dates or INT96 times. Later versions do so only in files
# with one of these keys.
# Source: apache/spark v4.2.0, DataSourceUtils.scala, datetimeRebaseSpec and int96RebaseSpec
_FIRST_GREGORIAN_VERSION = b"3.1.0"
_JULIAN_KEYS = frozenset({b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"})
# The types whose bounds may be wrong. A double represents decimals exactly up to 15 digits.
_INEXACT_TYPES = re.compile(r"float|double|decimal\((1[6-9]|[23]\d),\d+\)")


def find_misread(inputs: Mapping[Path, str], written: Sequence[Path]) -> tuple[str, str] | None:
    """The path in the log of an input that deltalake read differently from Spark, and the reason.

    Spark ignores the case of column names, and converts dates of the Julian calendar. deltalake
    reads a column as null if the case of its name differs, and does not convert dates. The
    comparison of rows detects neither, because it reads files as deltalake does.

    `inputs` maps the files that deltalake has read to their paths in the table's log. `written`
    are the files that it wrote, with the table's column names. `None` if there is no such file.
    """
    columns = {name for path in written for name in _columns_of(pq.read_metadata(path))}
    in_lower_case = {name.lower() for name in columns}
    for path, path_in_log in inputs.items():
        footer = pq.read_metadata(path)
        other_columns = {*_columns_of(footer)} - columns
        misread = sorted(name for name in other_columns if name.lower() in in_lower_case)
        reason = ""
        if misread:
            reason = f"the column name {misread[0]} in another case than the table"
        elif _may_have_julian_dates(footer.metadata or {}):
            reason = "dates of an old calendar"
        if reason:
            return path_in_log, f"deltalake would misread {path_in_log}, which has {reason}"
    return None


def _may_have_julian_dates(metadata: Mapping[bytes, bytes]) -> bool:
    """Whether a footer's metadata shows that Spark may have written dates of the old calendar."""
    if not _JULIAN_KEYS.isdisjoint(metadata):
        return True
    version = metadata.get(_SPARK_VERSION)
    return version is not None and version < _FIRST_GREGORIAN_VERSION


def writer_properties(fields: Sequence[Any]) -> "WriterProperties | None":
    """deltalake's defaults, without bounds of floats in footers, because such bounds ignore NaN.

    `None` stands for the defaults. `fields` are the fields of the table's schema, as JSON.
    """
    from deltalake import ColumnProperties, WriterProperties

    floats = [field["name"] for field in fields if field["type"] in ("float", "double")]
    if not floats:
        return None
    return WriterProperties(
        compression="ZSTD",
        compression_level=4,
        column_properties=dict.fromkeys(floats, ColumnProperties(statistics_enabled="NONE")),
    )


def sound_statistics(statistics: Mapping[str, Any], fields: Sequence[Any]) -> dict[str, Any]:
    """The statistics of a file that deltalake wrote, without bounds that may be wrong.

    deltalake 1.6.6 rounds the bounds of decimals to a double or to 64 bits, and ignores NaN.
    """
    bounds = {
        kind: _sound_bounds(statistics[kind], fields)
        for kind in ("minValues", "maxValues")
        if kind in statistics
    }
    return {**statistics, **bounds}


def _sound_bounds(bounds: Mapping[str, Any], fields: Sequence[Any]) -> dict[str, Any]:
    sound = dict[str, Any]()
    for field in fields:
        name = field["name"]
        type_ = field["type"]
        if isinstance(type_, dict):
            # Among the nested types, only structs have fields and bounds.
            inner: Any = type_
            inner_bounds = _sound_bounds(bounds.get(name, {}), inner.get("fields", ()))
            if inner_bounds:
                sound[name] = inner_bounds
        elif name in bounds and not _INEXACT_TYPES.fullmatch(type_):
            sound[name] = bounds[name]
    return sound


def _columns_of(footer: Any) -> list[str]:
    """The paths of all columns of a Parquet file, with the names of enclosing columns."""
    return [footer.schema.column(index).path for index in range(len(footer.schema))]
