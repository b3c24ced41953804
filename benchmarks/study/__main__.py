"""`python -m benchmarks.study [--rows 1000] [--iterations 200] [--repetitions 3] [--arms none,ours]`.

A run of all arms rewrites `docs/internals/study.md`. The page of any other run is next to what it
measured, below `.lakehouse/study/`.
"""

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.own_lake import own_lake
from benchmarks.page import write_page
from benchmarks.records import save
from benchmarks.study.arms import ARMS
from benchmarks.study.raw import StudyPlan, StudyRun, is_smallest
from benchmarks.study.record import record_of
from benchmarks.study.report import counts, write_report
from benchmarks.study.run import World, run_study
from benchmarks.study.totals import kept_totals

HOUSE = Path(__file__).resolve().parents[2]
INTERNALS = HOUSE / "docs" / "internals"
OUTPUT = HOUSE / ".lakehouse" / "study"
_MEMORY = "3g"


def main(arguments: list[str]) -> int:
    """Runs the study and writes its page."""
    plan = _plan(arguments)
    name = f"{plan.rows}-rows-{datetime.now(UTC):%Y%m%dT%H%M%S}"
    run = StudyRun(folder=OUTPUT / name, plan=plan)
    with own_lake(LAKEHOUSE_SPARK_MEMORY=_MEMORY) as (lake, spark):
        run_study(World(lake=lake, spark=spark, tell=_tell), run)
    print(f"page: {write_report(run, INTERNALS)}")
    if counts(run) and is_smallest(plan.rows):
        record = record_of(run, kept_totals(INTERNALS / "benchmarks" / "study-runs.jsonl"))
        assert record is not None
        save(record)
        write_page()
    return 0


def _plan(arguments: list[str]) -> StudyPlan:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.study")
    parser.add_argument(
        "--rows", type=int, default=1_000, help="rows per batch, 10 %% more or less"
    )
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--arms", default=",".join(ARMS), help=f"some of {','.join(ARMS)}")
    asked = parser.parse_args(arguments)
    arms = asked.arms.split(",")
    if unknown := sorted(set(arms) - ARMS.keys()):
        parser.error(f"arm {unknown[0]!r} is not known. Use some of {', '.join(ARMS)}")
    if min(asked.rows, asked.iterations, asked.repetitions) < 1:
        parser.error("Use at least 1 for rows, iterations and repetitions")
    return StudyPlan(
        rows=asked.rows,
        iterations=asked.iterations,
        repetitions=asked.repetitions,
        arms=tuple(name for name in ARMS if name in arms),
    )


def _tell(sentence: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {sentence}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
