"""Decides for each file of a batch, after it was read, whether to load it or set it aside."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lakehouse.core.ingest.batches import Batch, KnownFile, LandedFile, SetAside, set_aside
from lakehouse.core.ingest.next_batch import BatchPlan, describe_change


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRead:
    """The result of reading a landed file.

    `problem` says why no record can be read. `continues` means that the file begins with the loaded
    file of the same name. `record_count` then excludes its first `loaded_records` records.
    """

    size_bytes: int
    digest: str
    record_count: int = 0
    problem: str | None = None
    text_bytes: int | None = None
    text_digest: str = ""
    continues: bool = False
    loaded_records: int = 0


def judge_file(
    file: LandedFile, known: KnownFile | None, read: FileRead, *, is_overwrite: bool
) -> LandedFile | SetAside:
    """The file to load, or set aside with a reason; `known` is its entry in the ledger."""
    now = replace(
        file,
        size_bytes=read.size_bytes,
        digest=read.digest,
        text_bytes=read.text_bytes,
        text_digest=read.text_digest,
        loaded_records=read.loaded_records,
    )
    if read.problem is not None:
        return set_aside(now, read.problem, True)
    if known is not None and known.is_taken and not read.continues:
        if known.as_loaded.digest == read.digest:
            return set_aside(now, "it was written again with content that was already read", False)
        return set_aside(now, describe_change(known, now), True)
    if not read.record_count and read.continues:
        return set_aside(now, "it was written again without new records", False)
    return now if read.record_count else set_aside(now, "it contains no record", is_overwrite)


def settle_batch(
    plan: BatchPlan, judged: Sequence[LandedFile | SetAside], *, row_count: int, is_overwrite: bool
) -> Batch:
    """The planned batch with its read files, whose records gave `row_count` rows.

    An `Overwrite` whose file gives no row sets it aside, and the table keeps its rows.
    """
    assert plan.batch is not None
    files = tuple(each for each in judged if isinstance(each, LandedFile))
    aside = tuple(each for each in judged if isinstance(each, SetAside))
    if is_overwrite and not row_count:
        why = "none of its records became a row; the table keeps its rows"
        aside = (*aside, *(set_aside(file, why, True) for file in files))
        files = ()
    # If the newest file gives no row, the older ones are read next. Otherwise they are superseded.
    superseded = plan.superseded if files or not plan.batch.files else ()
    return replace(
        plan.batch,
        files=files,
        set_aside=(*plan.batch.set_aside, *aside, *superseded),
        columns=plan.batch.columns if files else (),
    )
