"""Every type of Postgres and MySQL as Debezium sends it by default: its schema, a value, and what is loaded.

`docs/reference/debezium-types.md` is generated from `TYPES`.
"""

import json
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

# Of a value that cannot be known.
QUARANTINED = object()
_LONG_AGO = datetime(2024, 2, 29, 10, 30, 0, 123000, UTC)


@dataclass(frozen=True, kw_only=True)
class SourceType:
    """A type of a source; `loaded` is the column's value with schema, `without` that without schema."""

    source: str
    declared: str
    schema: dict[str, Any]
    sent: Any
    loaded: Any
    without: Any


def plain(type_: str) -> dict[str, Any]:
    return {"type": type_}


def semantic(type_: str, name: str, **parameters: str) -> dict[str, Any]:
    return {"type": type_, "name": name, "version": 1, "parameters": parameters}


def debezium(type_: str, name: str, **parameters: str) -> dict[str, Any]:
    return semantic(type_, f"io.debezium.{name}", **parameters)


def array_of(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def same(
    source: str, declared: str, schema: dict[str, Any], sent: Any, loaded: Any = None
) -> SourceType:
    """A type of which each value says what it is."""
    loaded = sent if loaded is None else loaded
    return SourceType(
        source=source, declared=declared, schema=schema, sent=sent, loaded=loaded, without=loaded
    )


def told(source: str, declared: str, schema: dict[str, Any], sent: Any, loaded: Any) -> SourceType:
    """A type of which only the schema says what a value is."""
    return replace(same(source, declared, schema, sent, loaded), without=QUARANTINED)


_PRECISION = {"scale": "2", "connect.decimal.precision": "12"}
DECIMAL = semantic("bytes", "org.apache.kafka.connect.data.Decimal", **_PRECISION)
VARIABLE = {
    **debezium("struct", "data.VariableScaleDecimal"),
    "fields": [{**plain("int32"), "field": "scale"}, {**plain("bytes"), "field": "value"}],
}
BITS = debezium("bytes", "data.Bits", length="10")
DATE = debezium("int32", "time.Date")
MICRO_TIME = debezium("int64", "time.MicroTime")
MICROS = debezium("int64", "time.MicroTimestamp")
MILLIS = debezium("int64", "time.Timestamp")
ZONED = debezium("string", "time.ZonedTimestamp")
POINT = {
    **debezium("struct", "data.geometry.Point"),
    "fields": [
        {**plain("double"), "field": "x"},
        {**plain("double"), "field": "y"},
        {**plain("bytes"), "field": "wkb"},
        {**plain("int32"), "field": "srid"},
    ],
}
GEOMETRY = {**POINT, "name": "io.debezium.data.geometry.Geometry", "fields": POINT["fields"][2:]}
_WKB, _BYTES = {"wkb": "AQI=", "srid": None}, {"wkb": b"\x01\x02", "srid": None}
_AT = {"x": 1.5, "y": -2.0}
_MADE_OF = "STRUCT<x: DOUBLE, y: DOUBLE, wkb: BINARY, srid: INT>"
_WITHOUT_XY = "STRUCT<wkb: BINARY, srid: INT>"

TYPES = (
    # Postgres
    same("`boolean`, `bit(1)`", "BOOLEAN", plain("boolean"), True),
    same("`smallint`, `integer`, `bigint`, `oid`", "BIGINT", plain("int64"), -(2**63)),
    same("`real`, `double precision`", "DOUBLE", plain("double"), 0.1),
    told("`numeric(p,s)`, `money`", "DECIMAL(12,2)", DECIMAL, "1234", Decimal("-26588.24")),
    same(
        "`numeric`",
        "DECIMAL(38,10)",
        VARIABLE,
        {"scale": 2, "value": "AfQ="},
        Decimal("5.0000000000"),
    ),
    same("`char`, `varchar`, `text`, `citext`", "STRING", plain("string"), "1234"),
    same("`bytea`", "BINARY", plain("bytes"), "/wA=", b"\xff\x00"),
    same("`bit(n)`, `varbit`", "BINARY", BITS, "BQI=", b"\x05\x02"),
    same("`date`", "DATE", DATE, 19_782, date(2024, 2, 29)),
    told("`timestamp`", "TIMESTAMP", MICROS, 1_709_202_600_123_000, _LONG_AGO),
    same("`timestamptz`", "TIMESTAMP", ZONED, "2024-02-29T10:30:00.123000Z", _LONG_AGO),
    same("`time`", "BIGINT", MICRO_TIME, 37_800_000_001),
    same("`timetz`", "STRING", debezium("string", "time.ZonedTime"), "10:30:00Z"),
    same("`interval`", "BIGINT", debezium("int64", "time.MicroDuration"), 2_629_800_000_000),
    same("`uuid`", "STRING", debezium("string", "data.Uuid"), "b68a35a7-17ad-35b3"),
    same("`json`, `jsonb`, `hstore`", "STRING", debezium("string", "data.Json"), '{"a": 1.10}'),
    same("`xml`", "STRING", debezium("string", "data.Xml"), "<a/>"),
    same("enum types", "STRING", debezium("string", "data.Enum", allowed="a,b"), "a"),
    same("`ltree`, `tsvector`", "STRING", debezium("string", "data.Ltree"), "a.b"),
    same("`inet`, `cidr`, `macaddr`", "STRING", plain("string"), "192.168.0.1/24"),
    same("`int4range`, `tstzrange` and other ranges", "STRING", plain("string"), "[1,5)"),
    same("`point`", _MADE_OF, POINT, {**_AT, **_WKB}, {**_AT, **_BYTES}),
    same("PostGIS `geometry`, `geography`", _WITHOUT_XY, GEOMETRY, _WKB, _BYTES),
    same("`text[]`", "ARRAY<STRING>", array_of(plain("string")), ["1234", None]),
    same("`integer[]`, `bigint[]`", "ARRAY<BIGINT>", array_of(plain("int64")), [1, None]),
    same("`date[]`", "ARRAY<DATE>", array_of(DATE), [19_782], [date(2024, 2, 29)]),
    told(
        "`numeric(p,s)[]`", "ARRAY<DECIMAL(12,2)>", array_of(DECIMAL), ["/w=="], [Decimal("-0.01")]
    ),
    told(
        "`timestamp[]`", "ARRAY<TIMESTAMP>", array_of(MICROS), [1_709_202_600_123_000], [_LONG_AGO]
    ),
    # MySQL
    same("`tinyint(1)`, `boolean`", "BOOLEAN", plain("int16"), 1, loaded=True),
    same("`tinyint` to `bigint`, `year`", "BIGINT", plain("int32"), 2024),
    same("`bigint unsigned`", "BIGINT", plain("int64"), 2**63 - 1),
    same("`float`, `double`", "DOUBLE", plain("double"), 1e-7),
    told("`decimal(p,s)`", "DECIMAL(12,2)", DECIMAL, "1E08", Decimal("-28638.12")),
    same("`char` to `longtext`", "STRING", plain("string"), ""),
    same("`enum`, `set`", "STRING", debezium("string", "data.EnumSet"), "a,b"),
    same("MySQL's `json`", "STRING", debezium("string", "data.Json"), "[1]"),
    same("`binary`, `varbinary`, `blob`", "BINARY", plain("bytes"), "AAE=", b"\x00\x01"),
    told("MySQL's `bit(n)`", "BIGINT", BITS, "BQI=", 517),
    same("MySQL's `date`", "DATE", DATE, -719_162, date(1, 1, 1)),
    told("`datetime`", "TIMESTAMP", MILLIS, 1_709_202_600_123, _LONG_AGO),
    same("MySQL's `timestamp`", "TIMESTAMP", ZONED, "2024-02-29T11:30:00.123+01:00", _LONG_AGO),
    same("MySQL's `time`", "BIGINT", MICRO_TIME, -3_020_399_000_000),
    same("MySQL's `point`, `geometry`", _MADE_OF, POINT, {**_AT, **_WKB}, {**_AT, **_BYTES}),
)


def event(number: int, row: dict[str, Any], fields: list[dict[str, Any]] | None) -> str:
    """A line with this row, and with the schema of its fields if there are any."""
    found = {
        "before": None,
        "after": {"id": number, **row},
        "op": "c",
        "source": {"lsn": number, "ts_ms": number},
    }
    if fields is None:
        return json.dumps(found)
    rows = [{"type": "struct", "field": "after", "fields": fields}]
    return json.dumps({"schema": {"type": "struct", "fields": rows}, "payload": found})
