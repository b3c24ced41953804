"""Runs benchmarks in turn, each in a process of its own, records their figures and writes `docs/internals/benchmarks.md`.

    python -m benchmarks [--smoke] [NAME …]    # all of them, or these; --smoke: sizes so small that each takes seconds, nothing recorded
    python -m benchmarks page                  # writes the page once more from what is recorded

Exit code 1: a figure misses its goal; 2: a name is not known; 130: Ctrl-C.
"""

import argparse
import contextlib
import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from threading import Event

from benchmarks import fresh
from benchmarks.catalog import BENCHMARKS, NAMES, Benchmark
from benchmarks.figures import tell
from benchmarks.page import write_page
from benchmarks.records import Record, busy_share, now_text, recorded, save

_LOOK_SECONDS, _STOP_SECONDS = 0.2, 60  # between two looks for a Ctrl-C; servers need some to end


def main(arguments: Sequence[str]) -> int:
    """Runs what is asked for."""
    asked = _parser().parse_args(arguments)
    names = [name for word in asked.names for name in word.split(",") if name]
    if names == ["page"]:
        write_page()
        return 0
    if unknown := [name for name in names if name not in NAMES]:
        print(
            f"benchmark {unknown[0]!r} is not known; accepted: {', '.join(NAMES)}", file=sys.stderr
        )
        return 2
    chosen = [benchmark for benchmark in BENCHMARKS if benchmark.name in (names or NAMES)]
    return (
        _here(chosen[0], smoke=asked.smoke) if asked.here else _in_turn(chosen, smoke=asked.smoke)
    )


def _in_turn(chosen: Sequence[Benchmark], *, smoke: bool) -> int:
    stop, missed = Event(), list[str]()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    for place, benchmark in enumerate(chosen):
        first_line = (
            importlib.import_module(f"benchmarks.{benchmark.name}").__doc__ or ""
        ).splitlines()[0]
        left = "smoke" if smoke else _left(chosen[place:])
        print(
            f"\n== {place + 1} of {len(chosen)}, {left}: {benchmark.name}: {first_line}", flush=True
        )
        began = time.monotonic()
        code = _in_own_process(benchmark, stop, smoke=smoke)
        if stop.is_set():
            rest = ",".join(each.name for each in chosen[place:])
            print(
                f"\nstopped; what ran before is recorded. The rest: make bench ONLY={rest}",
                flush=True,
            )
            return 130
        missed += [benchmark.name] if code else []
        print(
            f"== {benchmark.name}: {f'missed a goal or failed ({code})' if code else 'done'}, {time.monotonic() - began:.0f} s",
            flush=True,
        )
    if missed:
        print(f"\nmissed a goal or failed: {', '.join(missed)}")
    return 1 if missed else 0


def _left(rest: Sequence[Benchmark]) -> str:
    """The time that these will take, by what their newest run took."""
    before = recorded()
    left = timedelta(
        seconds=sum(
            before[each.name].seconds if each.name in before else each.seconds for each in rest
        )
    )
    return f"about {left.total_seconds() / 60:.0f} min left, until {datetime.now() + left:%H:%M}"


def _in_own_process(benchmark: Benchmark, stop: Event, *, smoke: bool) -> int:
    """Its exit code. Ctrl-C reaches this process alone, which passes it on once, so that the other one can stop its servers."""
    command = [
        sys.executable,
        "-m",
        "benchmarks",
        "--here",
        *(["--smoke"] if smoke else []),
        benchmark.name,
    ]
    process = subprocess.Popen(command, start_new_session=True)
    while not stop.is_set():
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_LOOK_SECONDS)
    process.send_signal(signal.SIGINT)
    try:
        return process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


def _here(benchmark: Benchmark, *, smoke: bool) -> int:
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a parent has them ignored
        signal.signal(number, signal.default_int_handler)
    module = importlib.import_module(f"benchmarks.{benchmark.name}")
    if smoke:
        with fresh.smoke():
            return tell(module.main(*benchmark.smoke), smoke=True)
    busy, began, start = busy_share(), now_text(), time.monotonic()
    try:
        figures = module.main()
    except KeyboardInterrupt:
        return 130
    seconds = time.monotonic() - start
    command = f"make bench ONLY={benchmark.name}"
    save(
        Record(
            benchmark=benchmark.name,
            command=command,
            figures=figures,
            seconds=seconds,
            busy=max(busy, busy_share()),
            began=began,
        )
    )
    write_page()
    return tell(figures)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "names", nargs="*", help="the benchmarks, by commas or blanks; all without; or `page`"
    )
    parser.add_argument(
        "--smoke",
        action="store_true",
        help="sizes so small that each takes seconds; nothing is recorded",
    )
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
