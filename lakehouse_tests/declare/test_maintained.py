"""The record of maintained tables: everything that a call of `maintain` declares comes back."""

import json
from typing import Any

import pytest

from lakehouse.base.errors import Refused
from lakehouse.declare.adopted import (
    maintained_document,
    maintained_table,
    parse_maintained,
)
from lakehouse.declare.policies import Archive, Compaction, Scheduled, Vacuum, ZOrder
from lakehouse.declare.table import Adopted

PLAIN = maintained_table("silver/plain", Adopted(uri="/w/plain", asset_key=("plain",)))
FULL = maintained_table(
    "gold/full",
    Adopted(uri="s3://bucket/full", orphans="delete", asset_key=("a", "full"), pool="full"),
    compaction=Compaction(
        strategy=Scheduled(cron="0 3 * * *"),
        min_small_files=7,
        data_layout=ZOrder(columns=("id", "day")),
    ),
    vacuum=Vacuum(keep_versions=(3, 4)),
    archive=Archive(older_than_days=62, storage_class="GLACIER_IR"),
)


def parsed(document: Any) -> Any:
    return parse_maintained(json.loads(json.dumps(document)), name="the record")


def test_a_table_comes_back_with_every_knob_from_the_record_as_json() -> None:
    document = maintained_document([PLAIN, FULL], home="/p/.lakehouse")
    assert parsed(document) == {"silver/plain": PLAIN, "gold/full": FULL}
    assert "compaction" not in document["tables"]["silver/plain"]
    assert document["tables"]["gold/full"]["vacuum"] == {"kind": "Vacuum", "keep_versions": [3, 4]}


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"min_small_files": 1}, "Compaction.min_small_files is 1. Use a whole number, 2 or more"),
        ({"coolness": 1}, "'coolness'"),
        ({"strategy": {"kind": "ByMoon"}}, "'ByMoon'"),
        ({"strategy": {"kind": "Scheduled", "seconds": 3}}, "'seconds'"),
    ],
)
def test_a_knob_of_another_version_is_never_its_default(knobs: dict[str, Any], said: str) -> None:
    document = maintained_document([PLAIN], home="/p/.lakehouse")
    document["tables"]["silver/plain"]["compaction"] = {"kind": "Compaction", **knobs}
    with pytest.raises(Refused) as refused:
        parsed(document)
    assert said in str(refused.value)
    assert str(refused.value).startswith("the record: silver/plain: ")
    assert "Use the project's version here, or update lakehouse in the project" in str(
        refused.value
    )
