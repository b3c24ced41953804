"""Breaks the functions that protect data, one at a time, and reports breaks that no test notices.

`python -m benchmarks.mutants [WORD …]` runs the mutants whose line holds all words, and ends with 1
if one survives.

1. Each mutant names a function by module and qualified name, a change, and the test file that has
   to fail. If the function or callee is not there, nothing runs; `test_mutants.py` finds that
   earlier.
2. The test files run without a change and have to pass, otherwise a failure would prove nothing.
3. For each mutant, a forked process changes the function's syntax tree while the module is
   imported, and runs the test file. No file is changed.
"""

import ast
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, tell
from benchmarks.mutations import Change, drops, find_function, gives, never_raises, reads, returns

# Nothing of `lakehouse` is imported here: a forked process must import everything else with its change.
ROOT = Path(__file__).resolve().parent.parent
_GREEN, _RED = 0, 1  # Source: pytest.ExitCode
# Added to pytest's exit code, so that a process that fails before it is no failed test.
_VERDICT = 100
_HANGS_AFTER_SECONDS = 1_200
_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload(
    ["pytest", "hypothesis", "boto3", "moto.server", "pyarrow.parquet", "pyspark.sql", "dagster"]
)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A function of `lakehouse`, its change, and the file in `lakehouse_tests` that has to fail."""

    module: str
    function: str
    change: Change
    test: str

    @property
    def line(self) -> str:
        """The mutant in one line."""
        return f"{self.module}: {self.function} {self.change.text}"

    @property
    def file(self) -> Path:
        """The source of the module."""
        return ROOT / f"lakehouse/{self.module.replace('.', '/')}.py"

    def tree(self) -> ast.Module:
        """The module's syntax tree with the change.

        Raises:
            LookupError: the module has no such function, or the function has no such place.
        """
        tree = ast.parse(self.file.read_text())
        function = find_function(tree, self.function)
        if function is None or not self.change.apply(function):
            raise LookupError(f"{self.line}: not found")
        return ast.fix_missing_locations(tree)


def _of(module: str, test: str, *mutants: tuple[str, Change]) -> list[Mutant]:
    """Mutants of one module that one test file has to notice, without Spark."""
    return [Mutant(module, function, change, test) for function, change in mutants]


# fmt: off
MUTANTS = [
    # Deletion: vacuum
    *_of("vacuum.plan.candidates", "vacuum/plan/test_vacuum.py",
        ("DeletionGuard.allows", reads("RECLAIMABLE", "False")),
        ("DeletionGuard.allows", reads("horizon_ms", "False")),
        ("DeletionGuard.allows", gives("must_stay", "False"))),
    *_of("vacuum.plan.candidates", "vacuum/plan/test_vacuum.py",
        ("DeletionGuard.must_stay", gives("isdisjoint", "True")), ("DeletionGuard.must_stay", never_raises()),
        ("log_covers", returns("True")), ("written_once", returns("True"))),
    *_of("vacuum.plan.vacuum", "vacuum/plan/test_vacuum.py",
        ("_refuse_unsafe", never_raises()), ("_refuse_gaps", returns("None"))),
    *_of("vacuum.inventory.plan", "vacuum/inventory/test_plan.py",
        ("ObjectClassifier._not_read_now", reads("horizon_ms", "False")),
        ("ObjectClassifier.part_of", gives("may_read", "False"))),
    *_of("vacuum.inventory.run", "vacuum/inventory/test_run.py",
        ("inventories_of", gives("row_total", "inventory.object_count"))),
    *_of("lake.commits", "vacuum/inventory/test_run.py",
        ("delete_dead_files", reads("horizon_ms", "float('inf')"))),
    *_of("vacuum.run", "vacuum/test_meanwhile.py",
        ("Recheck.still_deletable", drops("read")),
        ("Recheck.still_deletable", drops("_ask_the_log")), ("Recheck.still_deletable", drops("_spare_needed")),
        ("Recheck._in_new_tables", returns("set()")), ("Recheck._is_another", returns("False"))),
    *_of("vacuum.run", "vacuum/test_meanwhile.py",
        ("vacuum", drops("check_clock")), ("Recheck.confirmed", gives("confirmed_by_delta", "list(planned)")),
        ("_carry_out", gives("still_deletable", "remaining"))),
    *_of("vacuum.run", "vacuum/test_meanwhile.py", ("confirmed_names", never_raises())),
    *_of("vacuum.run", "vacuum/test_meanwhile.py", ("confirmed_by_delta", never_raises())),
    *_of("vacuum.run", "vacuum/test_second_opinion.py", ("_may_be_vectors", returns("False"))),
    *_of("vacuum.facts", "vacuum/test_unread.py",
        ("LakeFacts._refuse_unread", returns("None"))),
    *_of("vacuum.facts", "vacuum/test_meanwhile.py",
        ("_refuse_older_copy", returns("None"))),
    *_of("vacuum.facts", "vacuum/test_faults.py",
        ("_needed_by_readers", gives("marked", "None"))),
    *_of("lake.commits", "lake/test_conditional_commits.py",
        ("refuse_unsafe_storage", returns("None"))),
    # Deletion: landed files, the journal, Dagster's records
    *_of("land.plan.batches", "land/plan/test_batches.py",
        ("fold_batches", reads("landed_paths", "True")), ("fold_batches", gives("fingerprint", "b''"))),
    *_of("land.ledger", "lake/test_folding.py",
        ("PlannedBatches.fold", never_raises())),
    # Exactly once: batches, transaction ids, increments, quarantine
    *_of("land.plan.choose_files", "land/plan/test_choose_files.py",
        ("_is_settled", returns("False"))),
    *_of("land.plan.choose_files", "land/plan/test_choose_files.py",
        ("judge_file", gives("may_load", "True"))),
    *_of("land.staging", "land/test_staging.py",
        ("StagedParts.read", gives("may_load", "True"))),
    *_of("materialize.plan", "materialize/test_plan.py",
        ("plan_increment", gives("may_repeat_rows", "False")),
        ("plan_increment", gives("brought_back_by", "None"))),
    *_of("land.ledger", "land/test_ledger.py",
        ("last_loaded", never_raises()), ("check_loaded", never_raises())),
    *_of("land.staging", "land/test_staging.py",
        ("_check_unchanged", never_raises())),
    *_of("land.ledger", "land/test_ledger.py",
        ("PlannedBatches.plan", gives("put_if_absent", "True")),
        ("PlannedBatches.replace", never_raises())),
    *_of("store.s3", "store/test_store.py",
        ("S3Store.honours_conditions", returns("True"))),
    *_of("land.run", "land/test_unwritable_rows.py",
        ("row_problem", returns("str(error)"))),
    # Undo: verification of a compaction, and the way back
    *_of("compact.verify", "compact/test_unverified_commits.py",
        ("_forget", reads("mark", "True"))),
    *_of("compact.verify", "compact/test_log_comparison.py",
        ("equal_by_log", reads("other_count", "False"))),
    *_of("compact.verify", "compact/test_undo.py",
        ("undo", never_raises())),
]
# fmt: on


def main(*words: str) -> list[Figure]:
    """Runs the mutants whose line holds all words, and prints a line for each."""
    chosen = [mutant for mutant in MUTANTS if all(word in mutant.line for word in words)]
    for mutant in chosen:
        mutant.tree()
    with tempfile.TemporaryDirectory() as folder:
        survivors = _survivors(chosen, Path(folder))
    return [
        Figure(name="mutants", value=len(chosen), at_least=1, holds_at_any_size=True),
        Figure(name="survived", value=len(survivors), at_most=0, holds_at_any_size=True),
    ]


def _survivors(mutants: Sequence[Mutant], folder: Path) -> list[Mutant]:
    """The mutants whose tests pass."""
    log = folder / "pytest.log"
    tests = [*dict.fromkeys(mutant.test for mutant in mutants)]
    if tests and (code := _exit_code(None, tests, log)) != _GREEN:
        raise RuntimeError(f"without a change pytest ends with {code}:\n{log.read_text()[-4_000:]}")
    survivors: list[Mutant] = []
    for number, mutant in enumerate(mutants, start=1):
        began = time.monotonic()
        code = _exit_code(mutant, [mutant.test], log)
        if code not in (_GREEN, _RED):
            raise RuntimeError(
                f"{mutant.line}: pytest ends with {code}:\n{log.read_text()[-4_000:]}"
            )
        if code == _GREEN:
            survivors.append(mutant)
        verdict = "noticed " if code == _RED else "SURVIVED"
        seconds = time.monotonic() - began
        place = f"{number:2} of {len(mutants)}"
        print(f"{place}  {verdict}  {seconds:5.1f} s  {mutant.line}", flush=True)
    return survivors


def _exit_code(mutant: Mutant | None, tests: Sequence[str], log: Path) -> int:
    """Runs tests in a forked process and returns pytest's exit code; tests that hang have failed."""
    process = _FORKED.Process(target=_run_pytest, args=(mutant and mutant.line, tests, log))
    process.start()
    process.join(_HANGS_AFTER_SECONDS)
    if process.exitcode is None:
        process.kill()
        return _RED
    return process.exitcode - _VERDICT


def _run_pytest(line: str | None, tests: Sequence[str], log: Path) -> None:
    mutant = next((each for each in MUTANTS if each.line == line), None)
    if mutant is not None:
        assert f"lakehouse.{mutant.module}" not in sys.modules
        sys.meta_path.insert(0, _Finder(mutant))
    os.chdir(ROOT)
    os.environ["SHARED_BY_TEST_RUNS"] = str(log.parent)
    with log.open("w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        import pytest

        options = ["-q", "-x", "-m", "not spark", "-p", "no:cacheprovider"]
        options.append(f"--basetemp={log.parent / 'tests'}")
        code = int(pytest.main([*options, *(f"lakehouse_tests/{test}" for test in tests)]))
    os._exit(_VERDICT + code)  # Threads of servers that a test started must not keep the process.


class _Finder(MetaPathFinder):
    """Finds the mutant's module with its change."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
        if fullname != f"lakehouse.{self._mutant.module}":
            return None
        loader = _Loader(fullname, str(self._mutant.file))
        loader.mutant = self._mutant
        return spec_from_file_location(fullname, self._mutant.file, loader=loader)


class _Loader(SourceFileLoader):
    mutant: Mutant

    def get_code(self, _fullname: str) -> Any:
        """The changed code; nothing compiled is read or kept."""
        return compile(self.mutant.tree(), self.path, "exec", dont_inherit=True)


if __name__ == "__main__":
    sys.exit(tell(main(*sys.argv[1:])))
