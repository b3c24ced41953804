"""The closed list of reasons for doing something or nothing, one sentence each.

A decision carries an `Explanation`, a reason with the numbers that its sentence names; the terminal, a sensor's text, a check's description
and a commit's metadata all print the sentence that is made of them here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from string import Formatter
from typing import Any

from lakehouse.core.text import count_of, size_text, utc_text


class Reason(Enum):
    """Why a decision fell as it did; the value is the sentence, with the numbers it needs as fields.

    `{x:size}` are bytes, `{x:time}` is a time in ms, `{x:a noun}` is a count of such things.
    """

    # Of a compaction plan.
    MERGEABLE_FILES = "{files_removed:file} ({bytes_removed:size}) merge into {files_added}{where}"
    NO_FILES = "the table has no files at version {version}"
    NOTHING_SMALL = "all its {files:file} have {candidate_bytes:size} or more, three quarters of the target, and no deleted rows to remove"
    NOTHING_SHARES_A_BIN = "no two of its {candidates:small file} share a partition and fit into one file of {target_bytes:size}"
    ALREADY_COMPACTED = "compactions wrote all but {fresh} of its {candidates:small file}, and a merge needs two new files in one partition"
    SECOND_TIER = (
        "{files_removed:file} ({bytes_removed:size}), right for an earlier target of an eighth, merge once into {files_added} of up to "
        "{target_bytes:size}{where}"
    )
    CORES_KEPT_BUSY = "its {files:file} ({bytes:size}) keep {cores:core} busy at a scan, and any merge would leave too few of them"
    DELETED_ROWS = (
        "deletion vectors hide {deleted} of {rows:row} ({share}): {at_least}{files_removed:file} ({bytes_removed:size}) rewritten "
        "without them into {files_added}{where}"
    )
    OUT_OF_ORDER = (
        "all {files_removed:file} ({bytes_removed:size}){where} are rewritten along {columns} into at most {files_added}, since {changed} "
        "of the table's files are out of that order"
    )
    LOOSE_FILES = (
        "{bound}{files_removed:file} ({bytes_removed:size}) are rewritten, clustered by {columns}, into at most {files_added}, since "
        "{changed:file} ({changed_bytes:size}) are in no cluster yet"
    )
    IN_ORDER = (
        "{changed} of its {files:file} ({changed_bytes:size}) are out of the order by {columns}; a rewrite waits for a quarter of a "
        "partition's bytes, or {threshold} files"
    )
    NOT_CLUSTERED_YET = "it is clustered by {declared} at version {version}, and by {columns} from its next write on"
    PLAN_REFUSED = "nothing can be planned: {why}"
    ALL_WARM = "{warm:partition} with mergeable files, each written to within the last {hours} h"

    # Of the check after a compaction's commit.
    CONTENT_COMPARED = (
        "every row is compared after the commit, which takes about {seconds} s and {usd} USD"
    )
    ROWS_COMPARED = (
        "row counts and column statistics in the log are compared; comparing every row takes about "
        '{seconds} s and {usd} USD (verify="content")'
    )

    # Of the sensor.
    DUE_READERS = "readers have lost {lost} since the last compaction, and another takes {cost}"
    READERS_LOSE_LITTLE = "readers have lost {lost} of the {cost} that a compaction takes; {mergeable} mergeable files, {threshold} make it due in any case"
    DUE = "{mergeable} mergeable files reach the threshold of {threshold}"
    BELOW_THRESHOLD = "{mergeable} mergeable files, {threshold} needed"
    NO_FACTS = "no file count is known yet: it was never materialized or observed; {threshold} mergeable files are needed"
    RUN_IN_FLIGHT = "a run of it is under way ({runs})"
    ASKED_BEFORE = "the compaction of version {version} ({mergeable} mergeable files) was requested already; the next write makes a new one"
    TRIES_USED_UP = "the compaction of version {version} failed {tries} times; {mergeable} mergeable files wait for the next write, or for {until:time}"
    NO_SLOT = "{why}, but at most {slots:compaction} may run at once{runs}"
    DUE_AGE = (
        "the oldest of its {mergeable} mergeable files is {hours} h old, {limit} h are allowed"
    )
    DUE_DELETED_ROWS = "{share} of its rows are deleted and still stored, {limit} are allowed"
    COOLING_DOWN = "{why}, but it was compacted {minutes} min ago, at most once in {cooldown} min"
    OVER_BUDGET = "{why}, but it costs {usd} USD, and {left} of the {budget} USD an hour are left"
    OTHER_STRATEGY = "its strategy is {strategy}, so the sensor does not ask for it"

    # Why a table is left alone, whatever it would gain.
    OPTED_OUT = "its declaration says {said}: nothing runs unless a person insists (--anyway)"
    WRITERS_UNKNOWN = (
        "other programs write it, and on {where} Spark checks that a version is free, then writes it: a commit in between is lost; "
        'accepted: writers = "none" (nobody commits while a compaction runs) or "conditional", see docs/adopt.md'
    )
    POOL_NOT_LIMITED = (
        "its writer and its compaction share the pool {pool}, which has {limit}: a commit of theirs while a compaction runs could be lost; "
        "accepted: a limit of 1, for instance as concurrency.pools.default_limit in dagster.yaml"
    )
    PAUSED = "paused since {since:time}, {until}{why}"
    RECOMMEND_ONLY = (
        "its declaration says mode {mode}: a person runs the plan, with lakehouse compact {table}"
    )
    BREAKER_CLOSED = (
        "the breaker is closed: {failures:failure} in a row, the same bytes rewritten for nothing "
        "{times} times; {limit} of a kind open it"
    )
    BREAKER_OPEN = (
        "{count:compaction} in a row did not succeed, {conflicts} of them lost to other writers ({bytes:size} and {seconds} s spent, "
        "{limit} open the breaker): left alone for {hours} h, until {until:time}; the last error: {why}"
    )
    REWRITE_LOOP = (
        "the same bytes were rewritten {count} times in a row for nothing, {bytes:size} in all, last by version {version} "
        "({limit} open the breaker): left alone for {hours} h, until {until:time}"
    )
    HALF_OPEN = "one compaction may run since {retry_at:time}: success closes the breaker, failure opens it for longer; it opened because {why}"
    WINDOW_CLOSED = (
        "no window is open at {now:time} (windows: {windows}); the next opens at {opens:time}"
    )

    # Of the choice of a strategy.
    STRATEGY_DECLARED = "its declaration says {name}"
    BEFORE_WRITE_CHOSEN = (
        "before the write: each batch ({batch_bytes:size}) fills the {files_needed:file} that it needs, was written as {batch_files}, and "
        "a shuffle takes {seconds} s of the {latency_seconds} s that readers wait"
    )
    AFTER_WRITE_CHOSEN = (
        "after each write: to merge a batch of {batch_files:file} ({batch_bytes:size}), {arrivals_per_hour} an hour, takes {seconds} "
        "s of the {latency_seconds} s that readers wait, and the sensor would come after {sensor_seconds} s"
    )
    SENSOR_CHOSEN = (
        "by the sensor: its threshold is reached in {sensor_seconds} s, a merge after each write takes {seconds} s of the "
        "{interval_seconds} s between two, readers wait {latency_seconds} s"
    )
    BATCHES_FIT = "by the sensor: each batch ({batch_bytes:size}) is written as {batch_files:file}, and needs as many"
    WRITES_UNKNOWN = (
        "by the sensor: {known:commit} with new rows are known, and a choice needs {wanted}"
    )

    # Of a back-test.
    SCHEDULE_NOT_YET = "the schedule {cron} did not come round before the next commit"

    # Of the choice of a landed batch.
    BATCH_READY = (
        "batch {batch} has {files:landed file} ({bytes:size}), {set_aside:file} set aside{names}"
    )
    BATCH_WAITING = (
        "{files:landed file} ({bytes:size}) wait for more: a batch is released at {release_files:file}{or_bytes}, or {released:time}, when "
        "the oldest has waited {minutes} min"
    )
    BATCH_UNFINISHED = "batch {batch} of {files:file} was planned but did not reach the table: it is done again, unchanged"
    TRIED_BEFORE = (
        "batch {batch} was tried {tries} times and did not arrive; it is tried again in {seconds} s"
    )
    NOTHING_LANDED = "nothing new has landed; the table holds {seen:file}"

    # Of the inputs of a derived table.
    INPUTS_UNCHANGED = "no input has changed since {versions}"
    INPUTS_CHANGED = "inputs changed: {versions}"
    INPUT_UNREAD = "the table reads {table} for the first time: all of version {version}"
    INPUT_MADE_ANEW = "{table} was made anew since it was read: all of version {version} is read"
    DECLARATION_CHANGED = "its declaration has changed, so all rows are computed again: {what}"
    INPUT_HISTORY_LOST = (
        "the changes of {table} after version {consumed} are gone: all of version {version} is read"
    )
    INPUT_REPLACED = (
        "version {replaced} of {table} is a {operation} of somebody else, which may bring back rows that were read before; only reading "
        "all of version {version} would be right"
    )
    INPUT_UNDONE = "{table} was read at version {consumed}, and that compaction was undone since: all of version {version} is read"

    # Of a vacuum plan.
    VACUUM_DUE = "no version has needed {files:file} ({bytes:size}) since {horizon:time}, {orphans} of them were never in one: they go (mode {mode})"
    NOTHING_PAST = "nothing removed before {horizon:time} lies in storage ({waiting:removed file} within the retention, mode {mode})"
    ALL_STAY = "all {files:file} of the plan stay, as a last look tells"
    HELD_FOR_READERS = "files removed after {since:time} are kept for readers that have not read them yet: {readers}"

    def explain(self, **numbers: Any) -> "Explanation":
        """The reason with its numbers."""
        return Explanation(self, numbers)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why something is done or left: a reason, its numbers, and more for a person to read behind its sentence."""

    reason: Reason
    numbers: Mapping[str, Any]
    more: str = ""

    @property
    def sentence(self) -> str:
        """The reason as a sentence of its numbers; a missing number is a programming error (KeyError)."""
        if self.reason is Reason.NOTHING_SHARES_A_BIN and self.numbers["candidates"] == 1:
            return f"one {'' if self.numbers['files'] == 1 else 'small '}file, nothing to merge{self.more}"
        return _WORDS.vformat(self.reason.value, (), self.numbers) + self.more


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """A value with its explanation; reason and sentence are read from it."""

    explanation: Explanation

    @property
    def reason(self) -> Reason:
        """The reason out of the closed list."""
        return self.explanation.reason

    @property
    def sentence(self) -> str:
        """The reason as a sentence."""
        return self.explanation.sentence


class _Words(Formatter):
    """Numbers as a person reads them: bytes, times, and counts of things."""

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


_WORDS = _Words()
