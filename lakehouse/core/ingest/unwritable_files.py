"""Finds the landed files whose rows cannot be written, and removes these files from their batch.

**Safety properties** (tests in `test_unwritable_files.py`)
- A file is set aside only if a trial write of its rows alone failed.
- If none of the files and records that are tried alone can be written, nothing is set aside: the
  fault is in the declaration or the table.
- The reduced batch still names every file, either to load or as set aside. There is one exception:
  if no file of an `Overwrite` remains, the reduced batch omits the files that were set aside, but
  not quarantined: above all, the older files that the failing file superseded. So the next batch
  chooses a file again.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from lakehouse.core.errors import Broken
from lakehouse.core.ingest.batches import Batch, LandedFile, fingerprint, set_aside
from lakehouse.core.text import count_of

# Up to this many files are tried alone. If all of them fail, as many records are tried alone. If
# these records fail, too, the load stops.
PROBES = 8
# The search stops after this many failing files, and the batch is saved without them. If the run is
# killed later, the next run does not search for them again.
AT_ONCE = 16

# Makes a trial write of some files. Returns the problem, or `None` if the write succeeded.
_TrialWrite = Callable[[tuple[LandedFile, ...]], str | None]


def any_can_be_written(files: tuple[LandedFile, ...], trial_write: _TrialWrite) -> bool:
    """Whether at least one of up to `PROBES` files can be written alone.

    The files are chosen by a hash of their names.
    """
    shuffled = sorted(files, key=lambda file: fingerprint(file.name))
    for file in shuffled[:PROBES]:
        problem = trial_write((file,))
        if problem is None:
            return True
    return False


def failing_files(files: tuple[LandedFile, ...], trial_write: _TrialWrite) -> dict[LandedFile, str]:
    """Up to `AT_ONCE` files that cannot be written alone, each with its problem.

    Groups that fail are split into halves until single files are found.
    """
    failing = dict[LandedFile, str]()
    groups = [files]
    while groups and len(failing) < AT_ONCE:
        group = groups.pop()
        problem = trial_write(group)
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

    `failing_records` is the number of staged records that came from the failing files. If no file
    of an `Overwrite` remains, the batch also omits the files that were set aside without quarantine
    (the older files), so that the next batch chooses again. If no file remains and there is no
    table yet, the batch adds no columns.

    Raises:
        Broken: `failing` is empty or names a file outside the batch, or `failing_records` is not
            between 0 and the batch's count.
    """
    files = tuple(file for file in batch.files if file not in failing)
    record_count = batch.record_count or 0
    are_all_in_batch = len(files) + len(failing) == len(batch.files)
    if not failing or not are_all_in_batch or not 0 <= failing_records <= record_count:
        raise Broken(
            f"batch {batch.number}: cannot remove {count_of(len(failing), 'file')} with "
            f"{count_of(failing_records, 'record')} from its "
            f"{count_of(len(batch.files), 'file')} with {count_of(record_count, 'record')}. "
            "Nothing was set aside. Use lakehouse materialize to repeat the load"
        )
    earlier = batch.set_aside if files or not is_overwrite else batch.quarantined
    newly_set_aside = [
        set_aside(file, f"its rows cannot be written: {problem}", is_quarantined=True)
        for file, problem in failing.items()
    ]
    return replace(
        batch,
        files=files,
        columns=batch.columns if files or has_table else (),
        part_count=batch.part_count if files else 0,
        set_aside=(*earlier, *newly_set_aside),
        record_count=record_count - failing_records,
        isolated=(*batch.isolated, tuple(file.name for file in failing)),
    )
