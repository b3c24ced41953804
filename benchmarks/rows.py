"""The promises about speed, as the page lists them; figures are held against them by `Figure.row`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One promise, its goal, the benchmark that measures it, and why a goal is missed, which is shown only where it is."""

    name: str
    promise: str
    goal: str
    benchmark: str
    shortfall: str = ""


ROWS = (
    Row(
        name="P1",
        promise="200 small MERGEs with a read after each: total seconds against no compaction",
        goal="at most 0.35, and at most the best other arm at each size; deviation of the file count at most 14",
        benchmark="study",
        shortfall="At 100,000 and at 1,000,000 rows a batch other arms are cheaper; "
        "[why, and what was tried](study.md#the-runs-in-which-other-arms-are-cheaper). "
        "At 1,000 rows whole runs on other days gave 0.31 to 0.36 ([side by side](study.md#whole-runs-side-by-side)).",
    ),
    Row(
        name="P2",
        promise="A vacuum from the inventory against VACUUM FULL on S3's protocol, 100,000 files in 1,000 folders",
        goal="20 times as fast; no LIST; at most one delete request for 1,000 files",
        benchmark="vacuum",
        shortfall="More than half of the seconds at 100,000 files is the pace of `max_deletes_per_second`, and the server answers at once. "
        "Where each answer comes 20 ms later, as those of a bucket do, a tenth of the files is enough to meet the goal (last rows). "
        "A larger pace was not taken: S3 refuses more than some 3,500 deletions a second below one prefix. `VACUUM LITE` is no peer: it "
        "looks through nothing, and leaves the files of failed writes.",
    ),
    Row(
        name="P3",
        promise="Health and plan of a table of 300,000 files, without a JVM",
        goal="under 2 s and 1 GB; the log read no slower than deltalake opens the table and lists its files; a million files in 5 s",
        benchmark="big_log",
    ),
    Row(
        name="P4",
        promise="From the sensor's request to the commit of a compaction, over the bare engine call",
        goal="at most 3 s",
        benchmark="demo",
        shortfall="Most of it passes before the run begins: Dagster's daemon looks into its queue once a second, and each run "
        "is a process of its own, which imports Dagster and PySpark on two cores that the pipeline keeps busy.",
    ),
    Row(
        name="P5",
        promise="Throughput of a compaction, all rows compared, against a bare OPTIMIZE",
        goal="at least 1",
        benchmark="throughput",
        shortfall="The statement is the same; plan, log and comparison of rows are the difference. Tried: Arrow reads the removed files "
        "while the OPTIMIZE runs, with their deletion vectors; Spark read them after it.",
    ),
    Row(
        name="P6",
        promise="Bytes rewritten per byte that was new, in the study",
        goal="less than Delta's auto compaction and than OPTIMIZE every 20",
        benchmark="study",
    ),
    Row(
        name="P7",
        promise="How much slower a table reads over a long run of small writes, with upkeep",
        goal="under 7 %",
        benchmark="read_slowdown,phases",
    ),
    Row(
        name="P8",
        promise="The error of predicted seconds, after ten compactions",
        goal="under 10 %",
        benchmark="calibration,rates",
        shortfall="The very same work, done five times, lies as far apart on this machine as the third row says: no prediction is much "
        "better than that. Tried: prices by files and bytes alone were further off where values are small, so rows times columns count.",
    ),
    Row(
        name="P9",
        promise="Files that a compaction removes and adds, predicted beside actual, on random tables",
        goal="no difference",
        benchmark="random_tables",
    ),
    Row(
        name="P10",
        promise="A batch from landing to gold against the bare Spark statements that give the same tables",
        goal="at most 1.2 times the seconds",
        benchmark="pipeline_overhead",
        shortfall="The engine alone takes no longer than bare statements. What is missing is Dagster's own work: it stores each event of "
        "seven assets and their checks in SQLite, by commits of its own. A trial in which SQLite did not wait for the disk at each of them "
        "(`synchronous=NORMAL`) came nearer to the goal and did not reach it; Dagster has no setting for it.",
    ),
    Row(
        name="P11",
        promise="`make run`, second start: seconds to the first gold table",
        goal="stated, then halved",
        benchmark="demo",
    ),
    Row(
        name="P12",
        promise="Memory of all processes of the demo, at rest and at peak",
        goal="a laptop of 8 GB runs it with a browser beside",
        benchmark="demo",
    ),
    Row(
        name="P13",
        promise="How cost grows: sensor tick, plan, inventory, vacuum, over tables and files",
        goal="exponent at most 1.1",
        benchmark="fleet,big_log,inventory,vacuum_lake,vacuum",
    ),
    Row(
        name="P14",
        promise="Requests to S3 for a landed small file, and of tables at rest",
        goal="at most 2 for a file; bounded at rest, with their price",
        benchmark="requests,fleet",
    ),
    Row(
        name="P15",
        promise="Eight weeks of daily batches written, read and compacted, for four kinds of readers",
        goal="within 3 % of the cheapest strategy; no more bytes rewritten than by OPTIMIZE every 20",
        benchmark="eight_weeks",
    ),
)
