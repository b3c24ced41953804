"""Records: the newest run of each benchmark, in `docs/internals/benchmarks/<name>.json`.

The page is written from them. `save(Record(…))` adds figures; `Figure.row` names their promise
(`rows.py`). A record has the command, the machine, and how busy other programs kept it.
"""

import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from benchmarks.figures import Figure

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "internals" / "benchmarks"
_PACKAGES = ("pyspark", "delta-spark", "dagster", "deltalake")


def machine() -> dict[str, float | str]:
    """The machine, without its name."""
    memory = round(psutil.virtual_memory().total / 2**30)
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": memory,
        "system": f"{platform.system()} {platform.machine()}",
    }


def versions() -> dict[str, str]:
    """Versions of Python and the main packages."""
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}


def busy_share() -> float:
    """The share of all cores that were busy during one second."""
    return psutil.cpu_percent(interval=1.0) / 100


def now_text() -> str:
    """The current time as shown on the page."""
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One run. `busy` is the share of cores that others used around it; `None` if unknown."""

    benchmark: str
    command: str
    figures: Sequence[Figure]
    seconds: float
    busy: float | None
    began: str = field(default_factory=now_text)
    machine: Mapping[str, float | str] = field(default_factory=machine)
    versions: Mapping[str, str] = field(default_factory=versions)


def save(record: Record, folder: Path = FOLDER) -> None:
    """Writes the record in place of the previous one."""
    folder.mkdir(parents=True, exist_ok=True)
    document = asdict(record)
    defaults = {field.name: field.default for field in fields(Figure)}
    for figure in document["figures"]:
        for name in [
            name for name, value in figure.items() if value == defaults[name] or value == {}
        ]:
            del figure[name]
    (folder / f"{record.benchmark}.json").write_text(
        json.dumps(_rounded(document), indent=1) + "\n"
    )


def recorded(folder: Path = FOLDER) -> dict[str, Record]:
    """Benchmark -> its newest record."""
    return {record.benchmark: record for record in _read(folder)}


def _read(folder: Path) -> Iterator[Record]:
    for file in sorted(folder.glob("*.json")):
        document = json.loads(file.read_text())
        yield Record(**{**document, "figures": tuple(map(_figure, document["figures"]))})


def _figure(document: dict[str, Any]) -> Figure:
    return Figure(
        **{**document, "points": tuple((size, cost) for size, cost in document.get("points", ()))}
    )


def _rounded(value: object) -> object:
    """Rounds floats to six digits."""
    match value:
        case float():
            return float(f"{value:.6g}")
        case dict():
            return {name: _rounded(each) for name, each in value.items()}
        case list() | tuple():
            return [_rounded(each) for each in value]
        case _:
            return value
