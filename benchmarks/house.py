"""Measures the size of the house in concepts: what a newcomer has to read, load and remember.

    python -m benchmarks.house [--json] [--list parameters|files|small]

Takes seconds and no Spark. The figures are not goals by themselves: see
docs/internals/decisions/0023-given-up.md.
"""

import argparse
import ast
import io
import json
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from lakehouse.base.reasons import Reason
from lakehouse.declare.landing import Landing
from lakehouse.declare.policies import Archive, Compaction, Ttl, Vacuum
from lakehouse.declare.table import Merge

HOUSE = Path(__file__).resolve().parent.parent
PRODUCT = HOUSE / "lakehouse"
# The module that a newcomer opens first, for each of the three ways through the product.
WAYS = {
    "compaction": "lakehouse.compact.run",
    "landing load": "lakehouse.land.run",
    "vacuum": "lakehouse.vacuum.run",
}
FILE_LINES, PARAMETERS, SMALL_LINES = 700, 5, 60
COUNTED_TOKENS = {tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def source_files(folder: Path = PRODUCT) -> list[Path]:
    """All Python files below `folder`, sorted."""
    return sorted(folder.rglob("*.py"))


def count_tokens(text: str) -> int:
    """Names, operators, numbers and strings of a module; comments and docstrings do not count."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    counted = sum(token.type in COUNTED_TOKENS for token in tokens)
    return counted - sum(1 for _ in _docstrings(ast.parse(text)))


def _docstrings(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node):
            yield node


def module_name(path: Path) -> str:
    parts = path.relative_to(HOUSE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(tree: ast.Module, modules: set[str]) -> set[str]:
    """Our own modules that `tree` imports anywhere, inside functions too."""
    imported = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {name.name for name in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                full_name = f"{node.module}.{name.name}"
                imported.add(full_name if full_name in modules else node.module)
    return imported & modules


def import_graph() -> dict[str, set[str]]:
    """module -> our own modules that it imports."""
    paths = {module_name(path): path for path in source_files()}
    return {
        name: imported_modules(ast.parse(path.read_text()), set(paths))
        for name, path in paths.items()
    }


def wide_functions() -> list[str]:
    """Functions with more than five parameters; `self` and `cls` do not count."""
    wide = list[str]()
    for path in source_files():
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, Function):
                continue
            arguments = node.args
            names = [
                each.arg for each in arguments.posonlyargs + arguments.args + arguments.kwonlyargs
            ]
            count = len([name for name in names if name not in ("self", "cls")])
            if count > PARAMETERS:
                wide.append(f"{module_name(path)}.{node.name}: {count}")
    return wide


def loaded_modules(module: str) -> int:
    """How many of our modules a fresh Python loads for `module`; packages do not count."""
    code = (
        f"import sys, {module}\n"
        "print(sum(name.startswith('lakehouse.') and not hasattr(module, '__path__')\n"
        "          for name, module in sys.modules.items()))"
    )
    return int(subprocess.check_output([sys.executable, "-c", code], cwd=HOUSE, text=True))


def long_files() -> list[str]:
    return [
        f"{path.relative_to(HOUSE)}: {count}"
        for path in source_files()
        if (count := len(path.read_text().splitlines())) > FILE_LINES
    ]


def small_modules(graph: dict[str, set[str]]) -> list[str]:
    """Modules under 60 lines with one importer: they could join it."""
    small = list[str]()
    for path in source_files():
        name = module_name(path)
        importers = [other for other, targets in graph.items() if name in targets]
        lines = len(path.read_text().splitlines())
        if path.name != "__init__.py" and lines < SMALL_LINES and len(importers) == 1:
            small.append(f"{name}: {lines} lines, imported by {importers[0]}")
    return small


def doc_words() -> tuple[int, int]:
    """Words of the pages for users and of all pages, as `wc -w` counts them.

    docs/reference/ is generated from the code and does not count.
    """
    user_pages = [HOUSE / "README.md", *sorted((HOUSE / "docs").glob("*.md"))]
    internal_pages = sorted((HOUSE / "docs" / "internals").rglob("*.md"))
    user_words = sum(len(page.read_text().split()) for page in user_pages)
    return user_words, user_words + sum(len(page.read_text().split()) for page in internal_pages)


def knob_count() -> int:
    """Knobs of upkeep, landing and change data. The shape of a source is no knob.

    An archive and a TTL are features that a user asks for, and count as one knob each.
    """
    limits = [limit for limit in fields(Landing) if "line" in limit.metadata]
    merges = [knob for knob in fields(Merge) if "line" in knob.metadata]
    features = (Archive, Ttl)
    return len(fields(Compaction)) + len(fields(Vacuum)) + len(limits) + len(merges) + len(features)


def _line_count(folder: str) -> int:
    return sum(len(path.read_text().splitlines()) for path in source_files(HOUSE / folder))


def measure() -> dict[str, tuple[int, int | None]]:
    """Each figure with its value and its goal, or `None` if it has no goal."""
    user_words, all_words = doc_words()
    tokens = sum(count_tokens(path.read_text()) for path in source_files())
    figures: dict[str, tuple[int, int | None]] = {
        "tokens": (tokens, 240_000),
        "files": (len(source_files()), 230),
    }
    for way, module in WAYS.items():
        figures[f"modules loaded by a {way}"] = (loaded_modules(module), 85)
    figures |= {
        "functions with more than 5 parameters": (len(wide_functions()), 10),
        "files over 700 lines": (len(long_files()), 0),
        "lines of benchmarks": (_line_count("benchmarks"), 6_000),
        "reasons": (len(Reason), 50),
        "knobs": (knob_count(), 40),
        "words of user docs": (user_words, 15_000),
        "words of all docs": (all_words, 30_000),
    }
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    choices = ("parameters", "files", "small")
    parser.add_argument("--list", choices=choices, help="what makes up this figure")
    options = parser.parse_args()
    if options.list:
        lists = {
            "parameters": wide_functions,
            "files": long_files,
            "small": lambda: small_modules(import_graph()),
        }
        print("\n".join(lists[options.list]()))
        return 0
    figures = measure()
    if options.json:
        print(json.dumps({name: {"value": v, "goal": g} for name, (v, g) in figures.items()}))
        return 0
    for name, (value, goal) in figures.items():
        verdict = "" if goal is None else f"goal {goal:>7,}  {'met' if value <= goal else 'MISSED'}"
        print(f"{name:40} {value:>9,}  {verdict}".rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
