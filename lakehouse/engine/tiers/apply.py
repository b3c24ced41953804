"""Tags a table's dead files for a colder storage class, if the move saves more than it costs.

A dead file was removed from the table, but not yet deleted by a vacuum. A table borrows a file if
it reads the file from another table's folder, as shallow clones do.

1. The plan is made from the table's log and the newest inventory report, as for a vacuum.
2. The journal records the files of the plan before they are tagged.
3. The tag is removed from tagged files that are live again, or that another table borrows.
4. Before each batch, three checks are made in this order: no other table borrows the files, the
   files have not changed since the report, and the table's log still records them as removed. Files
   that pass all checks are tagged.
5. After each batch, the log is read again. Files that a newer version needs lose the tag.
6. The journal's record is replaced by a record of what was done.

S3 applies lifecycle rules about once a day. A rule for the tag moves the tagged files.

**Safety properties** (tests in `engine/tiers/test_apply.py`)
- Only files of the plan are tagged, and only if the newest version does not need them. If a RESTORE
  brings a file back during a batch, its tag is removed before the run ends. If another table
  borrows a file after its batch, the next run removes the tag.
- By default, only classes whose objects can be read without a restore are chosen. So a tagged file
  that is brought back stays readable.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from lakehouse.core.costs.predicted_and_actual import Figure, figures_as_json
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.protocol import unknown_features
from lakehouse.core.errors import Broken, Refused
from lakehouse.core.tiers.lifecycle_rules import TIER_TAG
from lakehouse.core.tiers.plan import (
    READ_AT_ONCE,
    DeadFile,
    TierPlan,
    TierRecord,
    dead_files,
    plan_tiers,
    still_dead,
)
from lakehouse.core.tiers.storage_class_costs import TierPrices
from lakehouse.core.vacuum.facts import ASKED_AT_ONCE
from lakehouse.engine.clock import now_ms
from lakehouse.engine.store.s3_objects import s3_place, set_tag
from lakehouse.engine.tiers.tagged_files import (
    record_name,
    record_tiers,
    tagged_before,
    tagged_yet_needed,
)
from lakehouse.engine.vacuum.lake_facts import LakeFacts
from lakehouse.engine.vacuum.log_state import has_newer_version
from lakehouse.engine.vacuum.plan import VacuumInputs, gather

_BATCH_FILES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class TierOutcome:
    """The result of a plan.

    `tagged` maps file names to sizes in bytes. `untagged` are the needed files that lost their tag.
    `spared` maps each planned file without a tag to the reason.
    """

    plan: TierPlan
    tagged: Mapping[str, int]
    untagged: Sequence[str] = ()
    spared: Mapping[str, str] = field(default_factory=dict[str, str])
    requests: Mapping[str, int] = field(default_factory=dict[str, int])

    def as_json(self) -> dict[str, Any]:
        """The plan's JSON document, with the result added."""
        figures = (
            Figure("files", len(self.plan.files), len(self.tagged)),
            Figure("bytes", self.plan.size_bytes, sum(self.tagged.values())),
        )
        return {
            **self.plan.as_json(),
            "figures": figures_as_json(figures),
            "actual_files": len(self.tagged),
            "actual_bytes": sum(self.tagged.values()),
            "actual_requests": dict(self.requests),
            "untagged": list(self.untagged),
            "spared": dict(self.spared),
        }


def plan(
    run: LakeFacts, table: Table, prices: TierPrices, *, classes: Sequence[str] = READ_AT_ONCE
) -> TierPlan | None:
    """Plans the tagging of a table's dead files; `None` if there is no table.

    Raises:
        Refused: the table is not on S3, no inventory report covers it, or its retention or one of
            its table features is unknown; otherwise as `gather`.
    """
    planned = _planned(run, table, prices, classes)
    if planned is None:
        return None
    _, tier_plan = planned
    return tier_plan


def apply(
    run: LakeFacts, table: Table, prices: TierPrices, *, classes: Sequence[str] = READ_AT_ONCE
) -> TierOutcome | None:
    """Tags the files of the plan, and untags needed files; `None` if there is no table.

    Raises:
        Refused: as `plan`, or another table's log cannot be read.
        Broken: the table's log disappeared, or was reset to an older state.
    """
    planned = _planned(run, table, prices, classes)
    if planned is None:
        return None
    inputs, tier_plan = planned
    if not tier_plan.files and not tier_plan.untag:
        return TierOutcome(plan=tier_plan, tagged={})
    store = run.lake.store
    requests_before = store.requests.copy()
    started_ms = now_ms()
    name = record_name(now_ms())
    record = TierRecord(
        started_ms=started_ms,
        ended_ms=started_ms,
        storage_class=tier_plan.storage_class,
        version=tier_plan.version,
        tagged={each.name: each.size_bytes for each in tier_plan.files},
        untagged=tier_plan.untag,
        predicted_usd=tier_plan.move_usd,
        saved_usd=tier_plan.saved_usd,
    )
    record_tiers(store, table.key, name, record)
    tagging = _Tagging(run, inputs, tier_plan)
    tagging.untag(tier_plan.untag)
    for start in range(0, len(tier_plan.files), _BATCH_FILES):
        tagging.tag(tier_plan.files[start : start + _BATCH_FILES])
    outcome = TierOutcome(
        plan=tier_plan,
        tagged=tagging.tagged,
        untagged=tuple(tagging.untagged),
        spared=tagging.spared,
        requests=dict(store.requests - requests_before),
    )
    final_record = replace(
        record,
        is_complete=True,
        ended_ms=now_ms(),
        tagged=outcome.tagged,
        untagged=outcome.untagged,
        spared=outcome.spared,
        requests=outcome.requests,
    )
    record_tiers(store, table.key, name, final_record)
    return outcome


class _Tagging:
    """Tags the files of one table in one run. `spared` maps files without a tag to the reason."""

    def __init__(self, run: LakeFacts, inputs: VacuumInputs, planned: TierPlan) -> None:
        self._run = run
        self._planned = planned
        self._facts = inputs.facts
        place = s3_place(run.lake.store, planned.table)
        assert place is not None
        self._store, self._folder = place
        self.tagged: dict[str, int] = {}
        self.untagged: list[str] = []
        self.spared: dict[str, str] = {}

    def tag(self, batch: Sequence[DeadFile]) -> None:
        """Tags the files of a batch that are still dead, and untags files that are live again."""
        self._run.ask_before_deletion(self._planned.table)
        self._facts = replace(self._facts, borrowed=self._run.borrowed, unplaced=self._run.unplaced)
        with ThreadPoolExecutor(max_workers=ASKED_AT_ONCE) as pool:
            are_unchanged = [*pool.map(self._is_unchanged, batch)]
        self._read_log()
        unchanged = list[DeadFile]()
        changed_names = list[str]()
        for each, is_unchanged in zip(batch, are_unchanged, strict=True):
            if is_unchanged:
                unchanged.append(each)
            else:
                changed_names.append(each.name)
        allowed, spared = still_dead(self._facts, unchanged, now_ms=now_ms())
        self.spared |= spared
        reason = "it is gone, or was written again after the report"
        self.spared |= dict.fromkeys(changed_names, reason)
        storage_class = self._planned.storage_class
        with ThreadPoolExecutor(max_workers=ASKED_AT_ONCE) as pool:
            exist = [*pool.map(lambda each: self._set_tag(each.name, storage_class), allowed)]
        for each, exists in zip(allowed, exist, strict=True):
            if exists:
                self.tagged[each.name] = each.size_bytes
            else:
                self.spared[each.name] = "it is gone"
        if self._read_log():
            files = self._facts.table_files
            live_again = [
                name for name in self.tagged if name in files.live or name in files.vectors
            ]
            self.untag(live_again)
            for name in live_again:
                del self.tagged[name]
                self.spared[name] = f"version {files.version} needs it again"

    def untag(self, names: Sequence[str]) -> None:
        """Removes the tag from files that this table or another one needs."""
        for name in names:
            self._set_tag(name, None)
            self.untagged.append(name)

    def _set_tag(self, name: str, value: str | None) -> bool:
        """Sets the tag of a file, or removes it (`None`); returns whether the file exists."""
        with suppress(FileNotFoundError):
            set_tag(self._store, f"{self._folder}/{name}", TIER_TAG, value)
            return True
        return False

    def _is_unchanged(self, dead: DeadFile) -> bool:
        """Whether the file still has the size and the modification time of the inventory report."""
        table = self._planned.table
        stored = self._run.lake.store.stat(f"{table}/{dead.name}")
        if stored is None or stored.size_bytes != dead.size_bytes:
            return False
        difference_ms = abs(stored.modified_ms - dead.modified_ms)
        return difference_ms <= self._run.lake.times_apart_ms(table)

    def _read_log(self) -> bool:
        """Reads the table's log if it has a newer version; returns whether it has one."""
        if not has_newer_version(self._run.lake, self._facts.log):
            return False
        log = self._run.log(self._planned.table)
        if log is None:
            raise Broken(
                f"tiers of {self._planned.table}: its log has disappeared, so nothing more was "
                "tagged. Restore the log, then run the command again"
            )
        self._facts = replace(self._facts, table_files=log.table_files, log=log.facts)
        return True


def _planned(
    run: LakeFacts, table: Table, prices: TierPrices, classes: Sequence[str]
) -> tuple[VacuumInputs, TierPlan] | None:
    lake = run.lake
    key = table.key
    if not lake.on_s3(key):
        raise Refused(
            f"tiers of {key}: the table lies on a disk, which has no storage classes. Use a table "
            "on S3"
        )
    inputs = gather(run, table)
    if inputs is None:
        return None
    facts = inputs.facts
    if inputs.rows is None:
        raise Refused(
            f"tiers of {key}: {facts.report_problem or 'there is no inventory report'}. Use "
            "`lakehouse inventory scan`, which covers the tables inside the lake"
        )
    if unknown := unknown_features(facts.log.snapshot.features):
        raise Refused(
            f"tiers of {key}: this program does not know the table feature {unknown[0]}, and so "
            "not which files the table needs. Use a newer release of this program"
        )
    now = now_ms()
    objects = inputs.rows.below(f"{lake.store.prefix}{key}/")
    tagged = tagged_before(lake.store, key)
    dead = [each for each in dead_files(facts, objects, now_ms=now) if each.name not in tagged]
    files = facts.table_files

    def is_needed(name: str) -> bool:
        is_live = name in files.live or name in files.vectors
        return is_live or facts.other_uses.may_read(files, name)

    untag = [*tagged_yet_needed(lake.store, key, is_needed)]
    planned = plan_tiers(facts, dead, prices, classes=classes, untag=untag)
    # Files that were tagged earlier still need the lifecycle rule of their class.
    tagged_classes = {*tagged.values()}
    if planned.files:
        tagged_classes.add(planned.storage_class)
    return inputs, replace(planned, rule_classes=tuple(sorted(tagged_classes)))
