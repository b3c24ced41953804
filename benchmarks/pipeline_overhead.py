"""Compares a day of flights from landing to gold with bare Spark statements for the same tables.

`python -m benchmarks.pipeline_overhead [DAYS] [WARM-UP DAYS] [TABLES]`. Three lakes on one server
load the same files in turn: with bare statements (a read, a MERGE, an overwrite, knowing which
files are new), with the engine, and through Dagster's assets in this process.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from statistics import median
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from benchmarks.figures import Figure, alone, middle, ratio, timed
from benchmarks.own_lake import lake_below, own_lake
from lakehouse import Landing, Merge, Overwrite, Table
from lakehouse.assets.events import open_instance
from lakehouse.cli.dagster_runs import run_assets
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table
from lakehouse.replay.play import play
from lakehouse.spark import statements
from lakehouse.tables import bronze, gold, silver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLES = (
    bronze.airlines,
    bronze.flight_events,
    bronze.weather,
    silver.flights,
    silver.weather,
    gold.carrier_daily,
    gold.route_delays,
)
MOST_TIMES = 1.2
type_of_batch = Callable[[], object]


def main(days: int = 9, warm_up: int = 3, tables: int = len(TABLES)) -> list[Figure]:
    """Seconds of a day's batch by each way, and ratios to the bare statements."""
    from lakehouse.definitions import define  # reads the environment when it is imported

    written = TABLES[:tables]
    with (
        own_lake(LAKEHOUSE_SPARK_MEMORY="2g", LAKEHOUSE_TABLES="lakehouse.tables") as (lake, spark),
        ExitStack() as stack,
    ):
        lakes = {way: lake_below(lake, way) for way in ("bare", "engine", "assets")}
        instance = stack.enter_context(open_instance(lakes["assets"].settings, print))
        defs = define(lakes["assets"].settings)
        keys = [table.key for table in written]
        bare = BareBatches(lakes["bare"], spark, written)
        ways: dict[str, type_of_batch] = {
            "bare": bare.run,
            "engine": lambda: [write_table(lakes["engine"], spark, table) for table in written],
            "assets": lambda: _succeeded(run_assets(instance, defs, keys)),
        }
        rounds = [_round(lakes, ways, number) for number in range(warm_up + days)][-days:]
        differing = sum(
            _rows(lakes["bare"], table) != _rows(lakes[way], table)
            for table in written[-2:]
            for way in ("engine", "assets")
        )
    seconds = {way: [each[way] for each in rounds] for way in ways}
    beside = {
        "bare statements": median(seconds["bare"]),
        "the engine alone, without Dagster": median(seconds["engine"]),
    }
    return [
        middle(
            "a day of flights from landing to gold, through Dagster's assets",
            seconds["assets"],
            unit="s",
            row="P10",
            peers=beside,
        ),
        ratio(
            "the engine over bare statements",
            seconds["engine"],
            seconds["bare"],
            row="P10",
            at_most=MOST_TIMES,
        ),
        ratio(
            "Dagster's assets over bare statements",
            seconds["assets"],
            seconds["bare"],
            row="P10",
            at_most=MOST_TIMES,
        ),
        Figure(
            name="gold tables that differ between the ways",
            value=differing,
            row="P10",
            at_most=0,
            holds_at_any_size=True,
        ),
    ]


def _round(lakes: dict[str, Lake], ways: dict[str, type_of_batch], number: int) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for lake in lakes.values():
        play(lake.store, lake.settings.home, hours=24)
    names = [*ways]
    for way in (*names[number % 3 :], *names[: number % 3]):
        seconds[way], _ = timed(ways[way])
    print("  " + ", ".join(f"{way} {seconds[way]:.1f} s" for way in names), flush=True)
    return seconds


def _succeeded(runs: Sequence[object]) -> None:
    for run in runs:
        if getattr(run, "state", "done") != "done":
            raise SystemExit(f"a run failed: {run}")


def _rows(lake: Lake, table: Table) -> object:
    """The sorted rows of a gold table, without our own columns."""
    frame = DeltaTable(lake.settings.table_uri(table.key)).to_pandas()
    names = sorted(name for name in frame.columns if not name.startswith("_"))
    return sorted(map(str, frame[names].itertuples(index=False)))


class BareBatches:
    """The tables by the statements that a team writes first: no ledger, quarantine or retry."""

    def __init__(self, lake: Lake, spark: "SparkSession", tables: Sequence[Table]) -> None:
        self._lake, self._spark, self._tables, self._loaded = lake, spark, tables, set[str]()

    def run(self) -> None:
        """Loads one batch into all tables."""
        fresh: dict[str, DataFrame] = {}
        for table in self._tables:
            if isinstance(table.source, Landing):
                if (landed := self._landed(table.source)) is not None:
                    fresh[table.key] = landed
                    self._write(landed, table)
            elif isinstance(table.write, Merge):
                if table.inputs[0].key in fresh:
                    self._merge(
                        self._made({table.inputs[0].key: fresh[table.inputs[0].key]}, table), table
                    )
            else:
                whole = {
                    source.key: self._spark.read.format("delta").load(self._uri(source))
                    for source in table.inputs
                }
                self._write(self._made(whole, table), table)

    def _landed(self, source: Landing) -> "DataFrame | None":
        """The parsed new files of a landing folder."""
        from pyspark.sql import functions as F  # noqa: N812

        names = [
            file.name
            for file in self._lake.store.list(source.prefix)
            if file.name not in self._loaded
        ]
        self._loaded.update(names)
        if not names:
            return None
        reader = (
            self._spark.read.schema(source.schema)
            .option("header", "true")
            .option("nullValue", "NA" if source.format == "csv" else "")
        )
        rows = reader.format(source.format).load(
            [f"{self._lake.settings.root}/{name}" for name in names]
        )
        own = {"_source_file": F.col("_metadata.file_name"), "_source_line": F.lit(0)}
        return rows.withColumns(
            {**{name: F.expr(text) for name, text in source.derived.items()}, **own}
        )

    def _made(self, frames: "dict[str, DataFrame]", table: Table) -> "DataFrame":
        assert table.transform is not None
        return table.transform(**{source.name: frames[source.key] for source in table.inputs})

    def _write(self, frame: "DataFrame", table: Table) -> None:
        mode = "overwrite" if isinstance(table.write, Overwrite) else "append"
        writer = frame.write.format("delta").mode(mode)
        partitions = getattr(table.write, "partition_by", ())
        (writer.partitionBy(*partitions) if partitions else writer).save(self._uri(table))

    def _merge(self, frame: "DataFrame", table: Table) -> None:
        """Merges the newest row of each key into the table."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F  # noqa: N812

        assert isinstance(table.write, Merge)
        newest = Window.partitionBy(*table.write.keys).orderBy(
            *(F.desc(name) for name in table.write.order_by)
        )
        frame = (
            frame.withColumn("_place", F.row_number().over(newest))
            .where("_place = 1")
            .drop("_place")
        )
        if self._lake.facts(table.key) is None:
            frame.write.format("delta").save(self._uri(table))
            return
        frame.createOrReplaceTempView("bare_batch")
        self._spark.sql(
            statements.merge_into(
                self._uri(table),
                "bare_batch",
                statements.same_keys(table.write.keys),
                statements.upsert(statements.is_newer(table.write.order_by)),
            )
        )

    def _uri(self, table: Table) -> str:
        return self._lake.settings.table_uri(table.key)


if __name__ == "__main__":
    sys.exit(alone(main))
