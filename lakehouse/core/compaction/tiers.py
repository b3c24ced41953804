"""Which files that compactions wrote are left for later, since to rewrite them costs more than it spares.

To rewrite a file with every few new ones costs its bytes again and again, and spares a reader one opening. So it stays as long as all
smaller files together are far from its size. What is merged then mostly doubles, as in a binary counter.
"""

from collections.abc import Sequence

# To rewrite so much takes as long as any job that starts, 0.6 s by the default rates (`core.costs.estimate`): less is not worth a file.
LEAST_KEPT_BYTES = 16 * 1024 * 1024


def tier_cutoff(compacted: Sequence[int], *, fresh_bytes: int, largest_fresh: int, cutoff: int) -> int:
    """The size below which files are merged: `cutoff`, or the least power of two that all smaller ones together do not reach.

    `compacted` are the sizes of the files below `cutoff` that compactions wrote, ascending. A fresh file is never left out. The
    power of two is less than half of `cutoff`: with more beside it, a large file would fit into no bin any more.
    """
    lowered = LEAST_KEPT_BYTES
    while 2 * lowered < cutoff and compacted and compacted[-1] >= lowered:
        if largest_fresh < lowered and fresh_bytes + sum(size for size in compacted if size < lowered) < lowered:
            return lowered
        lowered *= 2
    return cutoff
