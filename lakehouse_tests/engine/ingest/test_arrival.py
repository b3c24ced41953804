"""A batch that was just written is held against its commit in the table's log. Logs are written, no Spark."""

from pathlib import Path

import pytest

from lakehouse import Debezium, Landing, Merge, Table
from lakehouse.core.errors import Broken
from lakehouse.core.ingest.batches import ingest_app_id
from lakehouse.engine.changes.apply import superseded_count
from lakehouse.engine.changes.read import ChangeCounts
from lakehouse.engine.ingest.arrival import check_arrived
from lakehouse.engine.lake import Lake
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.memory_store import MemoryStore

KEY = "bronze/orders"
TABLE = Table(
    key=KEY, source=Landing(prefix="landing/orders/", format="json", schema="id BIGINT", changes=Debezium()), write=Merge(keys=("id",))
)


@pytest.mark.parametrize("commits_since", [0, 600])  # the facts of a table hold 500
def test_a_commit_is_held_against_its_batch_however_many_others_made_since(tmp_path: Path, commits_since: int) -> None:
    lake = Lake(settings=own_settings(tmp_path), store=MemoryStore())
    log = LogBuilder(lake.store, KEY).create().append([("o", 9, 1)], transaction=(ingest_app_id(KEY), 1), metrics={"numOutputRows": "9"})
    before = lake.facts(KEY)
    log.append([("x", 2, 1)], transaction=(ingest_app_id(KEY), 2), metrics={"numOutputRows": "2"})
    for number in range(commits_since):
        log.append([(f"f{number}", 1, 1)])
    after = lake.facts(KEY)
    assert after is not None
    check_arrived(lake, TABLE, 2, 2, before=before, after=after)
    with pytest.raises(Broken, match=r"batch 2 has 3 row\(s\), but version 2 of the table says that 2 were written"):
        check_arrived(lake, TABLE, 2, 3, before=before, after=after)
    counts = ChangeCounts(rows=5, bad=0, rescued=0, deletes=0, truncates=0, key_changes=0)
    assert superseded_count(lake, TABLE, counts, before=before, after=after) == 3
