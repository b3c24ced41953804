"""What a run of the study measured: a folder with a line of JSON for each iteration."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

# As many as the published study has.
WHOLE_ITERATIONS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPlan:
    """A run: batches of about `rows` rows, `iterations` of each arm, `repetitions` with fresh tables."""

    rows: int
    iterations: int
    repetitions: int
    arms: tuple[str, ...]

    @property
    def iteration_count(self) -> int:
        """All iterations of all arms."""
        return self.iterations * self.repetitions * len(self.arms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """One iteration of one arm: seconds of merge, query, upkeep and decision; files and bytes after it.

    `bytes_ingested` is the size of the batch as one file, `bytes_copied` what the merge rewrote
    next to it, `bytes_compacted` what OPTIMIZE wrote, Delta's own included.
    """

    arm: str
    repetition: int
    number: int
    rows: int
    merge_seconds: float
    query_seconds: float
    upkeep_seconds: float
    decision_seconds: float
    files: int
    version: int
    table_bytes: int
    bytes_ingested: int
    bytes_copied: int
    bytes_compacted: int
    compactions: int
    began: str

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.merge_seconds + self.query_seconds + self.upkeep_seconds + self.decision_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRun:
    """A run's plan and its iterations so far, in the order in which they were measured."""

    folder: Path
    plan: StudyPlan
    measured: list[Iteration] = field(default_factory=list[Iteration])

    @property
    def iterations(self) -> Sequence[Iteration]:
        """The iterations that were measured so far."""
        return self.measured

    @property
    def is_complete(self) -> bool:
        """Whether every iteration of the plan was measured."""
        return len(self.measured) == self.plan.iteration_count

    def add(self, iteration: Iteration) -> None:
        """Adds one iteration, also to `iterations.jsonl`."""
        self.measured.append(iteration)
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "iterations.jsonl").open("a") as file:
            file.write(json.dumps(asdict(iteration)) + "\n")


def is_smallest(rows: int, latency_ms: int | None = None) -> bool:
    """Whether a run is of the study's smallest batches, on disk."""
    return (rows, latency_ms) == (1_000, None)
