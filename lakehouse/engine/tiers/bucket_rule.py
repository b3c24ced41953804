"""Installs the lifecycle rule that moves tagged files into a storage class.

**Safety properties** (tests in `engine/tiers/test_apply.py`)
- All other rules are kept, and so is S3's minimum size for transitions.
- The former configuration is recorded before it is replaced. The newest 20 of these records are
  kept below `_lakehouse/lifecycle/<bucket>/rules/`.
- Afterwards, the configuration is read again and compared.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any
from uuid import uuid4

from lakehouse.core.errors import Broken, Refused
from lakehouse.core.tiers.lifecycle_rules import parse_rule, tier_rule
from lakehouse.engine.clock import now_ms
from lakehouse.engine.journal.records import append_record
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import S3Store
from lakehouse.engine.store.s3_objects import put_lifecycle, read_lifecycle, s3_place

_FORMER_KEPT = 20


def rule_of(lake: Lake, storage_class: str) -> dict[str, Any]:
    """The lifecycle rule that moves the lake's tagged files into a class."""
    return tier_rule(_lake_store(lake).prefix, storage_class)


def install_rule(lake: Lake, rule: Mapping[str, Any]) -> bool:
    """Adds a rule to the bucket's configuration; returns whether it was missing or different.

    S3 replaces the whole configuration in one request, without a condition. If another program
    changes it at the same moment, one change is lost. The comparison afterwards detects that our
    rule or a former rule is missing, but not that our request replaced the other program's change.

    Raises:
        Refused: a permission is missing, or the lake is on a disk.
        Broken: the configuration is not as expected afterwards.
    """
    store = _lake_store(lake)
    former = read_lifecycle(store)
    if parse_rule(rule) in former.rules:
        return False
    folder = f"_lakehouse/lifecycle/{store.bucket}/rules"
    name = f"{now_ms():015}-{uuid4().hex}.json"
    former_document = json.loads(json.dumps(asdict(former), default=str))
    append_record(lake.store, folder, name, former_document, kept_count=_FORMER_KEPT)
    put_lifecycle(store, former.with_rule(rule))
    stored = read_lifecycle(store)
    other_rules = [each for each in former.documents if each.get("ID") != rule["ID"]]
    are_kept = all(each in stored.documents for each in other_rules)
    if not are_kept or parse_rule(rule) not in stored.rules:
        raise Broken(
            f"tiers: the lifecycle rules of s3://{store.bucket} differ from the written rules. "
            "Another program may have changed them at the same moment. Compare the bucket's rules "
            f"with {folder}/{name}, which has the former rules"
        )
    return True


def _lake_store(lake: Lake) -> S3Store:
    place = s3_place(lake.store, "_lakehouse")
    if place is None:
        raise Refused(
            f"tiers: the lake {lake.settings.root} lies on a disk, which has no storage classes. "
            "Use a lake on S3"
        )
    return place[0]
