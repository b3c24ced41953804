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
    NO_SLOT = "{mergeable} mergeable files reach the threshold of {threshold}, but {slots} compaction(s) at once are allowed"

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

    # What measured scans say of whether a table's compaction pays.
    PROBES_PAY = "{probes} probe(s) measured scans {gained} faster after a compaction (between {low} and {high})"
    PROBES_DO_NOT_PAY = "{probes} probe(s) measured scans {gained} faster after a compaction (between {low} and {high}): under {least}"
    PROBES_UNDECIDED = "{probes} of {wanted} probe(s) say too little yet: scans are between {low} and {high} faster after a compaction"
    NOT_PROBED = "{probes} probe(s) were made yet; every {every}th compaction is probed"
    BACKED_OFF = "compaction is tried again in {hours} h, since it does not pay: {why}"

    def say(self, **numbers: object) -> str:
        """The sentence with its numbers; a missing number is a programming error (KeyError)."""
        return self.value.format(**numbers)
