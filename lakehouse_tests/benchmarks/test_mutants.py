"""The mutants still apply, and each kind of change works. `make bench ONLY=mutants` runs them."""

import ast
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.mutants import MUTANTS, ROOT, Mutant
from benchmarks.mutations import Change, drops, gives, never_raises, reads, returns

_GUARDED = """
def delete(files, held):
    check(held)
    if is_held(held) or len(files) > 2:
        raise ValueError(held)
    return allowed(files)
"""


def test_every_mutant_changes_its_function_and_names_a_test_file() -> None:
    """A function or test that was renamed is renamed in `benchmarks/mutants.py`, too."""
    for mutant in MUTANTS:
        assert ast.dump(mutant.tree()) != ast.dump(ast.parse(mutant.file.read_text())), mutant.line
        assert (ROOT / "lakehouse_tests" / mutant.test).is_file(), f"{mutant.line}: {mutant.test}"
    assert len({mutant.line for mutant in MUTANTS}) == len(MUTANTS) <= 60


def test_a_function_or_callee_that_is_not_there_is_an_error() -> None:
    for function, change in (("no_such", returns("None")), ("written_once", drops("no_such"))):
        with pytest.raises(LookupError, match="no_such"):
            Mutant("vacuum.plan.candidates", function, change, "").tree()


def _changed(change: Change) -> Callable[..., Any]:
    tree = ast.parse(_GUARDED)
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    assert change.apply(function) == 1
    names: dict[str, Any] = {
        "check": lambda held: held.append("checked"),
        "is_held": lambda held: "keep" in held,
        "allowed": lambda files: files[:1],
    }
    exec(compile(ast.fix_missing_locations(tree), "delete", "exec"), names)
    return names["delete"]


def test_each_kind_of_change() -> None:
    assert _changed(returns("files"))(["a", "b", "c"], []) == ["a", "b", "c"]
    assert _changed(never_raises())(["a", "b"], ["keep"]) == ["a"]
    assert _changed(gives("is_held", "False"))(["a", "b"], ["keep"]) == ["a"]
    assert _changed(reads("files", "False"))(["a", "b", "c"], []) == ["a"]
    assert _changed(drops("allowed"))(["a", "b"], []) == ["a", "b"]
    held: list[str] = []
    _changed(drops("check"))(["a"], held)
    assert held == []
