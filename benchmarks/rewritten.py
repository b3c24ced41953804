"""How often compactions rewrite a byte while a table grows file by file: with the tiers of the plan, and joining every small file.

`python -m benchmarks.rewritten [TARGET_MIB …]`. Tables of batches of eight files of about 1 MiB, each followed by a compaction, until four
files of the target are full. Nothing is written: what OPTIMIZE does to given files is exact (docs/when.md), and outputs are as large
as what went into them.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from benchmarks.figures import Figure, alone
from lakehouse.core.compaction import small_files
from lakehouse.core.compaction.plan import plan_compaction
from lakehouse.core.costs.estimate import DEFAULT_RATES
from lakehouse.core.declaration.compaction_policy import MIB, Compaction
from lakehouse_tests.core.example_snapshots import NO_PAST, data_file, snapshot
from lakehouse_tests.core.optimize_oracle import after, written

TARGETS_MIB = (16, 128, 1024)
_FILES, _FULL_FILES = 8, 4
_SIZES = range(MIB // 2, MIB * 3 // 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """A table after its last batch: bytes rewritten per byte that was new, and files that a full read opened after a batch, at most."""

    rewritten: float
    most_files: int


def main(*targets_mib: int) -> list[Figure]:
    """The bytes rewritten per byte that was new, by target."""
    figures: list[Figure] = []
    for target in targets_mib or TARGETS_MIB:
        tiered = grown(target)
        with joining_everything():
            joined = grown(target)
        print(f"  target {target} MiB: {tiered} beside {joined}", flush=True)
        name = f"bytes rewritten per byte that was new, target {target} MiB"
        figures.append(
            Figure(
                name=name,
                value=tiered.rewritten,
                peers={"every small file joined": joined.rewritten},
            )
        )
        figures.append(
            Figure(
                name=f"most files, target {target} MiB",
                value=tiered.most_files,
                peers={"joined": joined.most_files},
            )
        )
    return figures


def grown(target_mib: int) -> Grown:
    """A table that was compacted after each of its batches."""
    table, past, rewritten, most_files, chance = snapshot([]), NO_PAST, 0, 0, Random(7)
    policy = Compaction(target_file_bytes=target_mib * MIB, scan_cores=1)
    for batch in range(_FULL_FILES * target_mib // _FILES):
        table, past = written(
            table,
            past,
            [
                data_file(size, f"{batch}-{place}")
                for place, size in enumerate(chance.choices(_SIZES, k=_FILES))
            ],
        )
        plan = plan_compaction(
            table, policy, rates=DEFAULT_RATES, now_ms=table.committed_ms, history=past
        )
        bins = [bin_.files for bin_ in plan.bins]
        rewritten += plan.bytes_removed
        table, past = after(table, past, plan, bins, [bin_.size_bytes for bin_ in plan.bins])
        most_files = max(most_files, table.file_count)
    return Grown(rewritten=rewritten / table.size_bytes, most_files=most_files)


@contextmanager
def joining_everything() -> Iterator[None]:
    """The plan without its tiers: every file below three quarters of the target is rewritten with the new ones."""
    usual = small_files.LEAST_KEPT_BYTES
    small_files.LEAST_KEPT_BYTES = sys.maxsize
    try:
        yield
    finally:
        small_files.LEAST_KEPT_BYTES = usual


if __name__ == "__main__":
    sys.exit(alone(main))
