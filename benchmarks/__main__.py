"""Runs benchmarks one after the other, records their figures, and writes the page of benchmarks.

    python -m benchmarks [--smoke] [NAME …]    # all, or these; --smoke: seconds each, no record
    python -m benchmarks page                  # rewrite the page from the records

Exit code 1: a figure misses its goal; 2: an unknown name; 130: Ctrl-C.
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
from threading import Event

from benchmarks import fresh
from benchmarks.catalog import BENCHMARKS, NAMES, Benchmark
from benchmarks.figures import tell
from benchmarks.page import write_page
from benchmarks.records import Record, busy_share, now_text, save

_LOOK_SECONDS = 0.2  # between two looks for a Ctrl-C
_STOP_SECONDS = 60  # servers need some to end


def main(arguments: Sequence[str]) -> int:
    """Runs what the command line names."""
    asked = _parser().parse_args(arguments)
    names = [name for word in asked.names for name in word.split(",") if name]
    if names == ["page"]:
        write_page()
        return 0
    if unknown := [name for name in names if name not in NAMES]:
        print(f"benchmark {unknown[0]!r} is not known. Use {', '.join(NAMES)}", file=sys.stderr)
        return 2
    chosen = [benchmark for benchmark in BENCHMARKS if benchmark.name in (names or NAMES)]
    if not asked.here:
        return _in_turn(chosen, smoke=asked.smoke)
    for number in (signal.SIGINT, signal.SIGTERM):  # also if a parent ignores them
        signal.signal(number, signal.default_int_handler)
    return _here(chosen[0], smoke=asked.smoke)


def _in_turn(chosen: Sequence[Benchmark], *, smoke: bool) -> int:
    # A Ctrl-C at any moment sets the event. An exception could arrive where no one catches it.
    stop = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    missed = list[str]()
    for place, benchmark in enumerate(chosen):
        docstring = importlib.import_module(f"benchmarks.{benchmark.name}").__doc__ or ""
        first_line = docstring.splitlines()[0]
        print(f"\n== {place + 1} of {len(chosen)}: {benchmark.name}: {first_line}", flush=True)
        began = time.monotonic()
        code = _in_own_process(benchmark, stop, smoke=smoke)
        if stop.is_set():
            rest = ",".join(each.name for each in chosen[place:])
            print(f"\nstopped. Use make bench ONLY={rest} for the rest", flush=True)
            return 130
        missed += [benchmark.name] if code else []
        result = f"missed a goal or failed ({code})" if code else "done"
        print(f"== {benchmark.name}: {result}, {time.monotonic() - began:.0f} s", flush=True)
    if missed:
        print(f"\nmissed a goal or failed: {', '.join(missed)}")
    return 1 if missed else 0


def _in_own_process(benchmark: Benchmark, stop: Event, *, smoke: bool) -> int:
    """The exit code of the benchmark. A Ctrl-C is passed on once, so that it can stop its servers."""
    options = ["--here", *(["--smoke"] if smoke else [])]
    command = [sys.executable, "-m", "benchmarks", *options, benchmark.name]
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
    record = Record(
        benchmark=benchmark.name,
        command=f"make bench ONLY={benchmark.name}",
        figures=figures,
        seconds=seconds,
        busy=max(busy, busy_share()),
        began=began,
    )
    save(record)
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
