"""Two hundred statements of foreign sessions beside compactions of the same tables, and what each side lost to the other.

`python -m benchmarks.beside_writers [rounds] [seed]`, on a lake and a server of its own. With `gaps` in place of figures: writers that
come every few seconds, and how many of their statements lose where compactions wait for a gap, and where they do not.
"""

import contextlib
import sys
from dataclasses import asdict
from typing import Any
from unittest.mock import patch

from benchmarks.figures import Figure, alone
from benchmarks.own_lake import own_lake
from lakehouse.engine.compaction import run
from lakehouse_tests.journeys.foreign_writers import Report, play


def main(rounds: int = 200, seed: int = 1) -> list[Figure]:
    """Each number of the report; no row may be other than the model says, and no compaction unverified."""
    report = _played(rounds=rounds, seed=seed)
    none = {"at_most": 0, "holds_at_any_size": True}
    judged = {
        "rows_differing": none,
        "unverified": none,
        "statements": {"at_least": rounds // 2 * 2, "holds_at_any_size": True},
    }
    what = f"beside {rounds} statements of foreign sessions"
    return [
        Figure(name=f"{name.replace('_', ' ')} {what}", value=value, **judged.get(name, {}))
        for name, value in asdict(report).items()
    ]


def compare_gaps(rounds: int = 40, seed: int = 1) -> int:
    """Prints how many foreign statements were lost with and without waiting for gaps."""
    for waits in (True, False):
        with (
            contextlib.nullcontext() if waits else patch.object(run, "await_quiet", lambda *_: 0.0)
        ):
            report = _played(rounds=rounds, seed=seed, pause_seconds=3.0, rest_seconds=1.0)
        print(f"{'waiting for gaps' if waits else 'without waiting'}: {report}", flush=True)
    return 0


def _played(**choices: Any) -> Report:
    with own_lake() as (lake, _):
        return play(lake, tell=lambda line: print(line, flush=True), **choices)


if __name__ == "__main__":
    sys.exit(compare_gaps(*map(int, sys.argv[2:])) if sys.argv[1:2] == ["gaps"] else alone(main))
