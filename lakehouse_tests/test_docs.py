"""The documents keep up with the code: what a person can set or be told stands in them."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakehouse.base.reasons import Reason
from lakehouse.lake.declared_tables import module_tables
from lakehouse_tests.support.terminal import is_command

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = [DOCS.parent / "README.md", DOCS.parent / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]


# A sentence that asks a person to do so, in the imperative or the infinitive.
DELETE_BY_HAND = re.compile(
    r"(?<!quarantine )\b(?:(?:delete|remove|rm|drop|wipe|erase)\b[^.;|]{0,80}?(?:\bfolders?\b|\bdirector|\bbatches\b|\bquarantine\b|_lakehouse)"
    r"|move\b[^.;|]{0,40}\bfolder\b[^.;|]{0,40}\baway\b)",
    re.IGNORECASE,
)

USER_PAGES = [DOCS.parent / "README.md", *sorted(DOCS.glob("*.md"))]


@pytest.mark.parametrize("page", USER_PAGES, ids=lambda page: page.name)
def test_a_page_is_read_in_five_minutes(page: Path) -> None:
    assert len(page.read_text().split()) < 1000


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_exists_with_its_options(page: Path) -> None:
    unknown = [line for line in commands_in(page.read_text()) if not is_command(line)]
    assert unknown == []


@pytest.mark.parametrize("page", ["when.md", "vacuum.md"])
def test_every_reason_of_a_page_exists(page: str) -> None:
    row = re.compile(r"^\| (`[A-Z_]+`(?:, `[A-Z_]+`)*) \|", re.MULTILINE)
    cells = row.findall((DOCS / page).read_text())
    named = [name for cell in cells for name in re.findall(r"[A-Z_]+", cell)]
    known = {*Reason.__members__, "LITE", "INVENTORY", "FULL"}
    assert named and [name for name in named if name not in known] == []


def commands_in(text: str) -> Iterator[str]:
    """The calls of `lakehouse` in blocks of code, without the variables before and the comment behind them."""
    for line in text.splitlines():
        call = re.match(r"(?: {4}|\$ )?(?:[A-Z_]+=\S+ )*(lakehouse [a-z][^#|`]*)", line)
        if call and not call[1].endswith(("  ", ",")):
            yield call[1]


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
    tests = DOCS.parent / "lakehouse_tests"
    assert len(named) > 70
    assert [test for path, test in named if f"def {test}(" not in (tests / path).read_text()] == []


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
            if "/" in name:
                folder = Path() if name.startswith("lakehouse_tests") else Path("lakehouse")
            path = folder / name
            folder = path.parent
            missing += [] if (DOCS.parent / path).exists() else [name]
    assert missing == []


PROGRAM = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_tables_of_change_data_are_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "from_cdc.py").write_text(PROGRAM.findall((DOCS / "cdc.md").read_text())[0])
    monkeypatch.syspath_prepend(tmp_path)
    found = module_tables([importlib.import_module("from_cdc")])
    assert list(found) == ["bronze/customers", "bronze/orders"]


@pytest.mark.parametrize("page", ["guide.md", "tables.md"])
def test_the_tables_of_a_page_are_tables(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bronze, silver = PROGRAM.findall((DOCS / page).read_text())
    name = f"from_{page.removesuffix('.md')}"
    package = tmp_path / name
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "bronze.py").write_text(bronze)
    (package / "silver.py").write_text(silver.replace("from shop", f"from {name}"))
    monkeypatch.syspath_prepend(tmp_path)
    modules = [importlib.import_module(f"{name}.{each}") for each in ("bronze", "silver")]
    assert list(module_tables(modules)) == ["bronze/orders", "silver/orders"]


def test_safety_properties_name_tests_that_exist() -> None:
    tests = {path.as_posix() for path in Path(__file__).parent.rglob("test_*.py")}
    for module in (DOCS.parent / "lakehouse").rglob("*.py"):
        docstring = ast.get_docstring(ast.parse(module.read_text())) or ""
        properties = docstring.partition("Safety properties")[2]
        named = re.findall(r"`([a-z0-9_/]*test_\w+\.py)`", properties)
        lost = [name for name in named if not any(path.endswith(f"/{name}") for path in tests)]
        assert lost == [], module
