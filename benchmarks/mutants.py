"""Breaks each safety rule of a list, one at a time, and tells which breaks no test notices.

`python -m benchmarks.mutants [WORD …]` breaks the rules whose file or promise holds all of the words. The checkout is never changed: each
rule is broken in a copy, where its file is put back afterwards. A rule is one replacement of a text that stands once in its file, and the
tests that must turn red; unbroken, they are green.

1. The tests without Spark run for every rule, `--jobs` rules at once, in processes forked from one that has loaded what they all import.
2. Rules that those do not notice are left to their tests with Spark, on one server for all; `--pure` leaves them out.

`--table` breaks nothing: it writes the list into `docs/safety.md`.
"""

import argparse
import contextlib
import io
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from importlib.util import cache_from_source
from pathlib import Path
from queue import SimpleQueue

from benchmarks.figures import Figure, tell
from benchmarks.mutant_rules import RULES, Rule
from benchmarks.safety_page import write_page

# Nothing of the project is imported at the top: a forked process would have it from the checkout, and not from its copy.
ROOT = Path(__file__).resolve().parent.parent
_FOLDERS = ("lakehouse", "lakehouse_tests", "benchmarks", "docs")
_FILES = ("pyproject.toml", "dagster.yaml", "workspace.yaml", "README.md", "CHANGELOG.md")
_TEST_SECONDS = 1_200
_GREEN, _RED, _NO_TESTS = 0, 1, 5  # Source: pytest.ExitCode
_ANSWERED = 100  # added to pytest's exit code, so that a process that fails before it is no red test
_PURE, _SPARK = ("-m", "not spark"), ("-m", "spark")
_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload(
    [
        "pytest",
        "hypothesis",
        "pytest_timeout",
        "xdist.plugin",
        "boto3",
        "moto.server",
        "pyarrow.parquet",
        "pyspark.sql.connect.session",
        "delta",
    ]
)


def main(*words: str, jobs: int = 2, is_pure: bool = False) -> list[Figure]:
    """The breaks that survive their tests; prints a line for each rule."""
    if wrong := [*outdated(RULES)]:
        raise SystemExit("\n".join(wrong))
    chosen = [rule for rule in RULES if all(word in f"{rule.file} {rule.name}" for word in words)]
    with tempfile.TemporaryDirectory() as folder:
        (shared := Path(folder) / "shared").mkdir()
        copies = [_Copy(Path(folder) / str(number), shared) for number in range(jobs)]
        unnoticed = _unnoticed(chosen, copies, _PURE)
        left_out = [rule for rule in unnoticed if is_pure and rule.tests and copies[0].ends_with(rule.tests, _SPARK, "--co") == _GREEN]
        if not is_pure and unnoticed:
            with _spark_server(shared):
                unnoticed = _unnoticed(unnoticed, copies[:1], _SPARK)
    survived = [rule for rule in unnoticed if rule not in left_out]
    print(*(f"SURVIVED  {rule.file}: {rule.name}: {rule.old!r}" for rule in survived), sep="\n")
    return [
        Figure(name="safety rules that were broken", value=len(chosen), at_least=1, holds_at_any_size=True),
        Figure(name="noticed by a test", value=len(chosen) - len(unnoticed)),
        Figure(name="left to tests with Spark", value=len(left_out)),
        Figure(name="survived", value=len(survived), at_most=0, holds_at_any_size=True),
    ]


def _command(arguments: Sequence[str]) -> int:
    asked = _parser().parse_args(arguments)
    if asked.table:
        write_page(RULES, ROOT)
        return 0
    return tell(main(*asked.words, jobs=asked.jobs, is_pure=asked.pure))


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


class _Copy:
    """The project's files in a folder of their own, with the jars that were fetched; `shared` holds what its test runs need once."""

    def __init__(self, folder: Path, shared: Path) -> None:
        self._folder, self._environ = folder, {"PYTHONPATH": str(folder), "SHARED_BY_TEST_RUNS": str(shared)}
        self.log = folder / "pytest.log"
        for name in _FOLDERS:
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in _FILES:
            shutil.copy(ROOT / name, folder / name)
        (folder / ".lakehouse").mkdir()
        for name in ("jars", "java"):
            if (ROOT / ".lakehouse" / name).exists():
                (folder / ".lakehouse" / name).symlink_to(ROOT / ".lakehouse" / name)

    def notices(self, rule: Rule, marks: Sequence[str]) -> bool:
        """Whether one of the rule's tests with these marks fails while the rule is broken.

        Raises:
            RuntimeError: pytest gave no verdict, twice.
        """
        path = self._folder / rule.file
        sound = path.read_text()
        path.write_text(sound.replace(rule.old, rule.new))
        try:
            for _ in range(2):
                if (code := self.ends_with(rule.tests, marks, "-x")) in (_RED, _GREEN, _NO_TESTS):
                    return code == _RED
            raise RuntimeError(f"{rule.file}: {rule.name}: pytest ends with {code}:\n{self.log.read_text()[-4000:]}")
        finally:
            path.write_text(sound)
            Path(cache_from_source(str(path))).unlink(missing_ok=True)

    def ends_with(self, tests: Iterable[str], *arguments: str | Sequence[str]) -> int:
        """pytest's exit code in this copy; tests that hang are red."""
        flat = [word for each in arguments for word in ([each] if isinstance(each, str) else each)]
        flat += ["-q", "-p", "no:cacheprovider", f"--basetemp={self._folder / 'tmp'}", *(f"lakehouse_tests/{test}" for test in tests)]
        process = _FORKED.Process(target=_pytest, args=(self._folder, flat, self._environ, self.log))
        process.start()
        process.join(_TEST_SECONDS)
        if process.exitcode is None:
            process.kill()
        return _RED if process.exitcode is None else process.exitcode - _ANSWERED


def _pytest(folder: Path, arguments: list[str], environ: dict[str, str], log: Path) -> None:
    """Runs pytest in this process, which is a fork that nothing else is done in."""
    os.chdir(folder)
    os.environ.update(environ)
    sys.path[:] = [str(folder), *(path for path in sys.path if path not in ("", str(ROOT)))]
    with log.open("w") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), write_through=True)
        import pytest

        code = int(pytest.main(arguments))
    os._exit(_ANSWERED + code)  # no thread of a server that a test started keeps it


def _unnoticed(rules: Sequence[Rule], copies: Sequence[_Copy], marks: Sequence[str]) -> list[Rule]:
    """Those of the rules that may be broken in a copy without a red test among those with these marks."""
    tests, free = [*dict.fromkeys(test for rule in rules for test in rule.tests)], SimpleQueue[_Copy]()
    for copy in copies:
        free.put(copy)

    def verdict(rule: Rule) -> tuple[bool, float]:
        copy, began = free.get(), time.monotonic()
        try:
            return copy.notices(rule, marks), time.monotonic() - began
        finally:
            free.put(copy)

    with ThreadPoolExecutor(max_workers=len(copies)) as pool:
        shares = [tests[start :: len(copies)] for start in range(min(len(copies), len(tests)))]
        for copy, code in zip(copies, pool.map(lambda copy, share: copy.ends_with(share, marks, "-x"), copies, shares), strict=False):
            if code not in (_GREEN, _NO_TESTS):
                raise RuntimeError(f"with no rule broken, pytest ends with {code}:\n{copy.log.read_text()[-4000:]}")
        waiting = {pool.submit(verdict, rule): rule for rule in rules}
        unnoticed: list[Rule] = []
        for number, done in enumerate(as_completed(waiting), start=1):
            rule, (is_noticed, seconds) = waiting[done], done.result()
            unnoticed += [] if is_noticed else [rule]
            said = "noticed    " if is_noticed else "not noticed"
            print(f"{number:3} of {len(rules)}  {said}  {seconds:5.1f} s  {rule.file}: {rule.name}", flush=True)
    return unnoticed


@contextlib.contextmanager
def _spark_server(folder: Path) -> Iterator[None]:
    """A Spark Connect server that all test runs share; no verdict counts unless it lived through all of them."""
    from lakehouse.runtime.server import status
    from lakehouse_tests.spark_server import shared_server

    with shared_server(folder) as settings:
        yield
        if not status(settings).is_running:
            raise RuntimeError("the shared Spark Connect server ended while rules were broken: run those with Spark again")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("words", nargs="*", help="only rules whose file or promise holds all of these")
    parser.add_argument("--jobs", type=int, default=2, help="rules broken at once, with tests that need no Spark (default 2)")
    parser.add_argument("--pure", action="store_true", help="without the tests that need Spark")
    parser.add_argument("--table", action="store_true", help="write the list into docs/safety.md, and break nothing")
    return parser


if __name__ == "__main__":
    sys.exit(_command(sys.argv[1:]))
