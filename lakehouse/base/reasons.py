"""The closed list of reasons for every decision, including decisions to do nothing.

A decision has an `Explanation`: a reason, and the numbers for the reason's sentence. The terminal,
the sensor, checks and commit metadata all show this sentence.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from string import Formatter
from typing import Any

from lakehouse.base.frozen import frozen
from lakehouse.base.text import Document, count_of, size_text, utc_text


@frozen
class CheckResult:
    """The result of one check.

    With `is_error`, a failure is an error: for example, data is lost or unreadable, or the next
    write will be refused. Otherwise, it is a warning. `numbers` and `details` become metadata of
    the evaluation of the check in Dagster.
    """

    name: str
    ok: bool
    sentence: str
    is_error: bool = False
    numbers: Mapping[str, float] = {}
    details: Mapping[str, Any] = {}


class Reason(Enum):
    """Why something is done or not done. The value is a sentence with fields for its numbers.

    `{x:size}` is a number of bytes, `{x:time}` a time in ms, and a field with a noun, such as
    `{x:file}`, a count ("3 files"). `{x}` is any other value.
    """

    # Reasons of a compaction plan.
    MERGEABLE_FILES = "{files_removed:file} ({bytes_removed:size}) merge into {files_added}{where}"
    NOTHING_SMALL = (
        "none of its {files:file} is below {candidate_bytes:size} (three quarters of the target), "
        "or has deleted rows to remove"
    )
    NOTHING_SHARES_A_BIN = (
        "nothing to merge: {candidates:small file}, and a merge needs two in one partition that "
        "fit into one file of {target_bytes:size}"
    )
    ALREADY_COMPACTED = (
        "compactions wrote all but {fresh} of its {candidates:small file}, and a merge needs two "
        "new files in one partition"
    )
    CORES_KEPT_BUSY = (
        "its {files:file} ({bytes:size}) keep {cores:core} busy during a scan, and a merge would "
        "leave too few files for these cores"
    )
    DELETED_ROWS = (
        "deletion vectors hide {deleted} of {rows:row} ({share}); to rewrite without these rows: "
        "{at_least}{files_removed:file} ({bytes_removed:size}) into {files_added}{where}"
    )
    OUT_OF_ORDER = (
        "{bound}{files_removed:file} ({bytes_removed:size}){where} are rewritten in the order by "
        "{columns} into at most {files_added}; not in that order yet: {changed:file} "
        "({changed_bytes:size})"
    )
    IN_ORDER = (
        "not in the order by {columns}: {changed} of its {files:file} ({changed_bytes:size}); a "
        "rewrite waits until these are a quarter of a partition's bytes, or {threshold} files"
    )
    NOT_CLUSTERED_YET = (
        "it is clustered by {declared} at version {version}, and by {columns} from its next write "
        "on"
    )
    PLAN_REFUSED = "nothing can be planned: {why}"
    ALL_WARM = "{warm:partition} with mergeable files, all changed within the last {hours} h"
    COLD_FILES = (
        "{cold:partition} with mergeable files, of which {cold_files} ({cold_bytes:size}) are in a "
        "storage class that is slow or paid to read, so they are not compacted"
    )

    # Reasons of the compaction sensor.
    READS_SLOWER = (
        "its readers' newest runs take {slowdown} longer than after the last compaction, and "
        "{mergeable} files can be merged"
    )
    DUE = "{mergeable} mergeable files reach the threshold of {threshold}"
    BELOW_THRESHOLD = "{mergeable} mergeable files, {threshold} needed"
    NO_FACTS = (
        "the table was never materialized or observed, so no file count is known; {threshold} "
        "mergeable files are needed"
    )
    RUN_IN_FLIGHT = "a run of this table is under way ({runs})"
    ASKED_BEFORE = (
        "a compaction of version {version} ({mergeable} mergeable files) was already requested; "
        "the next write allows another one"
    )
    TRIES_USED_UP = (
        "compacting version {version} failed {tries} times; its {mergeable} mergeable files wait "
        "for the next write, or until {until:time}"
    )
    NO_SLOT = "{why}, but at most {slots:compaction} may run at once{runs}"
    DUE_AGE = "the oldest of its {mergeable} mergeable files is {hours} h old (limit {limit} h)"
    DUE_DELETED_ROWS = "{share} of its rows are deleted but still stored (limit {limit})"
    COOLING_DOWN = (
        "{why}, but the last compaction was only {minutes} min ago (cooldown {cooldown} min)"
    )
    OVER_BUDGET = (
        "{why}, but it costs {cost} USD, and only {left} of the hourly {limit} USD are left"
    )
    OTHER_STRATEGY = "its strategy is {strategy}, so the sensor requests no compaction"

    # Why a table is not compacted, however much a compaction would gain.
    OPTED_OUT = "its declaration says {said}, so nothing runs without --anyway"
    PAUSED = "paused since {since:time}, {until}{why}"
    RECOMMEND_ONLY = "{why}. To run the plan, use lakehouse compact {table}"
    BREAKER_OPEN = (
        "{count:compaction} in a row failed, {conflicts} of them lost to other writers "
        "({bytes:size} and {seconds} s wasted). The breaker is open for {hours} h, until "
        "{until:time}; last error: {why}"
    )
    REWRITE_LOOP = (
        "the same bytes were rewritten {count} times in a row for nothing, {bytes:size} in all, "
        "last by version {version}. The breaker is open for {hours} h, until {until:time}"
    )
    HALF_OPEN = (
        "one compaction may run since {retry_at:time}: success closes the breaker, failure opens "
        "it for longer. It opened because {why}"
    )

    # Reasons for the choice of a landed batch.
    BATCH_READY = (
        "batch {batch} has {files:landed file} ({bytes:size}), {set_aside:file} set aside{names}"
    )
    BATCH_WAITING = (
        "{files:landed file} ({bytes:size}) must wait for more: a batch is released at "
        "{release_files:file}{or_bytes}, or {released:time}, when the oldest has waited {minutes} "
        "min"
    )
    BATCH_UNFINISHED = (
        "batch {batch} of {files:file} was planned but did not reach the table: it is loaded "
        "again, unchanged"
    )
    TRIED_BEFORE = "{tries:attempt} did not load batch {batch}; the next attempt is in {seconds} s"
    NOTHING_LANDED = "nothing new has landed; {seen:file} known"

    # Reasons about the inputs of a derived table.
    INPUTS_UNCHANGED = "no input has changed since {versions}"
    INPUTS_CHANGED = "inputs changed: {versions}"
    INPUT_READ_WHOLE = "all of version {version} of {table} is read: {why}"
    DECLARATION_CHANGED = "its declaration has changed, so all rows are computed again: {what}"
    INPUT_REPLACED = (
        "version {replaced} of {table} is a {operation}, which may bring back rows that were "
        "already read. All of version {version} would have to be read"
    )

    # Reasons of an archive plan or a TTL plan.
    PAST_THE_CUTOFF = "{what}: from before {cutoff:time}"
    NOTHING_PAST_THE_CUTOFF = "no {what} is from before {cutoff:time}"

    # Reasons of a vacuum plan.
    VACUUM_DUE = (
        "no version has needed {files:file} ({bytes:size}) since {horizon:time}, and {orphans} of "
        "them never belonged to any version; the vacuum deletes all of them (mode {mode})"
    )
    NOTHING_PAST = (
        "no file removed before {horizon:time} is in storage ({waiting:removed file} within the "
        "retention, mode {mode})"
    )
    ALL_STAY = "the last check before the deletion kept all {files:file} of the plan"

    # Reasons of a plan for storage classes.
    TIER_DUE = (
        "to tag: {files:removed file} ({bytes:size}) that will stay for more than a month; to "
        "untag: {untag:needed file}"
    )
    NOTHING_TO_TIER = (
        "{tagged:file} may carry the tag, and no other removed file stays for more than a month"
    )

    def explain(self, **numbers: Any) -> "Explanation":
        """The reason, with the numbers for its sentence."""
        return Explanation(self, numbers)


@dataclass(frozen=True, slots=True)
class Explanation:
    """A reason with its numbers, and a text (`more`) that is appended to its sentence."""

    reason: Reason
    numbers: Mapping[str, Any]
    more: str = ""

    @property
    def sentence(self) -> str:
        """The reason as a sentence.

        Raises:
            KeyError: a number is missing, which is a defect of this program.
        """
        return _FORMATTER.vformat(self.reason.value, (), self.numbers) + self.more


@frozen
class Explained:
    """A value that carries an explanation."""

    explanation: Explanation

    @property
    def reason(self) -> Reason:
        """The explanation's `Reason`."""
        return self.explanation.reason

    @property
    def sentence(self) -> str:
        """The reason as a sentence."""
        return self.explanation.sentence

    def as_json(self) -> Document:
        """The fields, with the reason and the sentence: the documented JSON shape of some plans."""
        document = asdict(self)
        del document["explanation"]
        return {**document, "reason": self.reason.name, "sentence": self.sentence}


class _SentenceFormatter(Formatter):
    """Formats bytes, times and counts, as the docstring of `Reason` describes."""

    def format_field(self, value: Any, format_spec: str) -> str:
        match format_spec:
            case "":
                return str(value)
            case "size":
                return size_text(value)
            case "time":
                return utc_text(value)
            case _:
                return count_of(value, format_spec)


_FORMATTER = _SentenceFormatter()
