"""The house's law: who may import whom, and how code in it is built. Each rule is shown to catch what it forbids."""

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import lakehouse

HOUSE = Path(__file__).resolve().parent.parent

# room -> what it may import beside the standard library; a name allows all below it, with a dot first it is our own; `None` is anything.
DOORS: dict[str, tuple[str, ...] | None] = {
    "core": (".core",),
    "tables": (*(f".{name}" for name in lakehouse.__all__), ".tables", "pyspark.sql"),
    "runtime": (".core", ".runtime", "psutil", "yaml"),
    "report": (".core", ".report", "jinja2", "markupsafe"),
    "engine": (
        *(
            ".core",
            ".runtime",
            ".engine",
            ".retain.run.read",  # within functions, and only for a table with an archive
            "pyspark",
            "delta",
            "deltalake",
            "pyarrow",
            "cramjam",
            "fastavro",
            "numpy",
            "pandas",
        ),
        *("boto3", "botocore", "prometheus_client"),
    ),
    "defs": (
        ".core",
        ".engine",
        ".runtime",
        ".report",
        ".retain.asset",
        ".defs",
        "dagster",
        "dagster_aws",
        "dagster_pyspark",
        "sqlalchemy",
    ),
    "plan": (".core", ".retain.plan"),  # decides in a capability's folder, as pure as the core
    "retain": (
        *(".core", ".engine", ".defs", ".cli", ".runtime", ".retain"),
        *("pyspark", "pyarrow", "dagster", "click"),
    ),
    "definitions": (".core", ".tables", ".defs", ".retain", ".replay", "dagster"),
    "cli": (
        *(
            ".core",
            ".tables",
            ".engine",
            ".runtime",
            ".report",
            ".replay",
            ".definitions",
            ".retain",
            ".defs.run_ownership",
            ".defs.failures",
            ".defs.table_assets",
            ".cli",
        ),
        *("click", "rich", "dagster"),
    ),
    "replay": None,
    "__init__": (".core", ".defs.adoption", ".retain.run.read"),
    "__main__": (".cli",),
}
FILE_LINES = 700
BANNED = frozenset(
    {
        "utils",
        "helpers",
        "common",
        "manager",
        "handler",
        "misc",
        "looks",
        "past",
        "story",
        "worth",
        "rhythm",
        "hands",
        "till",
        "warden",
    }
    | {"keeper", "books", "sift", "doomed", "moment", "doubts"}
)
# Only what Dagster inspects must have real annotations: it resolves them when a definition is made.
EVALUATED = ("defs", "definitions", "replay")
# A function that writes to a terminal or a page -> where it may be called: there texts are escaped, or are none from outside.
PRINTERS = {
    "print": (
        "cli/output.py",
        "base/bound_process.py",
        "assets/dagster_dev.py",
        "spark/server/jars.py",
        "assets/runs.py",
    ),
    "echo": ("cli/output.py",),
    "secho": (),
    "stdout.write": (),
    "stderr.write": (),
    "MetadataValue.md": ("assets/metadata.py",),
    "MarkdownMetadataValue": (),
    "Markdown": ("assets/metadata.py",),
}
# The brackets keep this file from breaking its own rule.
PLACES = re.compile(r"(?<![\w.-])/(?:[r]oot|[U]sers|[w]ork)/|--(?:extra-)?[i]ndex-url")
TEXTS = {".py", ".md", ".toml", ".yaml", ".xml", ".txt", ".properties", ".sha256", ""}
HIDDEN = {
    ".venv",
    ".git",
    ".lakehouse",
    ".hypothesis",
    ".pytest_cache",
    ".ruff_cache",
    "__pycache__",
    "build",
}

type_of_rule = Callable[[Path], Iterator[str]]


def room_of(path: Path, root: Path) -> str:
    """The first folder, or `plan` for what decides within a capability's folder."""
    parts = path.relative_to(root / "lakehouse").parts
    return "plan" if parts[1:2] == ("plan",) else parts[0].removesuffix(".py")


def parsed(root: Path, rooms: tuple[str, ...] | None = None) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted((root / "lakehouse").rglob("*.py")):
        if rooms is None or room_of(path, root) in rooms:
            yield path, tree_of(path.read_text())


@cache
def tree_of(text: str) -> ast.Module:
    """The rules read the same files one after the other."""
    return ast.parse(text)


@pytest.fixture(scope="module", autouse=True)
def trees_are_kept_for_this_file_alone() -> Iterator[None]:
    yield
    tree_of.cache_clear()


def imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every module that is named in an import, wherever it stands, and those that `import_module` gets as plain text."""
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from ((node.lineno, name.name) for name in node.names)
            case ast.ImportFrom(level=0, module="lakehouse"):
                yield from ((node.lineno, f"lakehouse.{name.name}") for name in node.names)
            case ast.ImportFrom():
                yield node.lineno, "." * node.level + (node.module or "")
            case ast.Call(
                func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]
            ):
                yield node.lineno, name


def is_let_in(name: str, allowed: tuple[str, ...]) -> bool:
    """The bare package opens no door: only `tables` may ask it for its words."""
    return (
        name == "lakehouse"
        or name.split(".")[0] in sys.stdlib_module_names
        or any(
            f"{name}.".startswith(f"lakehouse{each}." if each.startswith(".") else f"{each}.")
            for each in allowed
        )
    )


def unlawful_imports(root: Path) -> Iterator[str]:
    for path, tree in parsed(root):
        allowed = DOORS.get(room_of(path, root), ())
        if allowed is not None:
            yield from (
                f"{path}:{line} imports {name}"
                for line, name in imports(tree)
                if not is_let_in(name, allowed)
            )


def long_files(root: Path) -> Iterator[str]:
    for path, _ in parsed(root):
        lines = len(path.read_text().splitlines())
        if lines > FILE_LINES:
            yield f"{path} has {lines} lines"


def import_circles(root: Path) -> Iterator[str]:
    """Modules that cannot be imported without each other; an import within a function, or for types alone, is none."""
    names = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for path, _ in parsed(root)
    }
    graph = {
        name: {
            wanted
            for node in tree_of(path.read_text()).body
            for module, imported in _names_in(node)
            for wanted in [f"{module}.{imported}" if f"{module}.{imported}" in names else module]
            if wanted in names
        }
        for name, path in names.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield f"a circle of imports: {' -> '.join(error.args[1])}"


def _names_in(node: ast.stmt) -> Iterator[tuple[str, str]]:
    match node:
        case ast.ImportFrom(level=0, module=str(module)):
            yield from ((module, name.name) for name in node.names)
        case ast.Import():
            yield from ((name.name, "") for name in node.names)
        case _:
            return


def types_of_one_name(root: Path) -> Iterator[str]:
    """Public classes whose name another public class has."""
    places: dict[str, list[str]] = {}
    for path, tree in parsed(root):
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(path))
    yield from (
        f"{name} is in {' and in '.join(found)}" for name, found in places.items() if len(found) > 1
    )


def banned_names(root: Path) -> Iterator[str]:
    """Names that say nothing, or that only this house would understand; constants are what people see on pages, and stay."""
    for path, tree in parsed(root):
        names = {path.stem} | {
            name
            for node in ast.walk(tree)
            for name in [
                getattr(node, "name", None),
                getattr(node, "id", None),
                getattr(node, "arg", None),
            ]
            if isinstance(name, str) and not name.isupper()
        }
        said = {
            name: {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)} & BANNED
            for name in sorted(names)
        }
        yield from (f"{path} says {name}" for name, words in said.items() if words)


def postponed_annotations(root: Path) -> Iterator[str]:
    for path, tree in parsed(root, EVALUATED):
        if any(name == "__future__" for _, name in imports(tree)):
            yield f"{path} postpones its annotations"


def undescribed(root: Path) -> Iterator[str]:
    for path, tree in parsed(root):
        if not ast.get_docstring(tree):
            yield f"{path} has no docstring"
        yield from (
            f"{path}:{node.lineno} {node.name} has no docstring"
            for node in public(tree)
            if not ast.get_docstring(node)
        )


def public(
    within: ast.Module | ast.ClassDef,
) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for node in within.body:
        if isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        ) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public(node)


def unescaped_texts(root: Path) -> Iterator[str]:
    """Texts that a terminal or a page would show without the one function that makes a text from outside harmless there."""
    last_names = {printer.rpartition(".")[2] for printer in PRINTERS}
    for path, tree in parsed(root):
        name = path.relative_to(root / "lakehouse").as_posix()
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or _last_name(node.func) not in last_names:
                continue
            called = f".{ast.unparse(node.func)}"
            if any(
                called.endswith(f".{printer}") and name not in places
                for printer, places in PRINTERS.items()
            ):
                yield f"{path}:{called} at line {node.lineno}"


def _last_name(called: ast.expr) -> str | None:
    return getattr(called, "attr", None) or getattr(called, "id", None)


def places_of_one_machine(root: Path) -> Iterator[str]:
    for path in texts(root):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if PLACES.search(line):
                yield f"{path}:{number} names a place of one machine: {line.strip()[:80]}"


def texts(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name in HIDDEN or path.is_symlink():
            continue
        if path.is_dir():
            yield from texts(path)
        elif path.suffix in TEXTS:
            yield path


# A rule, and files that break it: where each lies, and what it says.
RULES: dict[str, tuple[type_of_rule, *tuple[str, ...]]] = {
    "core imports the standard library alone": (unlawful_imports, "core/x.py", "import pyarrow"),
    "core does not import engine": (
        unlawful_imports,
        "core/x.py",
        "def f():\n    from lakehouse.store import Store",
    ),
    "core does not import engine by its package": (
        unlawful_imports,
        "core/x.py",
        "from lakehouse import engine",
    ),
    "core has no relative imports": (unlawful_imports, "core/x.py", "from ..engine import store"),
    "engine knows no Dagster": (
        unlawful_imports,
        "engine/a/x.py",
        "def f():\n    import dagster as dg",
    ),
    "engine does not import tables by name": (
        unlawful_imports,
        "engine/x.py",
        "import importlib\nimportlib.import_module('lakehouse.tables')",
    ),
    "defs does not import tables": (
        unlawful_imports,
        "defs/x.py",
        "import lakehouse.tables.bronze",
    ),
    "defs does not import the world outside": (
        unlawful_imports,
        "defs/x.py",
        "from lakehouse.replay import flights",
    ),
    "defs does not import Spark": (unlawful_imports, "defs/x.py", "if 0:\n    import pyspark"),
    "tables see pyspark.sql alone": (unlawful_imports, "tables/x.py", "import pyspark.pandas"),
    "tables have one door": (
        unlawful_imports,
        "tables/x.py",
        "from lakehouse.declare.table import Table",
    ),
    "the public door is for tables": (
        unlawful_imports,
        "engine/x.py",
        "from lakehouse import Table",
    ),
    "a room that is not in the law has no doors": (
        unlawful_imports,
        "utils/x.py",
        "import lakehouse.core",
    ),
    "files are short": (long_files, "core/x.py", "x = 1\n" * (FILE_LINES + 1)),
    "no module needs itself": (
        import_circles,
        "core/x.py",
        "from lakehouse.core import y\n",
        "core/y.py",
        "import lakehouse.core.x",
    ),
    "a type's name is its own": (
        types_of_one_name,
        "core/x.py",
        "class Share: ...",
        "engine/x.py",
        "class Share: ...",
    ),
    "a name says what it is": (banned_names, "core/x.py", "doomed_files = []"),
    "no module is for whatever is left": (banned_names, "core/utils.py", ""),
    "Dagster sees real annotations": (
        postponed_annotations,
        "defs/x.py",
        "from __future__ import annotations",
    ),
    "so do the definitions": (
        postponed_annotations,
        "definitions.py",
        "from __future__ import annotations",
    ),
    "a module says what it is for": (undescribed, "core/x.py", "x = 1"),
    "a public function says what one gets": (undescribed, "core/x.py", '"""X."""\ndef f(): ...'),
    "a public method does, too": (
        undescribed,
        "core/x.py",
        '"""X."""\nclass A:\n    """A."""\n    def f(self): ...',
    ),
    "a command prints by its own functions": (
        unescaped_texts,
        "cli/x.py",
        '"""X."""\nimport click\nclick.echo("x")',
    ),
    "nothing else prints": (unescaped_texts, "engine/x.py", '"""X."""\nprint("x")'),
    "the page's Markdown is made at one place": (
        unescaped_texts,
        "defs/x.py",
        '"""X."""\nimport dagster as dg\ndg.MetadataValue.md("x")',
    ),
    "no text is called Markdown elsewhere": (
        unescaped_texts,
        "defs/x.py",
        '"""X."""\nMarkdown("x")',
    ),
    "no code names a place of one machine": (
        places_of_one_machine,
        "core/x.py",
        "x = '/work" + "/shared'",
    ),
    "no requirement names where it comes from": (
        places_of_one_machine,
        "requirements.txt",
        "--index" + "-url https://x",
    ),
}


@pytest.mark.parametrize(
    "rule", sorted({rule for rule, *_ in RULES.values()}, key=lambda rule: rule.__name__)
)
def test_the_house_keeps_its_law(rule: type_of_rule) -> None:
    assert list(rule(HOUSE)) == []


@pytest.mark.parametrize(
    ("rule", "files"), [(rule, files) for rule, *files in RULES.values()], ids=RULES
)
def test_a_breach_is_caught(rule: type_of_rule, files: list[str], tmp_path: Path) -> None:
    for name, text in zip(files[::2], files[1::2], strict=True):
        path = tmp_path / "lakehouse" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert len(list(rule(tmp_path))) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "core/x.py",
            "import json\nfrom lakehouse.base.errors import Refused\nfrom lakehouse.core import layout",
        ),
        (
            "engine/x.py",
            "import boto3\nfrom botocore.config import Config\nfrom pyspark.sql import functions",
        ),
        ("replay/x.py", "import pandas\nfrom lakehouse.defs import keys"),
        (
            "tables/silver.py",
            "from lakehouse import Table\nfrom lakehouse.tables import bronze\nfrom pyspark.sql.functions import col",
        ),
    ],
)
def test_what_the_law_allows_is_let_in(name: str, text: str, tmp_path: Path) -> None:
    planted = tmp_path / "lakehouse" / name
    planted.parent.mkdir(parents=True)
    planted.write_text(text)
    assert list(unlawful_imports(tmp_path)) == []


def test_every_room_is_in_the_law() -> None:
    assert {room_of(path, HOUSE) for path, _ in parsed(HOUSE)} - set(DOORS) == set()


def test_core_loads_nothing_from_outside() -> None:
    """In a fresh interpreter, all of core at once."""
    modules = [
        ".".join(path.relative_to(HOUSE).with_suffix("").parts)
        for path, _ in parsed(HOUSE, ("core",))
    ]
    foreign = (
        "pyspark",
        "deltalake",
        "dagster",
        "boto3",
        "pyarrow",
        "pandas",
        "lakehouse.engine",
        "lakehouse.defs",
    )
    script = f"import sys, {', '.join(modules)}; print([name for name in {foreign!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=HOUSE, capture_output=True, text=True, check=True
    )
    assert len(modules) > 10 and done.stdout.strip() == "[]"


def test_the_public_door_has_these_names_and_loads_nothing_until_it_is_asked() -> None:
    names = """SHORT_RETENTION_RISK Adopted AfterWrite
        Append Archive BinPacking BySensor Compaction Csv Debezium Dms History Landing
        LiquidClustering MaintainedTables Merge
        Overwrite Prices Scheduled Table Ttl Vacuum ZOrder maintain
        read table"""
    assert {*lakehouse.__all__} == {*names.split()} and all(
        hasattr(lakehouse, name) for name in lakehouse.__all__
    )
    script = "import sys, lakehouse; print([name for name in sys.modules if name.startswith('lakehouse.')])"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=HOUSE, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
