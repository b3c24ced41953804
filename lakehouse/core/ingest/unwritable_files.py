"""Finds the files of a batch with rows that cannot be written, and removes them from the batch.

**Safety properties** (tests in `test_unwritable_files.py`)
- A file is set aside only if writing its rows alone was tried and failed.
- If every try fails, nothing is set aside: the fault is in the declaration or the table.
- The reduced batch still names every file of the batch, as loaded or as set aside for review.
  Only an `Overwrite` of which no file is left hands its superseded files to the next batch.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from lakehouse.core.errors import Broken
from lakehouse.core.ingest.batches import Batch, LandedFile, fingerprint, set_aside

# Number of files that are tried alone, and then of records. If all of them fail, the load stops.
PROBES = 8
# Number of failing files to find before they are set aside, so that a kill loses little work.
AT_ONCE = 16

_WhyNot = Callable[[tuple[LandedFile, ...]], str | None]


def any_can_be_written(files: tuple[LandedFile, ...], why_not: _WhyNot) -> bool:
    """Whether at least one of up to `PROBES` randomly chosen files can be written alone.

    `why_not` tries some files and returns the problem, or `None`.
    """
    shuffled = sorted(files, key=lambda file: fingerprint(file.name))
    return any(why_not((file,)) is None for file in shuffled[:PROBES])


def failing_files(files: tuple[LandedFile, ...], why_not: _WhyNot) -> dict[LandedFile, str]:
    """The first files that cannot be written alone, with the problem, found by bisection."""
    failing = dict[LandedFile, str]()
    groups = [files]
    while groups and len(failing) < AT_ONCE:
        group = groups.pop()
        problem = why_not(group)
        if problem is None:
            continue
        half = len(group) // 2
        if half:
            groups += [group[half:], group[:half]]
        else:
            failing[group[0]] = problem
    return failing


def without_failing(
    batch: Batch,
    failing: Mapping[LandedFile, str],
    *,
    failing_records: int,
    is_overwrite: bool,
    has_table: bool,
) -> Batch:
    """The batch without its failing files.

    `failing_records` is the number of staged records that came from them. If no file of an
    `Overwrite` remains, the next batch loads the files that it superseded. If no file remains,
    the batch's columns are dropped, unless the table exists and so has them.

    Raises:
        Broken: `failing` is empty or names a file outside the batch, or `failing_records` is not
            between 0 and the batch's count.
    """
    files = tuple(file for file in batch.files if file not in failing)
    record_count = batch.record_count or 0
    has_all = len(files) + len(failing) == len(batch.files)
    if not failing or not has_all or not 0 <= failing_records <= record_count:
        raise Broken(
            f"batch {batch.number}: cannot remove {len(failing)} file(s) with {failing_records} "
            f"record(s) from its {len(batch.files)} file(s) with {batch.record_count}; nothing "
            "was set aside. Use lakehouse materialize to repeat the load"
        )
    before = batch.set_aside if files or not is_overwrite else batch.quarantined
    aside = [
        set_aside(file, f"its rows cannot be written: {problem}", True)
        for file, problem in failing.items()
    ]
    return replace(
        batch,
        files=files,
        columns=batch.columns if files or has_table else (),
        part_count=batch.part_count if files else 0,
        set_aside=(*before, *aside),
        record_count=record_count - failing_records,
        isolated=(*batch.isolated, tuple(file.name for file in failing)),
    )
