"""The closed list of reasons for doing something or nothing, one sentence each.

A decision carries a `Reason` and the numbers that its sentence names; the terminal, a sensor's text, a
check's description and a commit's metadata all print the same sentence.
"""

from enum import Enum


class Reason(Enum):
    """Why a decision fell as it did; the value is the sentence, with the numbers it needs as fields."""

    # What a compaction plan says of one table.
    MERGEABLE_FILES = "{files_removed} files of {bytes_removed} bytes merge into {files_added} in {partitions} partition(s)"
    NO_FILES = "the table has 0 files at version {version}"
    NOTHING_SMALL = (
        "none of its {files} files is under {candidate_bytes} bytes, three quarters of the target, or needs its deleted rows removed"
    )
    NOTHING_SHARES_A_BIN = "no two of its {candidates} small file(s) share a partition and fit into one file of {target_bytes} bytes"
    ALREADY_COMPACTED = (
        "of its {candidates} small file(s) compactions wrote all but {fresh}, and no bin holds two of those, so a merge would gain nothing"
    )
    # ... and of what is merged into what.
    SECOND_TIER = (
        "{files_removed} files of {bytes_removed} bytes, right for an earlier target of an eighth, merge into {files_added} of up to "
        "{target_bytes} bytes in {partitions} partition(s), once"
    )
    CORES_KEPT_BUSY = "its {files} file(s) of {bytes} bytes keep {cores} cores busy at a scan, and any merge would leave too few of them"
    DELETED_ROWS = (
        "deletion vectors hide {deleted} of {rows} rows ({share}): {at_least}{files_removed} files of {bytes_removed} bytes are rewritten "
        "without them into {files_added} in {partitions} partition(s)"
    )
    OUT_OF_ORDER = (
        "all {files_removed} files of {bytes_removed} bytes in {partitions} partition(s) are rewritten along {columns} into at most "
        "{files_added}, since {changed} of the table's files are out of that order"
    )
    LOOSE_FILES = (
        "{bound}{files_removed} files of {bytes_removed} bytes are rewritten, clustered by {columns}, into at most {files_added}, since "
        "{changed} files of {changed_bytes} bytes are in no cluster yet"
    )
    IN_ORDER = (
        "{changed} of its {files} file(s), {changed_bytes} bytes, are out of the order by {columns}; a rewrite waits for a quarter of a "
        "partition's bytes, or {threshold} files"
    )
    NOT_CLUSTERED_YET = "it is clustered by {declared} at version {version}, and by {columns} from its next write on"
    PLAN_REFUSED = "nothing can be planned: {why}"
    ALL_WARM = "{warm} partition(s) have mergeable files, and each was written to within the last {hours} h"

    # What the sensor says of one table.
    DUE = "{mergeable} mergeable files reach the threshold of {threshold}"
    BELOW_THRESHOLD = "{mergeable} mergeable files, {threshold} wanted"
    NO_FACTS = "no file count is known yet: it was never materialized or observed; {threshold} mergeable files are wanted"
    RUN_IN_FLIGHT = "a run of it is under way ({runs})"
    ASKED_BEFORE = (
        "the compaction of version {version} ({mergeable} mergeable files) was asked for already; the next write makes a new version"
    )
    TRIES_USED_UP = (
        "the compaction of version {version} failed {tries} of {tries_allowed} times; {mergeable} mergeable files wait for the next write"
    )
    NO_SLOT = "{why}, but {slots} compaction(s) at once are allowed"
    # The sensor's other triggers, and what else may hold a due table up.
    DUE_AGE = "the oldest of its {mergeable} mergeable files is {hours} h old, {limit} h are allowed"
    DUE_DELETED_ROWS = "{share} of its rows are deleted and still stored, {limit} are allowed"
    COOLING_DOWN = "{why}, but it was compacted {minutes} min ago, at most once in {cooldown} min"
    OVER_BUDGET = "{why}, but it takes {usd} USD, and {left} of the {budget} USD an hour are left"
    OTHER_STRATEGY = "its strategy is {strategy}, so the sensor does not ask for it"

    # Why a table is left alone, whatever it would gain.
    OPTED_OUT = "its declaration says {said}: nothing runs unless a person insists (--anyway)"
    PAUSED = "paused since {since}, {until}{why}"
    RECOMMEND_ONLY = "its declaration says mode {mode}: the plan is shown, a person runs it: lakehouse compact {table}"
    BREAKER_CLOSED = (
        "the breaker is closed: {failures} failure(s) and {slower} slower scan(s) in a row, the same bytes rewritten for nothing "
        "{times} time(s); {limit} of a kind open it"
    )
    BREAKER_OPEN = (
        "{count} compaction(s) in a row did not succeed, {conflicts} of them lost to other writers ({bytes} bytes and {seconds} s spent, "
        "{limit} open the breaker): hands off for {hours} h, until {until}; the last said: {why}"
    )
    REWRITE_LOOP = (
        "the same bytes were rewritten {count} time(s) in a row for nothing, {bytes} bytes in all, last by version {version} "
        "({limit} open the breaker): hands off for {hours} h, until {until}"
    )
    MEASURED_HARM = (
        "a scan took longer after each of the last {count} compaction(s), at last {after} s after {before} s "
        "({limit} open the breaker): hands off for {hours} h, until {until}"
    )
    HALF_OPEN = "one try is let through since {retry_at}: a success closes the breaker, a failure opens it for longer; before: {why}"
    WINDOW_CLOSED = "no window is open at {now} (windows: {windows}); the next opens at {opens}"

    # What the choice of a strategy says: who keeps a table's files large, and when.
    STRATEGY_DECLARED = "its declaration says {name}"
    BEFORE_WRITE_CHOSEN = (
        "before the write: each batch of {batch_bytes} bytes fills the {files_needed} file(s) that it needs, has written {batch_files}, "
        "and to shuffle it takes {seconds} s of the {latency_seconds} s that readers wait"
    )
    AFTER_WRITE_CHOSEN = (
        "after each write: to merge a batch of {batch_bytes} bytes in {batch_files} file(s), {arrivals_per_hour} an hour, takes {seconds} "
        "s of the {latency_seconds} s that readers wait, and the sensor would come after {sensor_seconds} s"
    )
    SENSOR_CHOSEN = (
        "by the sensor: its threshold is reached in {sensor_seconds} s, a merge after each write takes {seconds} s of the "
        "{interval_seconds} s between two, readers wait {latency_seconds} s"
    )
    BATCHES_FIT = "by the sensor: each batch of {batch_bytes} bytes writes {batch_files} file(s), and needs as many"
    WRITES_UNKNOWN = "by the sensor: {known} commit(s) with new rows are known, with times, {wanted} are wanted to choose by"

    # What a back-test says where nobody looks at a table.
    SCHEDULE_NOT_YET = "the schedule {cron} did not come round before the next commit"

    # What the choice of a batch says of one landing prefix.
    BATCH_READY = "{files} landed file(s) of {bytes} bytes make batch {batch}, {set_aside} file(s) are set aside"
    BATCH_UNFINISHED = "batch {batch} of {files} file(s) was planned but did not reach the table: it is done again, unchanged"
    TRIED_BEFORE = "batch {batch} was tried {tries} time(s) and did not arrive; it is tried again in {seconds} s"
    NOTHING_LANDED = "nothing new has landed; {seen} file(s) are in the table already"

    # What a derived table says of its inputs.
    INPUTS_UNCHANGED = "no input has changed since version(s) {versions}"
    INPUTS_CHANGED = "input(s) changed: {versions}"
    INPUT_UNREAD = "{table} was never read before, so all of its version {version} is"
    INPUT_MADE_ANEW = "{table} was made anew since it was read, so all of its version {version} is read"
    INPUT_HISTORY_LOST = "the changes of {table} after version {consumed} are gone, so all of its version {version} is read"
    INPUT_REPLACED = (
        "version {replaced} of {table} is a {operation} of somebody else, which may bring back rows that were read before, so all of its "
        "version {version} would have to be read"
    )
    INPUT_UNDONE = "{table} was read at version {consumed}, of a compaction that was undone since, so all of its version {version} is read"

    # What measured scans say of whether a table's compaction pays.
    PROBES_PAY = "{probes} probe(s) measured scans {gained} faster after a compaction (between {low} and {high})"
    PROBES_DO_NOT_PAY = "{probes} probe(s) measured scans {gained} faster after a compaction (between {low} and {high}): under {least}"
    PROBES_UNDECIDED = "{probes} of {wanted} probe(s) say too little yet: scans are between {low} and {high} faster after a compaction"
    NOT_PROBED = "{probes} probe(s) were made yet; every {every}th compaction is probed"
    BACKED_OFF = "compaction is tried again in {hours} h, since it does not pay: {why}"

    # What a vacuum plan says of one table.
    VACUUM_DUE = (
        "{files} file(s) of {bytes} bytes that nothing has needed since {horizon} go, {orphans} of them in no version (mode {mode})"
    )
    NOTHING_PAST = (
        "nothing that was removed before {horizon} lies in storage ({waiting} removed file(s) are within the retention, mode {mode})"
    )
    TOO_LITTLE_PAST = "{files} file(s) of {bytes} bytes could go, {least} bytes are wanted"
    HELD_FOR_READERS = "what was removed after {since} is kept for what has not read it yet: {readers}"

    def say(self, **numbers: object) -> str:
        """The sentence with its numbers; a missing number is a programming error (KeyError)."""
        return self.value.format(**numbers)
