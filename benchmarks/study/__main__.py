"""`python -m benchmarks.study [--rows 1000] [--iterations 200] [--repetitions 3] [--arms none,auto,ours] [--s3] [--report]`.

The same command goes on with a run that was interrupted. Once a run of all arms over 200 iterations lies in the output folder,
the page is `docs/internals/study.md`; before that a part writes its page into the output folder, beside what it measured.
"""

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

import boto3
import psutil

from benchmarks.page import write_page
from benchmarks.records import save
from benchmarks.s3_server import ask, served
from benchmarks.study.arms import ARMS
from benchmarks.study.raw import StudyPlan, StudyRun, best_runs, find_runs, is_smallest, open_run
from benchmarks.study.record import record_of
from benchmarks.study.report import is_whole, write_report
from benchmarks.study.run import World, run_study
from benchmarks.study.totals import kept_totals
from lakehouse.engine.lake import open_lake
from lakehouse.engine.spark.open_session import connect
from lakehouse.runtime import server
from lakehouse_tests.conftest import own_settings

HOUSE = Path(__file__).resolve().parents[2]
OUTPUT = HOUSE / ".lakehouse" / "study"
LATENCY_MS = 20
_MEMORY = "3g"
_SENDERS, _KINDS = ("ours", "spark"), ("HEAD", "GET", "LIST", "PUT", "DELETE")


def main(arguments: list[str]) -> int:
    """Runs what is asked for and writes the page; 130 where a person or a signal ended it."""
    asked = _parsed(arguments)
    for each in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # also where a shell started it in the background, and had it ignore Ctrl-C
        signal.signal(each, signal.default_int_handler)
    try:
        if not asked.report:
            _measure(asked.output, _plan(asked))
    except KeyboardInterrupt:
        print(
            "\ninterrupted: what was measured is kept, and the same command goes on; --report writes the page of what is there",
            flush=True,
        )
        return 130
    whole = any(is_whole(run) for run in find_runs(asked.output))
    page = asked.page or (HOUSE / "docs" / "internals" if whole else asked.output) / "study.md"
    for sentence in write_report(asked.output, page):
        print(sentence)
    print(f"page: {page}")
    if page.resolve() == HOUSE / "docs" / "internals" / "study.md":
        _record(asked.output)
    return 0


def _record(output: Path) -> None:
    """What the page in `docs` says of the promises about speed, for the page of all benchmarks."""
    runs = [
        run
        for run in best_runs([*find_runs(output)])
        if is_smallest(run.plan.rows, run.plan.latency_ms)
    ]
    totals = kept_totals(HOUSE / "docs" / "internals" / "benchmarks" / "study-runs.jsonl")
    for record in filter(None, (record_of(run, totals) for run in runs)):
        save(record)
        write_page()


def machine() -> dict[str, str]:
    """On what a run is made, in words; a run goes on only where all of it is the same."""
    memory = psutil.virtual_memory().total / 1024**3
    versions = {
        "Spark": version("pyspark"),
        "Delta Lake": version("delta-spark"),
        "Python": sys.version.split()[0],
    }
    return {
        "cores:": str(os.cpu_count()),
        "memory:": f"{memory:.0f} GiB, {_MEMORY.removesuffix('g')} of them Spark's",
        **versions,
    }


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.study")
    parser.add_argument(
        "--rows", type=int, default=1_000, help="rows of a batch, 10 %% more or less"
    )
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--arms", default=",".join(ARMS), help=f"some of {','.join(ARMS)}")
    parser.add_argument(
        "--s3", action="store_true", help=f"on S3's protocol, each request {LATENCY_MS} ms away"
    )
    parser.add_argument(
        "--report", action="store_true", help="measure nothing, write the page of what is there"
    )
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--page", type=Path, help="where the page is written")
    asked = parser.parse_args(arguments)
    if unknown := sorted(set(asked.arms.split(",")) - ARMS.keys()):
        parser.error(f"arm {unknown[0]!r} is not known; accepted: {', '.join(ARMS)}")
    if min(asked.rows, asked.iterations, asked.repetitions) < 1:
        parser.error("rows, iterations and repetitions are at least 1")
    return asked


def _plan(asked: argparse.Namespace) -> StudyPlan:
    return StudyPlan(
        rows=asked.rows,
        iterations=asked.iterations,
        repetitions=asked.repetitions,
        arms=tuple(name for name in ARMS if name in asked.arms.split(",")),
        latency_ms=LATENCY_MS if asked.s3 else None,
    )


def _measure(output: Path, plan: StudyPlan) -> None:
    run = open_run(output, plan, machine(), now=f"{datetime.now(UTC):%Y%m%dT%H%M%S}")
    print(
        f"{plan.iteration_count} iterations, {len(run.iterations)} of them measured before; raw: {run.folder}",
        flush=True,
    )
    with _world(run) as world:
        run_study(world, run)
    shutil.rmtree(run.folder / "home", ignore_errors=True)


@contextmanager
def _world(run: StudyRun) -> Iterator[World]:
    """A server of the run's own, its tables in the run's folder or in a bucket that is far away."""
    with ExitStack() as open_now:
        values, endpoint = dict[str, str](), None
        if run.plan.latency_ms is not None:
            endpoint = open_now.enter_context(served())
            boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="study")
            ask(endpoint, f"latency?ms={run.plan.latency_ms}")
            values["LAKEHOUSE_ROOT"] = "s3://study/lake"
        settings = own_settings(run.folder / "home", LAKEHOUSE_SPARK_MEMORY=_MEMORY, **values)
        open_now.enter_context(server.supervised(settings))
        count = partial(_count_requests, endpoint) if endpoint else None
        yield World(
            lake=open_lake(settings), spark=connect(settings), count_requests=count, tell=_tell
        )


def _count_requests(endpoint: str) -> int:
    counts = ask(endpoint, "requests")
    return sum(counts.get(f"{sender} {kind}", 0) for sender in _SENDERS for kind in _KINDS)


def _tell(sentence: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {sentence}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
