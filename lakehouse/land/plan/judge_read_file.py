"""Decides for each file of a batch, after the file was read, whether to load it or set it aside.

Which files a batch takes is decided before, in `choose_files.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakehouse.declare.landing import Landing
from lakehouse.land.plan.batches import Batch, KnownFile, LandedFile, SetAside, set_aside
from lakehouse.land.plan.choose_files import BatchPlan, describe_change


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRead:
    """The result of reading a landed file.

    `problem` is the reason why no record can be read. With `continues`, the file begins with the
    content that was loaded under the same name. `record_count` records were staged. Before them,
    `loaded_records` records were skipped, because older batches loaded them. With `by_spark`, no
    record was staged: Spark reads the file's `record_count` records itself. `undeclared` are then
    the kinds of its undeclared columns (`NewColumns`), and `blocks` as in `LandedFile`.
    """

    size_bytes: int
    digest: str
    record_count: int = 0
    problem: str | None = None
    text_bytes: int | None = None
    text_digest: str = ""
    continues: bool = False
    loaded_records: int = 0
    by_spark: bool = False
    has_header: bool = False
    undeclared: Mapping[str, str] = field(default_factory=dict[str, str])
    blocks: tuple[tuple[int, int], ...] = ()


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
    return FileRead(size_bytes=file.size_bytes, digest="", problem=problem)


def judge_file(
    file: LandedFile, known: KnownFile | None, read: FileRead, *, is_overwrite: bool
) -> LandedFile | SetAside:
    """The file to load, or the file as set aside with a reason.

    `known` is the ledger's entry for the file's name, if any.
    """
    as_read = replace(
        file,
        size_bytes=read.size_bytes,
        digest=read.digest,
        text_bytes=read.text_bytes,
        text_digest=read.text_digest,
        loaded_records=read.loaded_records,
        by_spark=read.by_spark,
        blocks=read.blocks,
    )
    if read.problem is not None:
        return set_aside(as_read, read.problem, is_quarantined=True)
    if known is not None and known.is_taken and not read.continues:
        if known.as_loaded.digest == read.digest:
            why = "it was written again with content that was already read"
            return set_aside(as_read, why, is_quarantined=False)
        why = describe_change(known, as_read, is_overwrite=is_overwrite)
        return set_aside(as_read, why, is_quarantined=True)
    if read.record_count:
        return as_read
    if read.continues:
        return set_aside(as_read, "it was written again without new records", is_quarantined=False)
    return set_aside(as_read, "it contains no record", is_quarantined=is_overwrite)


def settle_batch(
    plan: BatchPlan, judged: Sequence[LandedFile | SetAside], *, row_count: int, is_overwrite: bool
) -> Batch:
    """The planned batch after its files were read and judged.

    `row_count` is the number of rows that the records of all files became. If it is zero, an
    `Overwrite` sets its file aside, and the table keeps its rows.
    """
    assert plan.batch is not None
    files = tuple(each for each in judged if isinstance(each, LandedFile))
    aside = tuple(each for each in judged if isinstance(each, SetAside))
    if is_overwrite and not row_count:
        why = "none of its records became a row; the table keeps its rows"
        aside = (*aside, *(set_aside(file, why, is_quarantined=True) for file in files))
        files = ()
    # If the file of an `Overwrite` became no row, the older files are not set aside: the next batch
    # chooses again. For other write modes, `superseded` is always empty.
    is_newest_unusable = bool(plan.batch.files) and not files
    superseded = () if is_newest_unusable else plan.superseded
    return replace(
        plan.batch,
        files=files,
        set_aside=(*plan.batch.set_aside, *aside, *superseded),
        columns=plan.batch.columns if files else (),
    )
