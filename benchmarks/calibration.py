"""Compactions of many sizes on one table: what each was predicted to take beside what it took, and the mean error.

`python -m benchmarks.calibration [RUNS] [SECONDS]` starts a Spark Connect server of its own and begins no run after so many seconds. At the
end the last compaction is undone and done again a few times: what the very same work differs by is what no prediction can be better than.
"""

import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from lakehouse import Append, Compaction, Landing, Table
from lakehouse.core.delta.commits import LoggedCompaction
from lakehouse.engine.compaction.run import compact
from lakehouse.engine.lake import Lake, open_lake
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.sessions import connect
from lakehouse.runtime import server
from lakehouse_tests.conftest import own_settings

_TABLE = Table(
    key="bronze/sizes",
    source=Landing(prefix="landing/sizes/", format="json", schema="id BIGINT"),
    write=Append(),
    compaction=Compaction(min_small_files=2),
)
_LEARNT, _REPEATS = 10, 5


def main(runs: int = 24, budget_seconds: int = 110) -> int:
    """Prints one line per compaction; 0 if the mean error of those after the tenth is under 10 %."""
    dice = random.Random(4)
    with tempfile.TemporaryDirectory() as folder:
        settings = own_settings(Path(folder))
        with server.supervised(settings):
            spark, lake = connect(settings), open_lake(settings)
            began = time.monotonic()
            for number in range(1, runs + 1):
                if time.monotonic() - began > budget_seconds:
                    break
                _append(spark, lake, files=dice.randint(4, 60), rows_per_file=dice.choice((2_000, 20_000, 60_000)))
                compact(lake, spark, _TABLE)
                print(_line(number, _newest(lake)), flush=True)
            errors = [_error(run) for run in _logged_compactions(lake)]
            same = [_again(spark, lake) for _ in range(_REPEATS)]
            spark.stop()
    print(f"the last one {_REPEATS} times more: {', '.join(f'{seconds:.2f}' for seconds in same)} s, ", end="")
    middle = statistics.median(same)
    print(f"off their median by {statistics.mean(abs(seconds / middle - 1) for seconds in same):.1%} in the mean")
    late = errors[_LEARNT:]
    print(f"mean error of seconds: all {statistics.mean(errors):.1%}, median {statistics.median(errors):.1%}", end="")
    print(f"; after {_LEARNT} compactions {statistics.mean(late):.1%}, median {statistics.median(late):.1%}" if late else "")
    return 0 if late and statistics.mean(late) < 0.1 else 1


def _append(spark, lake: Lake, *, files: int, rows_per_file: int) -> None:
    rows = spark.range(0, files * rows_per_file, 1, files).selectExpr("id", "sha2(string(id), 256) AS text", "rand(7) AS number")
    rows.write.format("delta").mode("append").save(lake.settings.table_uri(_TABLE.key))


def _again(spark, lake: Lake) -> float:
    """The seconds of the newest compaction, undone and done once more."""
    spark.sql(statements.restore(lake.settings.table_uri(_TABLE.key), _newest(lake).first_version - 1))
    compact(lake, spark, _TABLE)
    return _newest(lake).seconds or 0.0


def _logged_compactions(lake: Lake) -> tuple[LoggedCompaction, ...]:
    facts = lake.facts(_TABLE.key)
    assert facts is not None
    return facts.history.compactions()


def _newest(lake: Lake) -> LoggedCompaction:
    return _logged_compactions(lake)[-1]


def _error(run: LoggedCompaction) -> float:
    assert run.predicted is not None and run.predicted.seconds is not None and run.seconds
    return abs(run.predicted.seconds - run.seconds) / run.seconds


def _line(number: int, run: LoggedCompaction) -> str:
    assert run.predicted is not None
    return (
        f"{number:3} {run.files_removed:4} files {run.bytes_removed / 1e6:7.2f} MB: predicted {run.predicted.seconds:6.2f} s "
        f"({run.predicted.source}), took {run.seconds:6.2f} s, error {_error(run):6.1%}, "
        f"bytes added {(run.predicted.bytes_added or 0) / 1e6:.2f} MB and {run.bytes_added / 1e6:.2f}"
    )


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
