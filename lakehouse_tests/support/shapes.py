"""The JSON shape of each command: rendered for docs/reference/json.md, and read back for tests."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "json.md"
# The names inside these objects are data, such as files, kinds of requests, or parts of a score.
OPEN = {"actual_requests", "failed", "figures", "left", "parts"}
OPEN |= {"requests", "spared", "values", "writers"}
# Document -> the command that prints it, and what the names alone do not say.
DOCUMENTS = {
    "error": (
        "An error",
        "Printed by any command that fails as a whole. Exit codes: [scripts](../operations.md#scripts).",
    ),
    "tables": (
        "lakehouse tables",
        "Inputs come before the tables that read them. Tables in the lake that are not declared come last, with `declared` false and `write` null.",
    ),
    "sql": (
        "lakehouse sql STATEMENT",
        "The query decides the columns; the example is `SHOW TABLES`. Decimals, dates, times and bytes (in hex) are texts.",
    ),
    "landing": (
        "lakehouse landing TABLE",
        "`arrived` is the last batch that the table's log records. `next` is what the next load does.",
    ),
    "quarantine_show": (
        "lakehouse quarantine show TABLE",
        "`line` and `raw` are null for a whole file.",
    ),
    "quarantine_review": (
        "lakehouse quarantine retry TABLE, lakehouse quarantine drop TABLE",
        "`left` counts, by reason, what stays in quarantine.",
    ),
    "pause": (
        "lakehouse pause TABLE, lakehouse resume TABLE",
        "The new pause, or the pause that was removed.",
    ),
    "archive": (
        "lakehouse archive TABLE",
        "The plan, and the outcome. With `--dry-run` there is no `version_after` and `figures`. `partitions` leave the table, `expiring` the archive.",
    ),
    "restore": (
        "lakehouse restore TABLE",
        "With `--dry-run` there is no `version_after` and `figures`.",
    ),
    "ttl": (
        "lakehouse ttl TABLE",
        "The plan, and the outcome. With `--dry-run` there is no `version_after` and `figures`.",
    ),
    "health": (
        "lakehouse health",
        "A table that does not exist or cannot be read has only `table`, `score` (null) and `sentence`, which says why. Adopted tables also have `uri`.",
    ),
    "adopt": (
        "lakehouse adopt",
        "`health` is the document of `lakehouse health`. `adopted`: already declared, nothing was written. A refused table has `table` null, `uri`, `reason` and `sentence`.",
    ),
    "plan": (
        "lakehouse plan",
        "All operations, the most urgent first. `operation` is the command that carries it out. `net_benefit` is null without a price. For a table that cannot be read, the `reason` of `compact` is `NO_TABLE`, `BROKEN`, `REFUSED` or `TRANSIENT`; for `evolve` and `rebuild` it is the kind of the change.",
    ),
    "compact": (
        "lakehouse compact TABLE",
        "The plan, and the outcome as `actual_…`. With nothing to do, `version_after` is null. With `--dry-run`, only the plan. Each of `bins` becomes one file; at most 1,000 files are named. `files_left` are files for the next run.",
    ),
    "history": (
        "lakehouse history TABLE",
        "Newest first. `compaction` is null for other operations. Errors are shares of the actual value.",
    ),
    "backtest": ("lakehouse backtest TABLE", "`name` is `given`, `in_force`, `none` or `really`."),
    "inventory_report": (
        "lakehouse inventory report [TABLE]",
        "All parts of `tables` and `unclaimed` sum to the inventory's objects and bytes.",
    ),
    "inventory_load": (
        "lakehouse inventory load",
        "`rows_loaded` is 0 for a report that is already loaded.",
    ),
    "vacuum": (
        "lakehouse vacuum [TABLE]...",
        "`modes` has the price of each mode, or `why_not`. `spared` files stayed, `failed` ones could not be deleted. A dry run has no `figures`, `spared` and `failed`.",
    ),
    "tiers": (
        "lakehouse tiers TABLE",
        "`tag` and `untag` are files. `rule` is the lifecycle rule to add to the bucket.",
    ),
    "costs": (
        "lakehouse costs [TABLE]",
        "`groups` are by `by`, from `since` to `until`. `size_bytes` is of the newest of the `stored_days`; null: unknown.",
    ),
    "report": (
        "lakehouse report",
        "The documents of `health`, `plan` (`operations`), `history` (commits of the last 7 days) and `costs` (30 days, by table). `file_counts` are pairs of a time in ms and the live files since then, `costs_by_day` pairs of a day in ms and its USD.",
    ),
    "materialize": (
        "lakehouse materialize",
        "`state` is `done`, `failed` or `skipped`. `run_id` is the run in Dagster.",
    ),
    "evolve_dry_run": (
        "lakehouse evolve [TABLE]... --dry-run",
        "`blocks`: the table is not written before the change. `rebuild` is the plan of `lakehouse rebuild`, null if none is needed.",
    ),
    "evolve": (
        "lakehouse evolve [TABLE]...",
        "`left` compares the declaration with the table afterwards. `rebuild` is as above, with `actual`.",
    ),
    "rebuild": (
        "lakehouse rebuild TABLE",
        "`rows` is `same` if tables that read it have nothing to read, or `new`. `source` of a column is null for a new one. A dry run has no `actual`.",
    ),
    "replay": ("lakehouse replay", "The first landed hour and the next one, in UTC."),
    "server": (
        "lakehouse server [start|stop]",
        "`condition` is `running`, `starting`, `died` or `stopped`.",
    ),
    "doctor_settings": (
        "lakehouse doctor --settings",
        "Parameters of an address that may be secret are `***`.",
    ),
    "doctor": (
        "lakehouse doctor",
        "`state` is `ok` or `failed`. The first failed check is the last.",
    ),
}


def shapes_page(documents: Mapping[str, Any]) -> Iterator[str]:
    """The paragraphs of the page, from one document of each command."""
    yield "# JSON of each command"
    yield (
        "With `--json`, standard output holds one document. Names are added, but never changed or "
        "removed. `_ms` are milliseconds since 1970 UTC, `_bytes` bytes, seconds are seconds. Any "
        'value can be null: unknown, or not applicable; `"null"` below had no value in the example. '
        "`<name>` stands for names that are data."
    )
    for name, (command, note) in DOCUMENTS.items():
        yield f"## {command}"
        if note:
            yield note
        document = json.dumps(types_of(documents[name]), indent=1, ensure_ascii=False)
        yield f"```json {name}\n{_compact(document)}\n```"


def _compact(text: str) -> str:
    """Short objects and lists without children of their own in one line."""

    def joined(found: re.Match[str]) -> str:
        line = re.sub(r"\n\s*", " ", found[0])
        return line if len(line) <= 100 else found[0]

    return re.sub(r"[\[{][^\[\]{}]*[\]}]", joined, text)


def types_of(value: Any, name: str = "") -> Any:
    """The value with each scalar replaced by its type; all elements of a list become one."""
    match value:
        case dict() if name in OPEN:
            merged = _merged(types_of(each) for each in value.values())
            return {"<name>": merged} if value else {}
        case dict():
            return {key: types_of(each, key) for key, each in value.items()}
        case list() | tuple():
            return [_merged(types_of(each) for each in value)] if value else []
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case None:
            return "null"
        case _:
            return "text"


def _merged(values: Iterator[Any]) -> Any:
    """One shape for several: objects get the names of all, and null gives way to any type."""
    result: Any = "null"
    for value in values:
        if isinstance(result, dict) and isinstance(value, dict):
            both = [
                (key, result.get(key, "null"), value.get(key, "null")) for key in result | value
            ]
            result = {key: _merged(iter(each)) for key, *each in both}
        elif isinstance(result, list) and isinstance(value, list):
            result = [_merged(iter([*result, *value]))] if result or value else []
        elif result == "null":
            result = value
    return result


def shape(document: Any) -> Any:
    """The names of a document, at every level; of a list of documents, those of the first."""
    match document:
        case dict():
            return {
                name: None if name in OPEN else shape(value) for name, value in document.items()
            }
        case [dict() | list() as first, *_]:
            return [shape(first)]
        case _:
            return None


def documented() -> dict[str, Any]:
    """Name -> document of the page."""
    blocks = re.findall(r"```json (\w+)\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    return {name: json.loads(text) for name, text in blocks}
