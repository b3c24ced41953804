"""The promises about speed: one line each on the page of benchmarks."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A promise, its goal, and the benchmarks that measure it.

    `shown` maps a label to the name of a figure: these figures stand in the promise's line.
    `shortfall` explains a missed goal and appears only while a goal is missed.
    """

    name: str
    promise: str
    goal: str
    benchmark: str
    shown: Mapping[str, str]
    shortfall: str = ""


ROWS = (
    Row(
        name="P1",
        promise="200 small MERGEs, each followed by a read: total seconds",
        goal="at most 0.35 of no compaction, and no more than the best other arm at each size; "
        "file count deviates by at most 14",
        benchmark="study",
        shown={
            "against no compaction": "`ours`, 200 iterations: total seconds beside no compaction",
            "deviation": "`ours`, 200 iterations: deviation of the file count",
        },
        shortfall="With 100,000 and 1,000,000 rows per batch, other arms are cheaper; "
        "[the study](study.md) explains why and what was tried.",
    ),
    Row(
        name="P2",
        promise="Vacuum from the inventory against VACUUM FULL, 100,000 files in 1,000 folders on S3's protocol",
        goal="20 times as fast; no LIST; at most one delete request per 1,000 files; from 10,000 files on no slower than deltalake",
        benchmark="vacuum",
        shown={
            "as fast, times": "how many times as fast as FULL, 100,000 files",
            "LIST": "requests LIST of data, 100,000 files",
            "DeleteObjects": "requests DeleteObjects of data, 100,000 files",
        },
    ),
    Row(
        name="P3",
        promise="Health and plan of a table of 300,000 files, without a JVM",
        goal="2 s and 1 GB; a million files in 5 s; the log is read no slower than by deltalake",
        benchmark="big_log",
        shown={
            "plan": "lakehouse plan, 300,000 files",
            "with": "memory of lakehouse plan, 300,000 files",
            "a million files": "lakehouse plan, 1,000,000 files",
            "log against deltalake": "reading the log over deltalake's opening and listing, 300,000 files",
        },
        shortfall="On this machine, the program of the record before takes as long; there, a million files took 4.64 s.",
    ),
    Row(
        name="P4",
        promise="From the sensor's request to the commit of a compaction, on top of a bare OPTIMIZE",
        goal="at most 3 s",
        benchmark="demo",
        shown={"": "from the sensor's request to the commit, over the bare OPTIMIZE"},
        shortfall="Most of it passes before the run begins: Dagster's daemon polls its queue once a second, and each run is a "
        "process that imports Dagster and PySpark on two busy cores.",
    ),
    Row(
        name="P5",
        promise="Throughput of a verified compaction against a bare OPTIMIZE",
        goal="at least 1",
        benchmark="throughput",
        shown={
            "": "throughput over that of a bare OPTIMIZE",
            "with deletion vectors": "throughput over that of a bare OPTIMIZE, with deletion vectors",
        },
        shortfall="Single pairs differ by up to a quarter, and the medians by 3 %.",
    ),
    Row(
        name="P6",
        promise="Bytes rewritten per new byte, in the study",
        goal="less than Delta's auto compaction and than OPTIMIZE every 20 iterations",
        benchmark="study",
        shown={"": "`ours`, 200 iterations: bytes rewritten per byte that was new"},
    ),
    Row(
        name="P7",
        promise="Slowdown of reads over a long run of small writes, with upkeep",
        goal="under 7 %",
        benchmark="read_slowdown",
        shown={
            "50 writes": "how much slower than a file per core, mean of 5 looks in 50 writes",
        },
    ),
    Row(
        name="P8",
        promise="Error of predicted seconds, after ten compactions",
        goal="under 15 %",
        benchmark="calibration",
        shown={
            "mean": "mean error of the seconds that compactions after the first 10 were predicted to take",
        },
        shortfall="The seconds of equal work differ by about as much.",
    ),
    Row(
        name="P9",
        promise="Predicted and actual files of compactions, on random tables",
        goal="no difference",
        benchmark="random_tables",
        shown={
            "differences": "differences on 200 random tables",
            "files": "files removed and added, as predicted",
        },
    ),
    Row(
        name="P10",
        promise="A batch from landing to gold against bare Spark statements",
        goal="at most 1.2 times the seconds",
        benchmark="pipeline_overhead",
        shown={
            "engine": "the engine over bare statements",
            "with Dagster": "Dagster's assets over bare statements",
        },
        shortfall="The engine takes no longer than bare statements. The rest is Dagster, which commits each event of seven assets and "
        "their checks to SQLite.",
    ),
    Row(
        name="P11",
        promise="`make run`: seconds to the first gold table, and to the page on a second start",
        goal="measured first, then halved",
        benchmark="demo",
        shown={
            "gold": "from the start to the first gold table with green checks, new home",
            "second start": "from the start to the page, the same home again",
        },
    ),
    Row(
        name="P12",
        promise="Memory of all processes of the demo",
        goal="4 GB, so that a laptop of 8 GB runs it next to a browser",
        benchmark="demo",
        shown={
            "peak": "memory of all processes at peak",
            "at rest": "memory of all processes at rest",
        },
    ),
    Row(
        name="P13",
        promise="Growth of cost with the number of tables or files",
        goal="exponent at most 1.1",
        benchmark="fleet,big_log,inventory,vacuum_lake,vacuum",
        shown={
            "tick": "sensor tick, by tables",
            "plan": "lakehouse plan, by files",
            "log": "reading the log, by files",
            "inventory": "inventory scan, by files",
            "vacuum by files": "seconds of a vacuum from the inventory, by files",
            "by tables": "seconds of a vacuum, by tables",
        },
    ),
    Row(
        name="P14",
        promise="S3 requests per small landed file, and price of a day of 100 idle tables",
        goal="at most 2 GETs per file",
        benchmark="requests,fleet",
        shown={
            "GETs": "GET of ours for a file of landed batch of 100 files, engine",
            "a day": "price of a day, 100 tables at rest on S3",
        },
    ),
    Row(
        name="P16",
        promise="Landing of 2 and 20 million records in large files against the bare Spark statement",
        goal="at most 1.5 times for Parquet, CSV and DMS, 2.5 times for JSON; own process below 400 MiB",
        benchmark="landing",
        shown={
            "Parquet": "2,000,000 records of parquet over the bare statement",
            "Parquet, 20 million": "20,000,000 records of parquet over the bare statement",
            "CSV": "2,000,000 records of csv over the bare statement",
            "CSV, 20 million": "20,000,000 records of csv over the bare statement",
            "JSON": "2,000,000 records of json over the bare statement",
            "JSON, 20 million": "20,000,000 records of json over the bare statement",
            "DMS, 5 million": "5,000,000 records of dms over the bare statement",
            "memory": "memory of the client",
        },
        shortfall="Spark reads CSV and JSON twice: first it counts the lines and matches each with the forms of its types. The columns with a row's "
        "file, line and time, which the bare statement does not write, take a fifth of its time, also in a load of Parquet. A full load of DMS reads the keys twice, because "
        "it counts the different ones first.",
    ),
    Row(
        name="P17",
        promise="The same CSV on a standalone cluster: two workers with a core each against one",
        goal="at most 0.6 of the time",
        benchmark="landing",
        shown={
            "2 million": "2,000,000 records of csv by two workers over one",
            "20 million": "20,000,000 records of csv by two workers over one",
        },
        shortfall="Driver and executors share two cores here, and the small load spends a larger share of its time in the driver.",
    ),
)
