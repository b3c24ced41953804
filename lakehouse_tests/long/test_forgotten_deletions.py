"""Files that arrive after deletions were forgotten bring no row back."""

import os
from pathlib import Path

from pyspark.sql import SparkSession

from lakehouse import Debezium, Dms, Merge
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table
from lakehouse_tests.cdc.test_read import KEY, PREFIX, QUARANTINE, event, people
from lakehouse_tests.support.example_lake import land, rows_in


def test_a_late_full_load_brings_no_key_back_whose_deletion_may_be_forgotten(
    lake: Lake, spark: SparkSession
) -> None:
    table = people(
        Dms(position=("seq",), lateness_hours=0),
        Merge(keys=("id",)),
        schema="Op STRING, id BIGINT, v STRING, seq INT",
    )
    land(lake, "LOAD00000001.csv", ["1,a,NULL", "2,a,NULL", "3,a,NULL"], prefix=PREFIX)
    land(lake, "20130101-1.csv", ["D,1,a,1"], prefix=PREFIX)
    write_table(lake, spark, table)
    # All deletions are remembered yet: a row of a full load is of a key that was never deleted, or is superseded.
    land(lake, "LOAD00000002.csv", ["1,b,NULL", "5,b,NULL"], prefix=PREFIX)
    land(lake, "20130101-2.csv", ["D,2,a,2"], prefix=PREFIX)
    assert write_table(lake, spark, table).rows_quarantined == 0
    assert rows_in(lake, KEY, "id", "v") == [(3, "a"), (5, "b")]
    land(lake, "LOAD00000003.csv", ["1,b,NULL", "2,b,NULL", "3,b,NULL", "4,b,NULL"], prefix=PREFIX)
    land(lake, "20130101-3.csv", ["I,4,c,3"], prefix=PREFIX)
    outcome = write_table(lake, spark, table)
    assert (outcome.rows_quarantined, outcome.rows_superseded) == (2, 1)
    assert rows_in(lake, KEY, "id", "v") == [(3, "b"), (4, "c"), (5, "b")]
    why = "this row of a full load arrived after deletions were forgotten (Dms.lateness_hours)"
    quarantined = rows_in(lake, QUARANTINE, "line", "reason")
    assert [(line, reason.partition(",")[0]) for line, reason in quarantined] == [
        (1, why),
        (4, why),
    ]


def test_a_file_that_waited_while_deletions_were_forgotten_brings_no_row_back(
    lake: Lake, spark: SparkSession
) -> None:
    """As one that was set aside when it landed, and is read again weeks later; what landed since, or is newer, is loaded."""
    table = people(Debezium(lateness_hours=0), Merge(keys=("id",)))
    waiting = Path(lake.settings.root) / PREFIX / "0.json"
    # The first deletion is forgotten with the second.
    for name, events in (
        ("1", [*(event("c", 1, id_) for id_ in (1, 2, 3)), event("d", 5, 1)]),
        ("2", [event("d", 5, 2)]),
    ):
        land(lake, f"{name}.json", events, prefix=PREFIX)
        write_table(lake, spark, table)
    land(
        lake,
        "0.json",
        [event("u", 4, 1), event("u", 4, 3), event("d", 4, 7), event("c", 6, 8)],
        prefix=PREFIX,
    )
    os.utime(waiting, (waiting.stat().st_mtime - 3_600,) * 2)
    land(lake, "4.json", [event("c", 2, 9)], prefix=PREFIX)
    assert write_table(lake, spark, table).rows_quarantined == 1
    assert rows_in(lake, KEY, "id", "v") == [(3, "u"), (8, "c"), (9, "c")]
    [(file, line, why)] = rows_in(lake, QUARANTINE, "source_file", "line", "reason")
    assert (file, line) == (f"{PREFIX}0.json", 1)
    assert why.startswith("this row's file landed before deletions that have been forgotten since")
