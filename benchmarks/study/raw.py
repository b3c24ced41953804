"""What a run of the study measured: a folder with its plan, a line of JSON for each iteration, and from these a Parquet file.

Each line is written when its iteration is over, so a run that was interrupted can be reported, and goes on where it ended.
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

# As many as the published study has.
WHOLE_ITERATIONS = 200
_PLAN, _ITERATIONS = "plan.json", "iterations.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPlan:
    """What is run: about `rows` rows a batch, `iterations` of each arm, `repetitions` times with fresh tables.

    `latency_ms` is how long each answer of the storage waits; `None` is a lake on disk, any number one on S3.
    """

    rows: int
    iterations: int
    repetitions: int
    arms: tuple[str, ...]
    latency_ms: int | None = None

    @property
    def iteration_count(self) -> int:
        """All iterations of all arms."""
        return self.iterations * self.repetitions * len(self.arms)

    @property
    def name(self) -> str:
        """The name of its folder, but for the time it began."""
        return f"{self.rows}-rows-{'disk' if self.latency_ms is None else 's3'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """One iteration of one arm. Seconds of the merge, the query, the upkeep after them and the decision about it; files and bytes after it.

    `bytes_ingested` is what the batch takes as one file, `bytes_copied` what the merge wrote again beside it, `bytes_compacted` what
    OPTIMIZE wrote, Delta's own included. `requests` to S3 by phase; empty on disk.
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
    requests: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.merge_seconds + self.query_seconds + self.upkeep_seconds + self.decision_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRun:
    """A run's folder, and what is in it. `machine` says on what it ran, in words."""

    folder: Path
    plan: StudyPlan
    machine: Mapping[str, str]

    @property
    def iterations(self) -> list[Iteration]:
        """What was measured so far, in the order in which it was; a last line that was cut off is not counted."""
        path = self.folder / _ITERATIONS
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [Iteration(**json.loads(line)) for line in lines if line.endswith("\n")]

    @property
    def is_complete(self) -> bool:
        """Whether every iteration of the plan was measured."""
        return len(self.iterations) == self.plan.iteration_count

    def add(self, iteration: Iteration) -> None:
        """Writes down one more."""
        with (self.folder / _ITERATIONS).open("a") as file:
            file.write(json.dumps(asdict(iteration)) + "\n")

    def write_parquet(self) -> Path:
        """All iterations as one Parquet file."""
        import pyarrow
        import pyarrow.parquet

        rows = [{**asdict(each), "requests": json.dumps(each.requests)} for each in self.iterations]
        pyarrow.parquet.write_table(
            pyarrow.Table.from_pylist(rows), path := self.folder / "iterations.parquet"
        )
        return path


def is_smallest(rows: int, latency_ms: int | None) -> bool:
    """Whether a run is of the study's smallest batches, on disk."""
    return (rows, latency_ms) == (1_000, None)


def open_run(output: Path, plan: StudyPlan, machine: Mapping[str, str], *, now: str) -> StudyRun:
    """The newest run of this plan that is not complete, or else a new one that begins `now`.

    A run on S3 begins anew: its server keeps what it holds in memory.
    """
    for run in reversed([*find_runs(output)]):
        if (
            run.plan == plan
            and not run.is_complete
            and plan.latency_ms is None
            and run.machine == machine
        ):
            _forget_half_lines(run)
            return run
    folder = output / f"{plan.name}-{now}"
    folder.mkdir(parents=True)
    (folder / _PLAN).write_text(json.dumps({"plan": asdict(plan), "machine": machine}, indent=2))
    return StudyRun(folder=folder, plan=plan, machine=machine)


def find_runs(output: Path) -> Iterator[StudyRun]:
    """The runs of an output folder, oldest first."""
    found = [(path.parent.name.rpartition("-")[2], path) for path in output.glob(f"*/{_PLAN}")]
    for _, path in sorted(found):
        text: dict[str, Any] = json.loads(path.read_text())
        plan = StudyPlan(**{**text["plan"], "arms": tuple(text["plan"]["arms"])})
        yield StudyRun(folder=path.parent, plan=plan, machine=text["machine"])


def best_runs(runs: Sequence[StudyRun]) -> list[StudyRun]:
    """For each size of batch and each storage the run with the most iterations, the newest of them; smallest batches and disk first."""
    best: dict[tuple[int, bool], StudyRun] = {}
    for run in runs:
        place = (run.plan.rows, run.plan.latency_ms is not None)
        if run.iterations and (
            place not in best or len(run.iterations) >= len(best[place].iterations)
        ):
            best[place] = run
    return [best[place] for place in sorted(best, key=lambda place: (place[1], place[0]))]


def take_back(table: Path, version: int | None) -> None:
    """Takes a table on disk back to a version that was measured, `None` to before its first: what an interrupted iteration wrote goes.

    Nothing may have the table open. Its log is cut, so that neither files nor commits tell of the iteration that is repeated.
    """
    if version is None:
        shutil.rmtree(table, ignore_errors=True)
        return
    (table / "_delta_log" / "_last_checkpoint").unlink(missing_ok=True)
    for path in (table / "_delta_log").iterdir():
        number = path.name.lstrip(".").partition(".")[0]
        if number.isdigit() and int(number) > version:
            path.unlink()


def _forget_half_lines(run: StudyRun) -> None:
    whole = "".join(json.dumps(asdict(each)) + "\n" for each in run.iterations)
    (run.folder / _ITERATIONS).write_text(whole)
