"""The documents keep up with the code: what a person can set or be told stands in them."""

import importlib
import re
from dataclasses import fields
from pathlib import Path

import pytest

from benchmarks.mutant_rules import RULES
from benchmarks.safety_page import tables
from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.declaration.table import find_tables
from lakehouse.core.reasons import Reason
from lakehouse.core.settings import ACCEPTED
from lakehouse.core.vacuum import Vacuum

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = [DOCS.parent / "README.md", DOCS.parent / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize("knob", [knob.name for kind in (Compaction, Vacuum) for knob in fields(kind)])
def test_every_knob_has_its_line(knob: str) -> None:
    assert f"| `{knob}` |" in (DOCS / "policies.md").read_text()


@pytest.mark.parametrize("reason", [reason.name for reason in Reason])
def test_every_reason_has_its_line(reason: str) -> None:
    assert f"| `{reason}` |" in (DOCS / "policies.md").read_text()


@pytest.mark.parametrize("setting", ACCEPTED)
def test_every_setting_has_its_line(setting: str) -> None:
    assert f"| `{setting}` |" in (DOCS / "operations.md").read_text()


def test_every_decision_is_listed() -> None:
    index = (DOCS / "decisions" / "README.md").read_text()
    pages = sorted(page.name for page in (DOCS / "decisions").glob("0*.md"))
    assert pages and [page for page in pages if f"({page})" not in index] == []


def test_every_safety_rule_is_listed() -> None:
    """`python -m benchmarks.mutants --table` writes the tables anew."""
    assert (DOCS / "safety.md").read_text().endswith(tables(RULES))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    assert [link for link in links if not link.startswith("http") and not (page.parent / link).exists()] == []


def test_every_file_on_the_map_is_there() -> None:
    """A name without a folder is beside the one before it."""
    missing: list[str] = []
    for line in (DOCS / "architecture.md").read_text().splitlines():
        folder = Path("lakehouse")
        for name in re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:\.py|/))`", line):
            path = (Path(name) if name.startswith("lakehouse_tests") else Path("lakehouse") / name) if "/" in name else folder / name
            folder = path.parent
            missing += [] if (DOCS.parent / path).exists() else [name]
    assert missing == []


def test_the_guide_s_tables_are_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bronze, silver = re.findall(r"```python\n(.*?)```", (DOCS / "guide.md").read_text(), flags=re.DOTALL)
    package = tmp_path / "from_the_guide"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "bronze.py").write_text(bronze)
    (package / "silver.py").write_text(silver.replace("lakehouse.tables", "from_the_guide"))
    monkeypatch.syspath_prepend(tmp_path)
    modules = [importlib.import_module(f"from_the_guide.{name}") for name in ("bronze", "silver")]
    assert list(find_tables(modules)) == ["bronze/orders", "silver/orders"]
