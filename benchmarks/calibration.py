"""Compares predicted and actual seconds of compactions of many sizes on one table.

`python -m benchmarks.calibration [RUNS] [SECONDS]` uses its own Spark Connect server.
"""

import random
import statistics
import sys
import time

from benchmarks.figures import Figure, alone, middle
from benchmarks.own_lake import landed_table, own_lake
from lakehouse import Compaction
from lakehouse.compact.run import compact
from lakehouse.delta.commits import LoggedCompaction
from lakehouse.lake.lake import Lake

_TABLE = landed_table("bronze/sizes", compaction=Compaction(min_small_files=2))
_LEARNT = 10


def main(runs: int = 24, budget_seconds: int = 110, most_rows: int = 60_000) -> list[Figure]:
    """Errors of predicted seconds."""
    dice = random.Random(4)
    with own_lake() as (lake, spark):
        began = time.monotonic()
        for number in range(1, runs + 1):
            if number > 1 and time.monotonic() - began > budget_seconds:
                break
            _append(
                spark,
                lake,
                files=dice.randint(4, 60),
                rows_per_file=min(most_rows, dice.choice((2_000, 20_000, 60_000))),
            )
            compact(lake, spark, _TABLE)
            print(_line(number, _newest(lake)), flush=True)
        errors = [_error(run) * 100 for run in _logged_compactions(lake)]
    late = errors[_LEARNT:] or errors  # a run that was too short to learn is judged all the same
    name = f"mean error of the seconds that compactions after the first {_LEARNT} were predicted to take"
    return [
        Figure(
            name=name,
            value=statistics.mean(late),
            unit="%",
            row="P8",
            at_most=15,
            peers={"all of them": statistics.mean(errors)},
        ),
        middle("the median of these errors", late, unit="%", row="P8"),
    ]


def _append(spark, lake: Lake, *, files: int, rows_per_file: int) -> None:
    rows = spark.range(0, files * rows_per_file, 1, files).selectExpr(
        "id", "sha2(string(id), 256) AS text", "rand(7) AS number"
    )
    rows.write.format("delta").mode("append").save(lake.settings.table_uri(_TABLE.key))


def _logged_compactions(lake: Lake) -> tuple[LoggedCompaction, ...]:
    return lake.facts(_TABLE.key).history.compactions()


def _newest(lake: Lake) -> LoggedCompaction:
    return _logged_compactions(lake)[-1]


def _error(run: LoggedCompaction) -> float:
    return abs(run.predicted.seconds - run.seconds) / run.seconds


def _line(number: int, run: LoggedCompaction) -> str:
    return (
        f"{number:3} {run.files_removed:4} files {run.bytes_removed / 1e6:7.2f} MB: predicted {run.predicted.seconds:6.2f} s, "
        f"took {run.seconds:6.2f} s, error {_error(run):6.1%}, "
        f"bytes added {(run.predicted.bytes_added or 0) / 1e6:.2f} MB and {run.bytes_added / 1e6:.2f}"
    )


if __name__ == "__main__":
    sys.exit(alone(main))
