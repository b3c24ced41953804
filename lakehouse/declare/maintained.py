"""The tables of a call of `maintain`, and the JSON record of these tables in their lake.

`maintain` adds the upkeep of existing tables to another Dagster project. The command line does not
load that project. It reads the declarations of the tables from the record.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, cast

from lakehouse.base.errors import Refused
from lakehouse.base.settings import NO_TABLES
from lakehouse.declare.knobs import changed_fields
from lakehouse.declare.policies import (
    Archive,
    BinPacking,
    BySensor,
    Compaction,
    LiquidClustering,
    Scheduled,
    Ttl,
    Vacuum,
    ZOrder,
)
from lakehouse.declare.table import Table
from lakehouse.declare.write_modes import Adopted

# The folder of the records, below the lake's root.
MAINTAINED = "_lakehouse/maintained"
# The default settings of a project that calls `maintain`. Each run opens its own Spark driver, so
# that only `dagster dev` has to be started. The demo is off, and no package declares tables.
_PROJECT_DEFAULTS = {
    "LAKEHOUSE_SPARK": "local[2]",
    "LAKEHOUSE_REPLAY": "off",
    "LAKEHOUSE_TABLES": NO_TABLES,
}
# The policies in a record, by their fields of a table.
_POLICIES: Mapping[str, Any] = {
    "compaction": Compaction,
    "vacuum": Vacuum,
    "archive": Archive,
    "ttl": Ttl,
}
# The classes of knob values, by the `kind` that a record gives them.
_KINDS = {
    kind.__name__: kind for kind in (BySensor, Scheduled, BinPacking, LiquidClustering, ZOrder)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """The policies that a call of `maintain` declares for each of its tables."""

    compaction: Compaction = field(default_factory=Compaction)
    vacuum: Vacuum = field(default_factory=Vacuum)
    archive: Archive | None = None
    ttl: Ttl | None = None


def maintained_table(key: str, write: Adopted, upkeep: Upkeep) -> Table:
    """The declaration of one table of a `maintain` call."""
    return Table(
        key=key,
        write=write,
        compaction=upkeep.compaction,
        vacuum=upkeep.vacuum,
        archive=upkeep.archive,
        ttl=upkeep.ttl,
        description=f"The table of {'/'.join(write.asset_key)}, at {write.uri}.",
    )


def is_maintained(table: Table) -> bool:
    """Whether the table belongs to a `maintain` call, so an asset of that project writes it."""
    return isinstance(table.write, Adopted) and bool(table.write.asset_key)


def maintained_document(tables: Sequence[Table], *, home: str) -> dict[str, Any]:
    """The record of these tables. Policies are recorded without knobs that have default values.

    `home` is the project's LAKEHOUSE_HOME. It is recorded for people; the program does not read it.
    """
    entries = dict[str, Any]()
    for table in tables:
        entry = {"write": asdict(cast("Any", table.write))}
        for name in _POLICIES:
            policy = getattr(table, name)
            if policy is not None:
                entry[name] = {
                    knob: _plain(value) for knob, value in changed_fields(policy).items()
                }
        entries[table.key] = entry
    return {"home": home, "tables": entries}


def parse_maintained(document: Any, *, name: str) -> dict[str, Table]:
    """The tables in the record `name`, by key.

    Raises:
        Refused: the record lacks a field, or has a knob or a value that this version does not
            accept.
    """
    tables = dict[str, Table]()
    key = "the record"
    try:
        for key, entry in document["tables"].items():
            policies = {
                name: kind(**_values(entry[name]))
                for name, kind in _POLICIES.items()
                if name in entry
            }
            write = Adopted(**_values(entry["write"]))
            tables[key] = maintained_table(key, write, Upkeep(**policies))
    except (Refused, KeyError, TypeError, AttributeError) as error:
        problem = str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
        raise Refused(
            f"{name}: {key}: {problem}. The Dagster project that wrote this record has another "
            "version of lakehouse. Use the project's version here, or update lakehouse in the "
            "project and reload its code location"
        ) from error
    return tables


def with_project_defaults(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment variables, with the defaults of a project that calls `maintain`.

    An empty variable does not replace a default.
    """
    variables = dict(environ)
    for name, default in _PROJECT_DEFAULTS.items():
        variables[name] = environ.get(name) or default
    return variables


def _plain(value: Any) -> Any:
    """The value of a knob as a JSON value. `_value` is the inverse."""
    if isinstance(value, tuple):
        return [_plain(each) for each in cast("tuple[Any, ...]", value)]
    if is_dataclass(value):
        parts = {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
        return {"kind": type(value).__name__, **parts}
    return value


def _values(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _value(value) for name, value in entry.items()}


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_value(each) for each in cast("list[Any]", value))
    if isinstance(value, dict):
        parts = _values(cast("dict[str, Any]", value))
        return _KINDS[parts.pop("kind")](**parts)
    return value
