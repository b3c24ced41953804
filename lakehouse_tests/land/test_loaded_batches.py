"""The log of a table tells which batches it holds, and what a batch wrote. Logs are written, no Spark."""

from pathlib import Path

import pytest

from lakehouse import Debezium, Landing, Merge, Table
from lakehouse.base.errors import Broken, Refused
from lakehouse.cdc.read import ChangeCounts
from lakehouse.cdc.run import superseded_count
from lakehouse.declare.table import TRANSACTION_RETENTION
from lakehouse.delta.commits import ingest_app_id
from lakehouse.lake.lake import Lake
from lakehouse.land.ledger import PlannedBatches
from lakehouse.land.loaded_batches import check_loaded, last_loaded, unfinished_batch
from lakehouse.land.plan.batches import Batch, LandedFile
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.memory_store import MemoryStore

KEY = "bronze/orders"
TABLE = Table(
    key=KEY,
    source=Landing(prefix="landing/orders/", format="json", schema="id BIGINT", changes=Debezium()),
    write=Merge(keys=("id",)),
)


def test_a_table_whose_log_does_not_tell_its_batches_or_forgets_them_is_not_loaded(
    tmp_path: Path,
) -> None:
    """It was renamed, or made anew from somewhere else, its manifests are lost, or a property of it lets Delta forget."""
    lake, prefix = Lake(settings=own_settings(tmp_path), store=MemoryStore()), "landing/orders/"
    log = LogBuilder(lake.store, KEY).create().append([("o", 9, 1)])

    def unfinished() -> Batch | None:
        batches = PlannedBatches(lake.store, KEY, prefix=prefix)
        ledger = batches.ledger()
        return unfinished_batch(
            lake, TABLE, last_loaded(TABLE, lake.facts(KEY), ledger), ledger, batches
        )

    with pytest.raises(
        Broken,
        match=r"has rows, but .* If the table was renamed or copied: .* --arrived N.* use --arrived 0",
    ):
        unfinished()
    file = LandedFile(name="a.json", size_bytes=1, modified_ms=0)
    PlannedBatches(lake.store, KEY, prefix=prefix).plan(
        Batch(number=1, files=(file,), prefix=prefix)
    )
    with pytest.raises(
        Broken,
        match=r"no transaction id of a landed batch, but batches up to 1 were planned.*--arrived N",
    ):
        unfinished()
    log.append([("p", 9, 1)], transaction=(ingest_app_id(KEY), 2))
    with pytest.raises(
        Broken,
        match=r"batch 2 is in the table, but the newest manifest .* is 1.*restore the manifests",
    ):
        unfinished()
    log.set_properties(**{TRANSACTION_RETENTION: "interval 1 days"})
    with pytest.raises(
        Refused, match=rf"{TRANSACTION_RETENTION} = 'interval 1 days', Delta forgets"
    ):
        unfinished()


@pytest.mark.parametrize("commits_since", [0, 600])  # the facts of a table hold 500
def test_a_commit_is_held_against_its_batch_however_many_others_made_since(
    tmp_path: Path, commits_since: int
) -> None:
    lake = Lake(settings=own_settings(tmp_path), store=MemoryStore())
    log = (
        LogBuilder(lake.store, KEY)
        .create()
        .append([("o", 9, 1)], transaction=(ingest_app_id(KEY), 1), metrics={"numOutputRows": "9"})
    )
    before = lake.facts(KEY)
    log.append([("x", 2, 1)], transaction=(ingest_app_id(KEY), 2), metrics={"numOutputRows": "2"})
    for number in range(commits_since):
        log.append([(f"f{number}", 1, 1)])
    after = lake.facts(KEY)
    assert after is not None
    check_loaded(lake, KEY, 2, 2, before=before, after=after)
    with pytest.raises(
        Broken, match="batch 2 has 3 rows, but version 2 of the table records 2 written rows"
    ):
        check_loaded(lake, KEY, 2, 3, before=before, after=after)
    with pytest.raises(
        Broken, match="batch 3 was written, but the last batch in the table's log is 2"
    ):
        check_loaded(lake, KEY, 3, 2, before=before, after=after)
    counts = ChangeCounts(
        rows=5, bad=0, rescued=0, deletes=0, truncates=0, key_changes=0, unsent=0, kept=0
    )
    assert superseded_count(lake, KEY, counts, before=before, after=after) == 3
