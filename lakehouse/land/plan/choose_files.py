"""Chooses the landed files of the next batch, and what becomes of each after it was read.

**Safety properties** (tests in `test_choose_files.py`, `land/test_run.py`)
- A loaded record is not loaded again while its file keeps its name. The same content under another
  name counts as another file.
- A loaded file whose content has changed is set aside. The exception is an `Overwrite`, which loads
  it whole and replaces all rows.
- A file from which nothing was loaded is tried again when it changes.
- A manifest names each file that is set aside, with the reason.

"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from lakehouse.base.frozen import frozen
from lakehouse.base.reasons import Explained, Explanation, Reason
from lakehouse.base.stored_objects import total_bytes
from lakehouse.base.text import MINUTE_MS, names_in_parentheses, size_text
from lakehouse.declare.landing import Landing, retried_folder
from lakehouse.declare.table import Overwrite, WriteMode
from lakehouse.land.plan.batches import (
    FOREIGN,
    Batch,
    KnownFiles,
    LandedFile,
    Ledger,
    SetAside,
    fingerprint,
    set_aside,
)
from lakehouse.land.plan.records import UTF_8

# The maximum number of files that a batch loads; files that are set aside do not count. A manifest
# names each file, and every load reads the newest manifests, so they should be small.
MAX_BATCH_FILES = 2_000
# Spark itself reads a Parquet, CSV or JSON file of this size or more. A smaller one costs less if
# it is read together with others.
SPARK_READS_FROM_BYTES = 1024 * 1024
# The endings of text files that are not compressed.
_PLAIN_TEXTS = (".csv", ".json", ".jsonl")
# The most bytes and files that Spark reads itself in one batch.
_MAX_SPARK_BYTES = 16 * 1024**3
_MAX_SPARK_FILES = 200
_LAND_NEW_RECORDS = "Land only the new records, under a new name"


@frozen
class BatchPlan(Explained):
    """The next batch, or `None` if no batch is due; the explanation gives the reason.

    `is_new`: the batch has no manifest yet. `left` is the number of files that wait for later
    batches. An `Overwrite` sets the `superseded` files aside, unless the file to load instead of
    them turns out to be unusable when it is read.
    """

    batch: Batch | None
    is_new: bool
    superseded: tuple[SetAside, ...] = ()
    left: int = 0


def choose_batch(
    listing: Sequence[LandedFile],
    ledger: Ledger,
    landing: Landing,
    write: WriteMode,
    *,
    now_ms: int | None = None,
    most_files: int | None = None,
) -> BatchPlan:
    """The next batch of new files in `listing`, the first ones by name, at most `most_files`.

    Without `now_ms`, the batch does not wait for more files. Private names (`may_be_loaded`) are
    ignored. A file is set aside for the reasons in `_problem`. For an `Overwrite`, only the file
    with the last name in alphabetical order is loaded. Files with earlier names are set aside, even
    if the file with the last name was loaded before.
    """
    new = [
        file
        for file in sorted(listing, key=attrgetter("name"))
        if may_be_loaded(file.name, ledger.table) and not _is_settled(file, ledger, landing)
    ]
    if not new:
        explanation = Reason.NOTHING_LANDED.explain(seen=len(ledger.seen))
        return BatchPlan(batch=None, is_new=False, explanation=explanation)
    clause, why_waiting = _release(new, landing, now_ms)
    if why_waiting is not None:
        return BatchPlan(batch=None, is_new=False, explanation=why_waiting)
    problems = {file: _problem(file, ledger, landing, write) for file in new}
    readable = [file for file, problem in problems.items() if problem is None]
    taken = _first_batch(readable, landing, most_files)
    superseded = tuple[SetAside, ...]()
    if isinstance(write, Overwrite) and readable:
        last_name = _last_name(readable, ledger, landing)
        why = f"the name {last_name} is later, so that file replaces it"
        taken = [file for file in readable if file.name == last_name]
        others = [file for file in readable if file.name != last_name]
        superseded = tuple(set_aside(file, why, is_quarantined=False) for file in others)
    batch = Batch(
        number=ledger.newest_number + 1,
        files=tuple(taken),
        set_aside=tuple(
            set_aside(file, problem, is_quarantined=not problem.startswith(FOREIGN))
            for file, problem in problems.items()
            if problem is not None
        ),
        prefix=landing.prefix,
    )
    left = len(readable) - len(taken) - len(superseded)
    return _plan(batch, Reason.BATCH_READY, superseded, more=clause, left=left)


def repeat_batch(unfinished: Batch) -> BatchPlan:
    """The plan to repeat a batch that was not loaded."""
    return _plan(unfinished, Reason.BATCH_UNFINISHED)


def may_be_loaded(name: str, table_key: str) -> bool:
    """Whether a table loads a file of this name.

    It does if no part of the name begins with `.` or `_`, or if the file holds its retried lines.
    """
    is_private = any(part.startswith((".", "_")) for part in name.split("/"))
    return not is_private or name.startswith(retried_folder(table_key))


def may_be_by_spark(file: LandedFile, landing: Landing) -> bool:
    """Whether Spark reads the file itself, if its content allows it."""
    is_plain = landing.encoding.lower() in UTF_8 and file.name.lower().endswith(_PLAIN_TEXTS)
    is_text = landing.format == "csv" or (landing.format == "json" and landing.changes is None)
    is_readable = landing.format == "parquet" or (is_text and is_plain)
    return is_readable and file.size_bytes >= SPARK_READS_FROM_BYTES


def _plan(
    batch: Batch,
    reason: Reason,
    superseded: tuple[SetAside, ...] = (),
    more: str = "",
    left: int = 0,
) -> BatchPlan:
    set_aside = (*batch.set_aside, *superseded)
    explanation = reason.explain(
        files=len(batch.files),
        bytes=total_bytes(batch.files),
        batch=batch.number,
        set_aside=len(set_aside),
        names=names_in_parentheses([file.name for file in set_aside]),
    )
    return BatchPlan(
        batch=batch,
        is_new=reason is Reason.BATCH_READY,
        explanation=replace(explanation, more=more),
        superseded=superseded,
        left=left,
    )


def _release(
    waiting: Sequence[LandedFile], landing: Landing, now_ms: int | None
) -> tuple[str, Explanation | None]:
    """A clause that says why waiting files are loaded now, and an explanation if they must wait.

    The clause is empty if `release_files` is 1, if the files must wait, or without `now_ms`.
    """
    if landing.release_files == 1 or now_ms is None:
        return "", None
    size_bytes = total_bytes(waiting)
    oldest_ms = min(file.modified_ms for file in waiting)
    if len(waiting) >= landing.release_files:
        return f"; released, because at least {landing.release_files} files wait", None
    release_size = size_text(landing.release_bytes)
    if 0 < landing.release_bytes <= size_bytes:
        return f"; released, because at least {release_size} wait", None
    minutes = f"{landing.release_minutes:g}"
    wait_ms = round(landing.release_minutes * MINUTE_MS)
    # The absolute value, because a file dated in the future must not wait until that date.
    if abs(now_ms - oldest_ms) >= wait_ms:
        return f"; released, because the oldest has waited at least {minutes} min", None
    explanation = Reason.BATCH_WAITING.explain(
        files=len(waiting),
        bytes=size_bytes,
        release_files=landing.release_files,
        or_bytes=f" or {release_size}" if landing.release_bytes else "",
        released=oldest_ms + wait_ms,
        minutes=minutes,
    )
    return "", explanation


def _is_settled(file: LandedFile, ledger: Ledger, landing: Landing) -> bool:
    """Whether a manifest names the file in its present state, as loaded or as set aside.

    The state is compared by size and etag, or by size and time if an etag is unknown. A file that
    was set aside for the ending of its name is not settled if the declaration now accepts it.
    """
    known = ledger.seen.get(f"{landing.prefix}{file.name}")
    if known is None or known.newest.size_bytes != file.size_bytes:
        return False
    is_same = known.newest.modified_ms == file.modified_ms
    if known.newest.etag and file.etag:
        is_same = known.newest.etag == file.etag
    is_accepted_now = known.is_foreign and landing.takes(file.name)
    return is_same and not is_accepted_now


def _problem(file: LandedFile, ledger: Ledger, landing: Landing, write: WriteMode) -> str | None:
    """Why a file must not be read; `None` if it may be read."""
    path = f"{landing.prefix}{file.name}"
    loaded = ledger.loaded(path)
    if "" in file.name.split("/"):
        why = "its name has an empty part (// or a / at an end), which this program does not read"
        return f"{why}. Use another name"
    # An `Overwrite` replaces all rows, so no row can be loaded twice.
    if not isinstance(write, Overwrite):
        if fingerprint(path) in ledger.forgotten:
            return f"a file of this name was loaded long ago. {_LAND_NEW_RECORDS}"
        if loaded is not None and loaded.size_bytes != file.size_bytes:
            return _describe_change(loaded, file)
    if not landing.takes(file.name):
        return f"{FOREIGN}{', '.join(landing.suffixes)}"
    if file.name.encode("utf-8", "ignore").decode() != file.name:
        return "its name is not UTF-8, so no row could store the name. Use another name"
    if file.size_bytes > landing.max_file_bytes and not may_be_by_spark(file, landing):
        sizes = f"it has {file.size_bytes} bytes, at most {landing.max_file_bytes} are read"
        return f"{sizes}. Use smaller files, or raise Landing.max_file_bytes"
    return None


def _describe_change(loaded: LandedFile, present: LandedFile) -> str:
    """Why a loaded file that has changed is not loaded again, and what to do."""
    loaded_bytes = loaded.size_bytes
    change = f"has {present.size_bytes} now"
    if loaded_bytes == present.size_bytes:
        change = "its content differs now"
    return (
        f"it had {loaded_bytes} bytes when it was loaded and {change}. The loaded records stay in "
        f"the table. {_LAND_NEW_RECORDS}: the whole file would load the old records again"
    )


def _last_name(files: Sequence[LandedFile], ledger: Ledger, landing: Landing) -> str:
    """The last name, in alphabetical order, of the `files` and of all loaded files."""
    # `last_taken` also covers forgotten files. But it may be from an earlier declaration, so all
    # known loaded files count, too. A file without a digest was set aside without being read.
    loaded_paths = [
        path for path, known in ledger.seen.items() if known.loaded and known.newest.digest
    ]
    last_name = files[-1].name
    for path in (ledger.last_taken, *loaded_paths):
        # Paths below another prefix, or of another format, are from an earlier declaration.
        if path.startswith(landing.prefix) and landing.takes(path):
            last_name = max(last_name, path.removeprefix(landing.prefix))
    return last_name


def _first_batch(
    files: Sequence[LandedFile], landing: Landing, most_files: int | None
) -> Sequence[LandedFile]:
    """The first files, at least one, as many as fit into one batch."""
    most_files = min(most_files or MAX_BATCH_FILES, MAX_BATCH_FILES)
    own_bytes = 0
    spark_bytes = 0
    spark_files = 0
    for count, file in enumerate(files[:most_files]):
        if may_be_by_spark(file, landing):
            spark_bytes += file.size_bytes
            spark_files += 1
        else:
            own_bytes += file.size_bytes
        is_full = (
            own_bytes > landing.max_batch_bytes
            or spark_bytes > _MAX_SPARK_BYTES
            or spark_files > _MAX_SPARK_FILES
        )
        if is_full and count:
            return files[:count]
    return files[:most_files]


@frozen
class FileRead:
    """The result of reading a landed file; `file` is the file as it was read.

    `problem` is the reason why no record can be read. `record_count` records were staged. If the
    file is `by_spark`, no record was staged: Spark reads the `record_count` records itself.
    `columns` are then the columns of the file that may have a value. All lines of a text with
    `is_plain` are plain.
    """

    file: LandedFile
    record_count: int = 0
    problem: str | None = None
    has_header: bool = False
    columns: Sequence[str] = ()
    is_plain: bool = False


def read_by_this_process(file: LandedFile, landing: Landing, why: str) -> FileRead | None:
    """`None`: this process reads the file, or a problem if it is too large for that.

    `why` is the reason why Spark cannot read it.
    """
    limit = landing.max_file_bytes
    if file.size_bytes <= limit:
        return None
    problem = (
        f"it has more than {limit} bytes (Landing.max_file_bytes), so only Spark may read it, and "
        f"{why}"
    )
    return FileRead(file=file, problem=problem)


def judge_file(read: FileRead, known: KnownFiles) -> LandedFile:
    """The file to load, or the file as set aside with a reason."""
    file = read.file
    if read.problem is not None:
        return set_aside(file, read.problem, is_quarantined=True)
    loaded = known.loaded.get(file.name)
    if loaded is not None and not known.may_load(file):
        if loaded.digest != file.digest:
            return set_aside(file, _describe_change(loaded, file), is_quarantined=True)
        why = "it was written again with content that was already read"
        return set_aside(file, why, is_quarantined=False)
    if read.record_count:
        return file
    return set_aside(file, "it contains no record", is_quarantined=known.is_overwrite)


def settle_batch(
    plan: BatchPlan,
    staged: Batch,
    known: KnownFiles,
    reads: Mapping[str, FileRead | None],
    *,
    row_count: int,
) -> Batch:
    """The staged batch after its files were read: each is loaded, set aside, or left.

    `reads` has the files by name; `None` if a file is gone. `row_count` is the number of rows that
    the records of all files became. If it is zero, an `Overwrite` sets its file aside, and the
    table keeps its rows.
    """
    files = list[LandedFile]()
    aside = [*staged.set_aside]
    for file in staged.files:
        read = reads.get(file.name)
        if read is not None:
            judged = judge_file(read, known)
            if isinstance(judged, SetAside):
                aside.append(judged)
            else:
                files.append(judged)
    if known.is_overwrite and not row_count:
        why = "none of its records became a row; the table keeps its rows"
        aside += [set_aside(file, why, is_quarantined=True) for file in files]
        files = []
    # If the file of an `Overwrite` became no row, the older files are not set aside: the next batch
    # chooses again. For other write modes, `superseded` is always empty.
    if files or not staged.files:
        aside += plan.superseded
    columns = staged.columns if files else ()
    return replace(staged, files=tuple(files), set_aside=tuple(aside), columns=columns)
