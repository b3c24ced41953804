"""The files of a batch that hold rows that cannot be written, and the batch without them.

**Safety properties** (tests in `test_poison_files.py`)
- A file is set aside only if its rows, alone, were tried and cannot be written.
- If everything that is tried fails, nothing is set aside: the fault is in the declaration or table.
- A batch with fewer files still names every file: those that stay, and those that are set aside for
  a person.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from lakehouse.core.errors import Broken
from lakehouse.core.ingest.batches import Batch, LandedFile, fingerprint, set_aside

# So many files, and so many records, are tried one by one before it is said that everything fails.
PROBES = 8
# So many failing files are looked for before they are set aside and the load begins anew, so that a kill loses little.
AT_ONCE = 16


def any_can_be_written(
    files: tuple[LandedFile, ...], why_not: Callable[[tuple[LandedFile, ...]], str | None]
) -> bool:
    """Whether any of a few files, taken without regard to their order, can be written alone; `why_not` tries some and gives the problem."""
    by_chance = sorted(files, key=lambda file: fingerprint(file.name))
    return any(why_not((file,)) is None for file in by_chance[:PROBES])


def failing_files(
    files: tuple[LandedFile, ...], why_not: Callable[[tuple[LandedFile, ...]], str | None]
) -> dict[LandedFile, str]:
    """The first files that cannot be written alone, with the problem; found in halves, so that each takes tries like log2 of all."""
    found: dict[LandedFile, str] = {}
    groups = [files]
    while groups and len(found) < AT_ONCE:
        group = groups.pop()
        if (problem := why_not(group)) is None:
            continue
        half = len(group) // 2
        if half:
            groups += [group[half:], group[:half]]
        else:
            found[group[0]] = problem
    return found


def without_failing(
    batch: Batch,
    failing: Mapping[LandedFile, str],
    *,
    failing_records: int,
    is_overwrite: bool,
    has_table: bool,
) -> Batch:
    """The batch without files, which have `failing_records` of its staged records; they are set aside, each with its problem.

    An `Overwrite` that has no file left lets go of those that it had replaced: they have their turn then. Columns whose files are all gone
    go with them, unless there is a table, which has them already. Broken where a file, or so many records, are not of the batch.
    """
    files = tuple(file for file in batch.files if file not in failing)
    if (
        not failing
        or len(files) + len(failing) != len(batch.files)
        or not 0 <= failing_records <= (batch.record_count or 0)
    ):
        said = f"batch {batch.number}: {len(failing)} file(s) with {failing_records} record(s) were to be taken out of its"
        raise Broken(
            f"{said} {len(batch.files)} file(s) with {batch.record_count}; nothing was set aside"
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
        record_count=(batch.record_count or 0) - failing_records,
        isolated=(*batch.isolated, tuple(file.name for file in failing)),
    )
