"""The documents keep up with the code: what a person can set or be told stands in them."""

import ast
import importlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import pytest

from lakehouse import Compaction, Debezium, Dms, Landing, Merge, Prices, Vacuum
from lakehouse.cli.output import bytes_text
from lakehouse.core.declaration.table import find_tables
from lakehouse.core.reasons import Reason
from lakehouse.core.settings import ACCEPTED

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = [DOCS.parent / "README.md", DOCS.parent / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]


# A sentence that asks a person to do so, in the imperative or the infinitive.
DELETE_BY_HAND = re.compile(
    r"\b(?:(?:delete|remove|rm|drop|wipe|erase)\b[^.;|]{0,80}?(?:\bfolders?\b|\bdirector|\bbatches\b|\bquarantine\b|_lakehouse)"
    r"|move\b[^.;|]{0,40}\bfolder\b[^.;|]{0,40}\baway\b)",
    re.IGNORECASE,
)

FIRST = ["strategy", "min_small_files", "target_file_bytes", "windows", "data_layout", "mode"]


def knob_table(knobs: Sequence[Field[Any]]) -> str:
    """The knobs as the page has them: what a field says of itself."""
    lines = [
        f"| `{knob.name}` | {default_of(knob)} | {knob.metadata['accepts'].words} | {knob.metadata['line']} |"
        for knob in knobs
    ]
    return "\n".join(["| knob | default | accepted | what it does |", "|---|---|---|---|", *lines])


def default_of(knob: Field[Any]) -> str:
    layers, default = knob.metadata["layers"], knob.default
    if layers:
        return ", ".join(f"{value} in {layer}" for layer, value in layers.items())
    if isinstance(default, str | int | float) and not isinstance(default, bool) and default != "":
        if isinstance(default, str):
            return f"`{default}`"
        return bytes_text(default) if default >= 1024**2 else f"{default:g}"
    return f"`{default!r}`" if default or default is False else "none"


def test_every_knob_has_its_line_and_those_that_a_person_meets_first_come_first() -> None:
    page, knobs = (DOCS / "knobs.md").read_text(), fields(Compaction)
    assert [knob.name for knob in knobs[:6]] == FIRST
    tables = (knob_table(knobs[:6]), knob_table(knobs[6:]), knob_table(fields(Vacuum)))
    assert [table for table in tables if table not in page] == []
    landing = [limit for limit in fields(Landing) if "line" in limit.metadata]
    assert knob_table(landing) in (DOCS / "landing-knobs.md").read_text()
    of_changes = (DOCS / "cdc.md").read_text() + (DOCS / "cdc-sources.md").read_text()
    changes = (
        fields(Dms),
        fields(Debezium),
        [knob for knob in fields(Merge) if "line" in knob.metadata],
    )
    assert [table for table in map(knob_table, changes) if table not in of_changes] == []
    prices = [
        f"| `{price.name}` | {default_of(price)} | {price.metadata['line']} |"
        for price in fields(Prices)
    ]
    assert [line for line in prices if line not in (DOCS / "costs.md").read_text()] == []


def test_every_reason_has_its_line() -> None:
    """The message holds the lines to add, and the reasons that have two lines."""
    pages = ("when.md", "landing-knobs.md", "vacuum.md")
    text = "".join((DOCS / page).read_text() for page in pages)
    counts = {reason: text.count(f"| `{reason.name}` |") for reason in Reason}
    missing = [
        f"| `{reason.name}` | {reason.value} |" for reason, count in counts.items() if not count
    ]
    repeated = [reason.name for reason, count in counts.items() if count > 1]
    assert not missing and not repeated, "\n".join(["missing:", *missing, "repeated:", *repeated])


@pytest.mark.parametrize("page", ["when.md", "knobs.md", "vacuum.md", "costs.md"])
def test_a_page_is_read_in_five_minutes(page: str) -> None:
    """The tables of reasons are for looking up and do not count."""
    text, _, _ = (DOCS / page).read_text().partition("\n## Reasons\n")
    assert len(text.split()) < 1000


@pytest.mark.parametrize("setting", ACCEPTED)
def test_every_setting_has_its_line(setting: str) -> None:
    assert f"| `{setting}` |" in (DOCS / "operations.md").read_text()


def test_every_decision_is_listed() -> None:
    index = (DOCS / "internals" / "decisions" / "README.md").read_text()
    pages = sorted(page.name for page in (DOCS / "internals" / "decisions").glob("0*.md"))
    assert pages and [page for page in pages if f"({page})" not in index] == []


def test_a_decision_is_read_in_two_minutes() -> None:
    """What was given up is a list that grows, so it may be longer."""
    pages = (DOCS / "internals" / "decisions").glob("0*.md")
    word_counts = {page.name: len(re.findall(r"\S*\w\S*", page.read_text())) for page in pages}
    del word_counts["0023-given-up.md"]
    assert {name: count for name, count in word_counts.items() if count > 300} == {}


def test_every_promise_names_a_test_that_is_there() -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", (DOCS / "internals" / "promises.md").read_text())
    assert len(named) > 70
    assert [
        test
        for path, test in named
        if f"def {test}(" not in (DOCS.parent / "lakehouse_tests" / path).read_text()
    ] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    """Both the file and the heading in it."""
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    assert [link for link in links if "://" not in link and not leads_somewhere(page, link)] == []


def leads_somewhere(page: Path, link: str) -> bool:
    name, _, heading = link.partition("#")
    target = page.parent / name if name else page
    return target.exists() and (not heading or heading in headings_of(target))


def headings_of(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings, and those written out."""
    text = page.read_text()
    titles = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    return slugs | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("Or delete the table's folder: then all batches are loaded again", True),
        ("or, if that is lost, to delete _lakehouse/vacuums/x", True),
        ("accepted: to delete its folder and materialize it again", True),
        ("remove _lakehouse/ingest/x and quarantine/x, too", True),
        ("To go on, `rm -r` its batches", True),
        ("Move its folder away, and materialize it again", True),
        ("A table whose folder was deleted knows none", False),
        ("move its folders below _lakehouse/ingest to the new key, too", False),
    ],
)
def test_advice_to_delete_by_hand_is_recognized(text: str, is_found: bool) -> None:
    assert bool(DELETE_BY_HAND.search(text)) == is_found


def test_no_page_advises_to_delete_a_folder_batches_or_a_quarantine() -> None:
    """Rows are lost by it: what a table holds may be nowhere else, and its batches tell what was loaded."""
    pages = [*PAGES, *sorted((DOCS.parent / "examples").rglob("*.md"))]
    found = [
        (page.name, match[0])
        for page in pages
        if "decisions" not in page.parts and page.name != "CHANGELOG.md"
        for match in DELETE_BY_HAND.finditer(page.read_text())
    ]
    assert found == []


def test_no_message_advises_to_delete_a_folder_batches_or_a_quarantine() -> None:
    found = [
        (path.name, match[0])
        for folder in ("lakehouse", "examples")
        for path in sorted((DOCS.parent / folder).rglob("*.py"))
        for text in texts_of(path)
        for match in DELETE_BY_HAND.finditer(text)
    ]
    assert found == []


def texts_of(path: Path) -> Iterator[str]:
    """The texts in a program's code, each whole, without docstrings; what is computed within one is left out."""
    tree = ast.parse(path.read_text())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield "" if id(node) in docstrings else node.value


def test_every_file_on_the_map_is_there() -> None:
    """A name without a folder is beside the one before it."""
    missing: list[str] = []
    for line in (DOCS / "internals" / "architecture.md").read_text().splitlines():
        folder = Path("lakehouse")
        for name in re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:\.py|/))`", line):
            path = (
                (Path(name) if name.startswith("lakehouse_tests") else Path("lakehouse") / name)
                if "/" in name
                else folder / name
            )
            folder = path.parent
            missing += [] if (DOCS.parent / path).exists() else [name]
    assert missing == []


def test_the_tables_of_change_data_are_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "from_cdc.py").write_text(
        re.findall(r"```python\n(.*?)```", (DOCS / "cdc.md").read_text(), flags=re.DOTALL)[0]
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert list(find_tables([importlib.import_module("from_cdc")])) == [
        "bronze/customers",
        "bronze/orders",
    ]


def test_the_queue_of_the_page_is_one_that_s3_may_send_to() -> None:
    text = (DOCS / "landing-queue.md").read_text()
    notification, queue = map(json.loads, re.findall(r"```json\n(.*?)```", text, flags=re.DOTALL))
    [allowed], [told] = (
        json.loads(queue["Policy"])["Statement"],
        notification["QueueConfigurations"],
    )
    assert (allowed["Action"], allowed["Resource"], told["Events"]) == (
        "sqs:SendMessage",
        told["QueueArn"],
        ["s3:ObjectCreated:*"],
    )
    assert re.search(r"^source = (Landing\(.*\))$", text, flags=re.MULTILINE)


def test_the_guide_s_tables_are_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bronze, silver = re.findall(
        r"```python\n(.*?)```", (DOCS / "guide.md").read_text(), flags=re.DOTALL
    )
    package = tmp_path / "from_the_guide"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "bronze.py").write_text(bronze)
    (package / "silver.py").write_text(silver.replace("lakehouse.tables", "from_the_guide"))
    monkeypatch.syspath_prepend(tmp_path)
    modules = [importlib.import_module(f"from_the_guide.{name}") for name in ("bronze", "silver")]
    assert list(find_tables(modules)) == ["bronze/orders", "silver/orders"]


def test_safety_properties_name_tests_that_exist() -> None:
    tests = {path.as_posix() for path in Path(__file__).parent.rglob("test_*.py")}
    for module in (DOCS.parent / "lakehouse").rglob("*.py"):
        docstring = ast.get_docstring(ast.parse(module.read_text())) or ""
        properties = docstring.partition("Safety properties")[2]
        named = re.findall(r"`([a-z0-9_/]*test_\w+\.py)`", properties)
        lost = [name for name in named if not any(path.endswith(f"/{name}") for path in tests)]
        assert lost == [], module
