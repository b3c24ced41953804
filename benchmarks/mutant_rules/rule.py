"""One safety rule that `benchmarks.mutants` breaks."""

from dataclasses import dataclass


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
        """The promise."""
        return self.promise or self.tests[0].rpartition("::")[2].removeprefix("test_").replace("_", " ")
