"""The safety rules that `benchmarks.mutants` breaks: a file, the text in it that makes the rule hold, the text that breaks it, and the tests.

Each module of this folder has some of them, by their files: the two texts, the tests that turn red, and the promise where it has words of
its own.
"""

from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; `file` is below the project's root, `tests` below `lakehouse_tests/`."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    promise: str = ""

    @property
    def name(self) -> str:
        """The promise; without words of its own, the name of the first test."""
        return self.promise or self.tests[0].rpartition("::")[2].removeprefix("test_").replace("_", " ")


_MODULES = [import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__)]
RULES = tuple(Rule(file, *words) for module in _MODULES for file, rules in module.RULES.items() for words in rules)
