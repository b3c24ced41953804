"""The safety rules that `benchmarks.mutants` breaks: a file, the text in it that makes the rule hold, the text that breaks it, and the tests.

A rule's promise is the name of the first of its tests, unless it has words of its own. Each module of this folder has some of them.
"""

from importlib import import_module
from pkgutil import iter_modules

from benchmarks.mutant_rules.rule import Rule as Rule

_MODULES = [import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__) if each.name != "rule"]
RULES: tuple[Rule, ...] = tuple(rule for module in _MODULES for rule in module.RULES)
