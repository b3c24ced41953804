"""Breaks each safety rule of a list, one at a time, and tells which breaks no test notices.

`python -m benchmarks.mutants [WORD …]` breaks the rules whose file or name holds all of the words. The checkout is never changed: each rule
is broken in a copy. A rule is one replacement of a text that stands once in its file, and the tests that must turn red; unbroken, they are
green.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from benchmarks.mutant_rules import RULES, Rule
from lakehouse.runtime.project import ROOT

_FOLDERS = ("lakehouse", "lakehouse_tests", "benchmarks", "docs")
_FILES = ("pyproject.toml", "dagster.yaml", "workspace.yaml", "README.md", "CHANGELOG.md")
_TEST_SECONDS = 1_200


def main(words: Iterable[str] = ()) -> int:
    """Prints a line for each rule; 1 if a break survives its tests."""
    chosen = [rule for rule in RULES if all(word in f"{rule.file} {rule.name}" for word in words)]
    survived: list[Rule] = []
    with tempfile.TemporaryDirectory() as folder:
        if _are_red([*dict.fromkeys(test for rule in chosen for test in rule.tests)], _copy(Path(folder) / "sound")):
            print("the tests of these rules are red with no rule broken")
            return 1
        for number, rule in enumerate(chosen, start=1):
            began, copy = time.monotonic(), _copy(Path(folder) / str(number))
            path = copy / rule.file
            path.write_text(broken(rule, path.read_text()))
            survived += [] if _are_red(rule.tests, copy) else [rule]
            verdict, seconds = "SURVIVED" if rule in survived else "noticed ", time.monotonic() - began
            print(f"{number:3} of {len(chosen)}  {verdict}  {seconds:5.1f} s  {rule.file}: {rule.name}", flush=True)
            shutil.rmtree(copy)
    print(f"{len(chosen)} rules broken, {len(chosen) - len(survived)} noticed, {len(survived)} survived")
    return 1 if survived else 0


def outdated(rules: Iterable[Rule], root: Path = ROOT) -> Iterator[str]:
    """What the rules name and the project in `root` has not: a text that stands once in a file, and a test."""
    read = cache(lambda name: path.read_text() if (path := root / name).is_file() else "")
    for rule in rules:
        if (count := read(rule.file).count(rule.old)) != 1 or rule.old == rule.new:
            yield f"{rule.file}: {rule.old!r} stands there {count} times, and gives way to {rule.new!r}"
        for test in rule.tests:
            file, _, name = test.partition("::")
            if f"\ndef {name}(" not in read(f"lakehouse_tests/{file}"):
                yield f"{rule.file}: no test is called {test!r}"


def broken(rule: Rule, text: str) -> str:
    """The text of the rule's file with the rule broken.

    Raises:
        ValueError: what is to be replaced does not stand there exactly once.
    """
    if (count := text.count(rule.old)) != 1:
        raise ValueError(f"{rule.file}: {rule.old!r} stands there {count} times")
    return text.replace(rule.old, rule.new)


def _copy(folder: Path) -> Path:
    """The project's files in a folder, with the jars that were fetched."""
    for name in _FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in _FILES:
        shutil.copy(ROOT / name, folder / name)
    (folder / ".lakehouse").mkdir()
    for name in ("jars", "java"):
        if (ROOT / ".lakehouse" / name).exists():
            (folder / ".lakehouse" / name).symlink_to(ROOT / ".lakehouse" / name)
    return folder


def _are_red(tests: Iterable[str], folder: Path) -> bool:
    """Whether one of the tests fails, or hangs, in a copy of the project."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *(f"lakehouse_tests/{test}" for test in tests)]
    environ = {**os.environ, "PYTHONPATH": str(folder)}
    try:
        done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=_TEST_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return True
    if done.returncode not in (0, 1):  # 1: tests failed; everything else is no answer
        raise RuntimeError(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode == 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
