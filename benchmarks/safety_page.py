"""The page `docs/safety.md`: the safety rules as one table for each field, made from the list that is broken."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from benchmarks.mutant_rules import Rule

_HEAD_ENDS = "\n## "  # what stands above the first table is written by hand
# The field of a rule: that of the longest of these that its file begins with.
_FIELDS = {
    "core/ingest/": "Ingest",
    "engine/ingest/": "Ingest",
    "engine/quarantine/": "Ingest",
    "engine/landing/": "Ingest",
    "core/declaration/landing.py": "Ingest",
    "core/declaration/table.py": "Ingest",
    "replay/": "Ingest",
    "core/ingest/increments.py": "Write",
    "engine/ingest/write.py": "Write",
    "engine/ingest/commit_rows.py": "Write",
    "engine/ingest/table_properties.py": "Write",
    "core/changes/": "Change data",
    "engine/changes/": "Change data",
    "core/declaration/": "Compaction",
    "core/compaction/": "Compaction",
    "core/scheduling/": "Compaction",
    "engine/compaction/": "Compaction",
    "engine/compaction/verify.py": "Verification",
    "engine/compaction/content_hash.py": "Verification",
    "engine/compaction/spark_content.py": "Verification",
    "engine/compaction/log_comparison.py": "Verification",
    "engine/compaction/unverified_commits.py": "Verification",
    "core/vacuum/": "Vacuum",
    "engine/vacuum/": "Vacuum",
    "core/declaration/vacuum_policy.py": "Vacuum",
    "core/inventory/": "Inventory",
    "engine/inventory/": "Inventory",
    "engine/lake.py": "Vacuum",
    "engine/table_lock.py": "Lock and owner",
    "engine/lake_owner.py": "Lock and owner",
    "engine/journal/": "Journal",
    "core/delta/": "Log reader",
    "engine/delta_log/": "Log reader",
    "engine/store/": "Stores",
    "engine/store/mounts.py": "Adopted tables",
    "core/adoption/": "Adopted tables",
    "engine/declared_tables.py": "Adopted tables",
    "defs/adoption/": "Adopted tables",
    "defs/dagster_records.py": "Adopted tables",
    "defs/keys.py": "Adopted tables",
    "engine/adoption/": "Adopted tables",
    "runtime/": "Servers",
    "engine/spark/": "Servers",
    "engine/spark/statements.py": "Texts",
    "engine/spark/frames.py": "Write",
    "core/settings.py": "Texts",
    "core/text.py": "Texts",
    "defs/": "Texts",
    "cli/": "Texts",
}


def write_page(rules: Iterable[Rule], root: Path) -> None:
    """Puts the tables into the page, below what is written by hand."""
    page = root / "docs" / "safety.md"
    page.write_text(page.read_text().partition(_HEAD_ENDS)[0] + tables(rules))


def tables(rules: Iterable[Rule]) -> str:
    """The page from its first table on: a row for each promise, with the files in which it is broken, and how often."""
    rows: dict[str, dict[tuple[str, str], Counter[str]]] = {field: {} for field in dict.fromkeys(_FIELDS.values())}
    for rule in rules:
        test = rule.tests[0].partition("::")[0]
        rows[_field_of(rule.file)].setdefault((rule.name, test), Counter())[rule.file] += 1
    return "".join(_table(field, promises) for field, promises in rows.items() if promises)


def _field_of(file: str) -> str:
    inside = file.removeprefix("lakehouse/")
    return _FIELDS[max((prefix for prefix in _FIELDS if inside.startswith(prefix)), key=len)]


def _table(field: str, promises: dict[tuple[str, str], Counter[str]]) -> str:
    count = sum(breaks.total() for breaks in promises.values())
    lines = [f"{_HEAD_ENDS}{field}: {count} rules\n", "| the promise | broken in | noticed by |", "|---|---|---|"]
    for (promise, test), breaks in sorted(promises.items(), key=lambda row: (min(row[1]), row[0])):
        files = ", ".join(
            f"`{file.removeprefix('lakehouse/')}`" + (f" ({times})" if times > 1 else "") for file, times in sorted(breaks.items())
        )
        lines.append(f"| {promise} | {files} | [{test}](../lakehouse_tests/{test}) |")
    return "\n".join(lines) + "\n"
