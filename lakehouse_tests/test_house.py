"""The house's law: who may import whom, and how code in it is built. Each rule is shown to catch what it forbids."""

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import lakehouse
from lakehouse.base.reasons import Reason

HOUSE = Path(__file__).resolve().parent.parent

# What every room above the ground may use.
GROUND = "base delta declare plan store delta.log lake"
# room -> the rooms that it may use. `plan` is whatever decides, in any capability; `door` is whatever shows a capability in Dagster or
# in the terminal. A room with ~ is used within functions alone, where a table asks for it: the room can be deleted, or its import waits.
ARROWS = {
    "base": "",
    "delta": "base",
    "declare": "base delta",
    "plan": "base delta declare plan",
    "store": "base",
    "delta.log": "base delta store",
    "spark.server": "base",
    "lake": "base delta declare store delta.log spark.server spark~",
    "spark": "base delta spark.server",
    "write": f"{GROUND} spark",
    "compact": f"{GROUND} spark spark.server",
    "land": f"{GROUND} spark write cdc~",
    "materialize": f"{GROUND} spark write land retain~",
    "cdc": f"{GROUND} spark write land",
    "vacuum": f"{GROUND} spark compact",
    "evolve": f"{GROUND} spark write compact land materialize",
    "retain": f"{GROUND} spark compact vacuum",
    "init": f"{GROUND} assets land",
    "adopt": GROUND,
    "doctor": f"{GROUND} spark spark.server",
    "query": f"{GROUND} spark spark.server",
    "watch": f"{GROUND} spark assets compact land vacuum evolve",
    "report": f"{GROUND} compact watch",
    "backtest": "",
    "assets": f"{GROUND} spark spark.server write compact",
    "cli": f"{GROUND} assets spark spark.server door~ definitions~",
    "door": f"{GROUND} spark spark.server write assets cli compact land materialize vacuum evolve watch adopt doctor init query door retain~ report~",
    "tables": "__init__",
    "replay": f"{GROUND} __init__ tables cli",
    "definitions": "base declare lake assets door",
    "__init__": "base~ declare~ door~ retain~",
    "__main__": "cli",
}
# What plans must not use of the ground: they get the time as an argument, and know no machine.
IMPURE = ("base.clock", "base.processes", "base.installation")
# The capabilities that can be deleted, with the tests of them.
DELETABLE = ("report", "backtest", "retain", "cdc", "replay")
LIBRARIES = {
    "base": "dotenv psutil",
    "declare": "cronsim",
    "store": "boto3 botocore",
    "delta.log": "pyarrow",
    "lake": "deltalake pyarrow pyspark",
    "spark": "delta pyspark",
    "write": "pyspark",
    "compact": "deltalake pyarrow pyspark",
    "land": "boto3 botocore fastavro cramjam numpy pyarrow pyspark",
    "materialize": "pyspark",
    "cdc": "pyspark",
    "vacuum": "deltalake pyarrow pyspark",
    "evolve": "pyspark",
    "retain": "pyspark",
    "doctor": "pyspark",
    "watch": "prometheus_client pyarrow pyspark",
    "query": "deltalake pyarrow pyspark",
    "report": "jinja2 markupsafe",
    "assets": "dagster dagster_aws dagster_pyspark psutil sqlalchemy yaml",
    "cli": "click rich dagster",
    "door": "click dagster",
    "tables": "pyspark",
    "replay": "click dagster numpy pandas pyarrow pyspark",
    "definitions": "dagster",
}
DOORS = ("asset", "command", "sensor", "check", "maintain")
FILE_LINES = 700
FUNCTION_LINES = 50
BANNED = {"utils", "helpers", "common", "manager", "handler", "misc", "looks", "past", "story"}
BANNED |= {"worth", "rhythm", "hands", "till", "warden", "keeper", "books", "sift", "doomed"}
BANNED |= {"moment", "doubts"}
# Only what Dagster inspects must have real annotations: it resolves them when a definition is made.
EVALUATED = ("assets", "door", "definitions", "replay")
# A function that writes to a terminal or a page -> where it may be called: there texts are escaped, or are none from outside.
PRINTERS = {
    "print": (
        *("cli/output.py", "base/processes.py", "assets/dagster_dev.py"),
        *("spark/server/jars.py", "assets/runs.py"),
    ),
    "echo": ("cli/output.py",),
    "secho": (),
    "stdout.write": (),
    "stderr.write": (),
    "MetadataValue.md": (),
    "MarkdownMetadataValue": (),
}
# The brackets keep this file from breaking its own rule.
PLACES = re.compile(r"(?<![\w.-])/(?:[r]oot|[U]sers|[w]ork)/|--(?:extra-)?[i]ndex-url")
TEXTS = {".py", ".md", ".toml", ".yaml", ".xml", ".txt", ".properties", ".sha256", ""}
HIDDEN = {".venv", ".git", ".lakehouse", "__pycache__", "build"}
HIDDEN |= {".hypothesis", ".pytest_cache", ".ruff_cache"}

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
type_of_rule = Callable[[Path], Iterator[str]]


def room_of(path: Path, root: Path) -> str:
    """The first folder; apart from plans and doors, which each capability has, and two folders of their own."""
    return room_of_module(path.relative_to(root / "lakehouse").with_suffix("").parts)


def room_of_module(parts: tuple[str, ...]) -> str:
    if "plan" in parts[1:]:
        return "plan"
    if len(parts) > 1 and parts[-1].split("_")[-1] in DOORS:
        return "door"
    two = ".".join(parts[:2])
    return two if two in ARROWS else parts[0]


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


def is_for_types(block: ast.If) -> bool:
    return ast.unparse(block.test) == "TYPE_CHECKING"


def imports(tree: ast.Module) -> Iterator[tuple[int, bool, str]]:
    """Every module that is named in an import: its line, whether the import waits in a function, and its name.

    Modules that `import_module` gets as plain text count, too.
    """
    blocks = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
    blocks += [each for each in tree.body if isinstance(each, ast.If) and is_for_types(each)]
    waiting = {id(node) for block in blocks for node in ast.walk(block)}
    for node in ast.walk(tree):
        waits = id(node) in waiting
        match node:
            case ast.Import():
                yield from ((node.lineno, waits, name.name) for name in node.names)
            case ast.ImportFrom(level=0, module=str(module)):
                yield from ((node.lineno, waits, f"{module}.{name.name}") for name in node.names)
            case ast.ImportFrom():
                yield node.lineno, waits, "." * node.level + (node.module or "")
            case ast.Call(
                func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]
            ):
                yield node.lineno, waits, name


def unlawful_imports(root: Path) -> Iterator[str]:
    modules = {
        path.relative_to(folder).with_suffix("").parts
        for folder in {root, HOUSE}
        for path in (folder / "lakehouse").rglob("*.py")
    }
    for path, tree in parsed(root):
        room = room_of(path, root)
        own = f"lakehouse.{path.relative_to(root / 'lakehouse').parts[0]}."
        for line, waits, name in imports(tree):
            if room == "door" and name.startswith(own):
                continue  # a door shows all of its own capability
            if not _is_let_in(room, name, waits, modules):
                yield f"{path}:{line} imports {name}"


def _is_let_in(room: str, name: str, waits: bool, modules: set[tuple[str, ...]]) -> bool:
    parts = tuple(name.split("."))
    if parts[0] in sys.stdlib_module_names:
        return True
    if parts[0] != "lakehouse":
        return parts[0] in LIBRARIES.get(room, "").split()
    if room == "plan" and ".".join(parts[1:3]) in IMPURE:
        return False
    if parts not in modules and (parts[:-1] in modules or (*parts[:-1], "__init__") in modules):
        parts = parts[:-1]  # what is imported is a name of this module
    wanted = room_of_module(parts[1:]) if parts[1:] else "__init__"
    allowed = ARROWS.get(room, "").split()
    return wanted in (room, *allowed) or (waits and f"{wanted}~" in allowed)


def long_files(root: Path) -> Iterator[str]:
    for path, _ in parsed(root):
        lines = len(path.read_text().splitlines())
        if lines > FILE_LINES:
            yield f"{path} has {lines} lines"


def long_functions(root: Path) -> Iterator[str]:
    """Functions whose body, without the docstring, has more than 50 lines."""
    for path, tree in parsed(root):
        for node in ast.walk(tree):
            if not isinstance(node, FUNCTIONS):
                continue
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
            if lines > FUNCTION_LINES:
                yield f"{path}:{node.lineno} {node.name} has {lines} lines"


def import_circles(root: Path) -> Iterator[str]:
    """Modules that cannot be imported without each other; an import within a function, or for types alone, is none."""
    trees = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): tree
        for path, tree in parsed(root)
    }
    graph: dict[str, set[str]] = {}
    for name, tree in trees.items():
        named = [each for node in tree.body for each in _names_in(node)]
        modules = {f"{module}.{imported}" for module, imported in named} & trees.keys()
        rest = {module for module, each in named if f"{module}.{each}" not in trees}
        graph[name] = modules | (rest & trees.keys())
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
        kinds = ("name", "id", "arg")
        names = {getattr(node, kind, None) for node in ast.walk(tree) for kind in kinds}
        names = {name for name in names if isinstance(name, str) and not name.isupper()}
        for name in sorted(names | {path.stem}):
            words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}
            if words & BANNED:
                yield f"{path} says {name}"


def postponed_annotations(root: Path) -> Iterator[str]:
    for path, tree in parsed(root, EVALUATED):
        if any(name.startswith("__future__") for *_, name in imports(tree)):
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


WAITING = "def f():\n    from {} import {}"
POSTPONED = "from __future__ import annotations"
DOCUMENTED = '"""X."""\n'
# Of each rule the files that break it: where each lies, and what it says.
BREACHES: dict[type_of_rule, dict[str, tuple[str, ...]]] = {
    unlawful_imports: {
        "a plan imports no library": ("vacuum/plan/x.py", "import pyarrow"),
        "a plan does not carry out": (
            "compact/plan.py",
            WAITING.format("lakehouse.store", "Store"),
        ),
        "a plan has no clock": ("land/plan/x.py", "from lakehouse.base import clock"),
        "no room imports by dots": ("base/x.py", "from ..store import disk"),
        "what runs knows no Dagster": ("compact/x.py", "def f():\n    import dagster as dg"),
        "no room imports tables by name": (
            "lake/x.py",
            "import importlib\nimportlib.import_module('lakehouse.tables')",
        ),
        "doors do not import tables": ("land/asset.py", "import lakehouse.tables.bronze"),
        "doors do not import the world outside": (
            "land/sensor.py",
            "from lakehouse.replay import flights",
        ),
        "doors do not import Spark": ("vacuum/asset.py", "if 0:\n    import pyspark"),
        "what can be deleted is not needed": ("land/x.py", "from lakehouse.cdc import read"),
        "compaction knows no vacuum": ("compact/x.py", WAITING.format("lakehouse.vacuum", "run")),
        "tables see pyspark alone": ("tables/x.py", "import pandas"),
        "tables have one door": ("tables/x.py", "from lakehouse.declare.table import Table"),
        "the public door is for tables": ("spark/x.py", "from lakehouse import Table"),
        "a room that is not in the law has no doors": (
            "utils/x.py",
            "import lakehouse.base.errors",
        ),
    },
    long_files: {"files are short": ("base/x.py", "x = 1\n" * (FILE_LINES + 1))},
    long_functions: {
        "functions are short": ("base/x.py", "def f():\n" + "    x = 1\n" * (FUNCTION_LINES + 1))
    },
    import_circles: {
        "no module needs itself": (
            *("base/x.py", "from lakehouse.base import y\n"),
            *("base/y.py", "import lakehouse.base.x"),
        )
    },
    types_of_one_name: {
        "a type's name is its own": (
            *("base/x.py", "class Share: ..."),
            *("store/x.py", "class Share: ..."),
        )
    },
    banned_names: {
        "a name says what it is": ("base/x.py", "doomed_files = []"),
        "no module is for whatever is left": ("base/utils.py", ""),
    },
    postponed_annotations: {
        "Dagster sees real annotations": ("assets/x.py", POSTPONED),
        "so do the definitions": ("definitions.py", POSTPONED),
    },
    undescribed: {
        "a module says what it is for": ("base/x.py", "x = 1"),
        "a public function says what one gets": ("base/x.py", f"{DOCUMENTED}def f(): ..."),
        "a public method does, too": (
            "base/x.py",
            f'{DOCUMENTED}class A:\n    """A."""\n    def f(self): ...',
        ),
    },
    unescaped_texts: {
        "a command prints by its own functions": ("cli/x.py", f'{DOCUMENTED}click.echo("x")'),
        "nothing else prints": ("store/x.py", f'{DOCUMENTED}print("x")'),
        "the page shows texts, not Markdown": (
            "assets/x.py",
            f'{DOCUMENTED}dg.MetadataValue.md("x")',
        ),
    },
    places_of_one_machine: {
        "no code names a place of one machine": ("base/x.py", "x = '/work" + "/shared'"),
        "no requirement names where it comes from": (
            "requirements.txt",
            "--index" + "-url https://x",
        ),
    },
}


@pytest.mark.parametrize("rule", BREACHES)
def test_the_house_keeps_its_law(rule: type_of_rule) -> None:
    assert list(rule(HOUSE)) == []


@pytest.mark.parametrize(
    ("rule", "files"),
    [
        pytest.param(rule, files, id=name)
        for rule, breaches in BREACHES.items()
        for name, files in breaches.items()
    ],
)
def test_a_breach_is_caught(rule: type_of_rule, files: tuple[str, ...], tmp_path: Path) -> None:
    for name, text in zip(files[::2], files[1::2], strict=True):
        path = tmp_path / "lakehouse" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert len(list(rule(tmp_path))) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("base/x.py", "import json\nfrom lakehouse.base import text"),
        (
            "land/x.py",
            f"from botocore.config import Config\n{WAITING.format('lakehouse.cdc', 'x')}",
        ),
        ("replay/x.py", "import pandas\nfrom lakehouse.cli import output"),
        ("vacuum/plan/x.py", "from lakehouse.compact.plan.compaction import f"),
        ("tables/silver.py", "from lakehouse import Table\nfrom lakehouse.tables import bronze"),
        ("tables/silver.py", "from pyspark.sql.functions import col"),
    ],
)
def test_what_the_law_allows_is_let_in(name: str, text: str, tmp_path: Path) -> None:
    planted = tmp_path / "lakehouse" / name
    planted.parent.mkdir(parents=True)
    planted.write_text(text)
    assert list(unlawful_imports(tmp_path)) == []


def test_every_room_is_in_the_law_and_no_two_need_each_other() -> None:
    assert {room_of(path, HOUSE) for path, _ in parsed(HOUSE)} - set(ARROWS) == set()
    arrows = {
        room: {each for each in allowed.split() if not each.endswith("~") and each != room}
        for room, allowed in ARROWS.items()
    }
    assert len([*TopologicalSorter(arrows).static_order()]) >= len(ARROWS)


def test_a_reason_that_nobody_gives_is_not_in_the_list() -> None:
    code = "".join(path.read_text() for path in (HOUSE / "lakehouse").rglob("*.py"))
    assert {each.name for each in Reason} <= {*re.findall(r"\bReason\.(\w+)", code)}


def printed(script: str) -> str:
    """What a script prints in a fresh interpreter."""
    command = [sys.executable, "-c", script]
    return subprocess.run(command, cwd=HOUSE, capture_output=True, text=True, check=True).stdout


def test_plans_load_nothing_from_outside() -> None:
    """All plans at once."""
    modules = [
        ".".join(path.relative_to(HOUSE).with_suffix("").parts)
        for path, _ in parsed(HOUSE, ("plan",))
    ]
    foreign = ("pyspark", "deltalake", "dagster", "boto3", "pyarrow", "pandas", "lakehouse.store")
    script = f"import sys, {', '.join(modules)}; print([name for name in {foreign!r} if name in sys.modules])"
    assert len(modules) > 10 and printed(script).strip() == "[]"


def test_upkeep_of_other_projects_loads_neither_landing_nor_change_data() -> None:
    script = "import sys, lakehouse.adopt.maintain; print(*(name for name in sys.modules if name.startswith('lakehouse.')))"
    names = printed(script).split()
    assert len(names) <= 130
    assert not {name.split(".")[1] for name in names} & {"land", "cdc", "retain", "report"}


# With each, the house has to be complete: definitions, the terminal's help, and a plan of each table.
WITHOUT = """
import sys
import sysconfig
from click.testing import CliRunner
from lakehouse.cli.app import commands
from lakehouse.definitions import defs
help = CliRunner().invoke(commands, ["--help"])
plan = CliRunner().invoke(commands, ["plan", "--json"])
print(len(defs.resolve_all_asset_specs()), help.exit_code, plan.exit_code, sorted(commands.list_commands(None)))
print([name for name in sys.modules if name.split(".")[:2][-1] in sys.argv[1:]])
"""


def copied_without(folders: Sequence[str], copy: Path) -> dict[str, str]:
    """Copies the house without these folders and their tests; returns the environment of Python there.

    Without `site` (-S), an editable installation cannot lend the copy what it lacks.
    """
    top = {HOUSE / "lakehouse", HOUSE / "lakehouse_tests"}

    def left_out(folder: str, _: list[str]) -> set[str]:
        return {*HIDDEN, *(folders if Path(folder) in top else ())}

    shutil.copytree(HOUSE, copy, ignore=left_out)
    mine = {name: value for name, value in os.environ.items() if not name.startswith("LAKEHOUSE_")}
    path = os.pathsep.join([str(copy), sysconfig.get_path("purelib")])
    return {**mine, "PYTHONPATH": path, "LAKEHOUSE_HOME": str(copy / "home")}


def without(folders: Sequence[str], copy: Path) -> list[str]:
    """The lines that `WITHOUT` prints in a copy of the house that lacks these folders."""
    environ = copied_without(folders, copy)
    done = subprocess.run(
        [sys.executable, "-S", "-c", WITHOUT, *folders],
        cwd=copy,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_what_can_be_deleted_is_deletable(tmp_path: Path) -> None:
    figures, loaded = without(DELETABLE, tmp_path / "house")
    asset_count, help_code, plan_code, names = figures.split(" ", 3)
    assert (help_code, plan_code, loaded) == ("0", "0", "[]") and int(asset_count) > 10
    assert not {"report", "backtest", "archive", "restore", "ttl", "tiers", "replay"} & set(
        ast.literal_eval(names)
    )


def test_the_public_door_has_these_names_and_loads_nothing_until_it_is_asked() -> None:
    names = """SHORT_RETENTION_RISK Adopted AfterWrite
        Append Archive BinPacking BySensor Compaction Csv Debezium Dms Landing
        LiquidClustering MaintainedTables Merge
        Overwrite Prices Scheduled Table Ttl Vacuum ZOrder maintain maintained_metadata
        read table"""
    assert {*lakehouse.__all__} == {*names.split()}
    assert all(hasattr(lakehouse, name) for name in lakehouse.__all__)
    script = "import sys, lakehouse; print([name for name in sys.modules if name.startswith('lakehouse.')])"
    assert printed(script).strip() == "[]"
