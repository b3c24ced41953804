"""A table's real or simulated history: the writers' versions, the compactions, and totals."""

from dataclasses import dataclass
from statistics import fmean, pstdev

from lakehouse.core.delta.file_history import FileHistory
from lakehouse.core.reasons import Explanation, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedCompaction:
    """A real or simulated compaction. Both kinds have an estimated duration and cost (`Rates`)."""

    at_ms: int
    sentence: str
    removed_paths: tuple[str, ...]
    added_paths: tuple[str, ...]
    bytes_removed: int
    bytes_added: int
    seconds: float
    usd: float

    @property
    def ended_ms(self) -> int:
        """When a simulated compaction ends, according to its estimated duration.

        For a real compaction, `at_ms` is already the time of its commit.
        """
        return self.at_ms + round(self.seconds * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedStep:
    """A version that a writer committed, and the compactions (`runs`) before a writer's next one.

    If a real history begins with a compaction, the first step has that compaction's version. Counts
    are taken after these compactions. `bytes_ingested` are the bytes of new files that the writer
    added. `row_count` is `None` if unknown. `explanation` explains the decision that led to the
    first compaction or, without a compaction, the last decision. It is `None` for the real history.
    """

    version: int
    committed_ms: int
    operation: str
    file_count: int
    small_file_count: int
    size_bytes: int
    row_count: int | None
    bytes_ingested: int
    explanation: Explanation | None = None
    runs: tuple[SimulatedCompaction, ...] = ()

    @property
    def reason(self) -> Reason | None:
        """The reason of the decision; `None` for the real history."""
        return self.explanation.reason if self.explanation else None

    @property
    def sentence(self) -> str:
        """Why a compaction ran or not; for the real history, the first compaction's sentence."""
        if self.explanation:
            return self.explanation.sentence
        return self.runs[0].sentence if self.runs else ""


@dataclass(slots=True, kw_only=True)
class Uncertainty:
    """What a simulation had to estimate. If the first four are 0, no size or removal was estimated.

    - `moved_removals`: files that a writer removed, and that the simulation does not have, or has
      with other rows.
    - `moved_vectors`: deletion vectors that a writer put on such files.
    - `carried_bytes`: bytes of rows that shared a simulated file with rows that a writer removed.
      The writer would have had to write these rows again.
    - `modelled_files`: output files whose size is estimated with `shrink_ratio`.
    - `unclear_compactions`: the number of partitions, over all real compactions, for which the log
      does not show which rows the compaction wrote into which file.
    - `shrink_ratio`: see `Lineage.shrink_ratio`. It is measured, not estimated.
    """

    moved_removals: int = 0
    moved_vectors: int = 0
    carried_bytes: int = 0
    modelled_files: int = 0
    unclear_compactions: int = 0
    shrink_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """A table's history under one policy, or as it really was."""

    history: FileHistory
    steps: tuple[SimulatedStep, ...]
    uncertainty: Uncertainty

    @property
    def runs(self) -> tuple[SimulatedCompaction, ...]:
        """All compactions, in order."""
        return tuple(run for step in self.steps for run in step.runs)

    @property
    def bytes_ingested(self) -> int:
        """Bytes of the files that writers added."""
        return sum(step.bytes_ingested for step in self.steps)

    @property
    def bytes_rewritten(self) -> int:
        """Bytes that compactions read and wrote again."""
        return sum(run.bytes_removed for run in self.runs)

    @property
    def write_amplification(self) -> float | None:
        """Bytes rewritten per byte ingested; `None` if nothing was ingested."""
        return self.bytes_rewritten / self.bytes_ingested if self.bytes_ingested else None

    @property
    def mean_file_count(self) -> float:
        """The mean, over the steps, of the file count after each; 0 without steps."""
        return fmean(step.file_count for step in self.steps) if self.steps else 0.0

    @property
    def deviation_file_count(self) -> float:
        """The standard deviation of the file count after each step; 0 without steps."""
        return pstdev(step.file_count for step in self.steps) if self.steps else 0.0

    @property
    def seconds(self) -> float:
        """Total seconds of all compactions."""
        return sum(run.seconds for run in self.runs)

    @property
    def usd(self) -> float:
        """Total cost of all compactions."""
        return sum(run.usd for run in self.runs)
