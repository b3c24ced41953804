"""The benchmarks that need nothing but this machine, in turn: `python -m benchmarks [NAME …]`; 1 if one of them misses its goal."""

import importlib
import sys
import time

# Quick ones first. `request_to_commit` is not among them: it looks at a lake that runs.
NAMES = (
    "big_log",
    "inventory",
    "vacuum_lake",
    "vacuum_memory",
    "requests",
    "landing",
    "mutants",
    "fleet",
    "throughput",
    "changes",
    "calibration",
    "read_slowdown",
    "beside_writers",
    "vacuum",
    "random_tables",
    "four_weeks",
    "eight_weeks",
)


def main(names: list[str]) -> int:
    """Runs the benchmarks of these names, or all of them; each prints what it measures."""
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        print(f"benchmark {unknown[0]!r} is not known; accepted: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    failed: list[str] = []
    for name in names or NAMES:
        module, began = importlib.import_module(f"benchmarks.{name}"), time.monotonic()
        print(f"\n== {name}: {(module.__doc__ or '').splitlines()[0]}", flush=True)
        if module.main():
            failed.append(name)
        print(f"== {name}: {'missed its goal' if name in failed else 'done'}, {time.monotonic() - began:.0f} s", flush=True)
    if failed:
        print(f"\nmissed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
