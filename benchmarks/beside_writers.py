"""Runs 200 statements of foreign sessions next to compactions, and counts what each side lost.

`python -m benchmarks.beside_writers [rounds] [seed]`, on its own lake and server.
"""

import sys
from dataclasses import asdict

from benchmarks.figures import Figure, alone
from benchmarks.own_lake import own_lake
from lakehouse_tests.journeys.foreign_writers import play


def main(rounds: int = 200, seed: int = 1) -> list[Figure]:
    """The counts of the report; no row may differ from the model."""
    with own_lake() as (lake, _):
        report = play(lake, tell=lambda line: print(line, flush=True), rounds=rounds, seed=seed)
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


if __name__ == "__main__":
    sys.exit(alone(main))
