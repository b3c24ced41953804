"""When waiting files make a batch (by number, bytes or age), and how many files a batch writes."""

from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse.core.declaration.landing import Landing
from lakehouse.core.delta.snapshot import DataFile
from lakehouse.core.reasons import Explanation, Reason
from lakehouse.core.text import size_text
from lakehouse.core.units import MINUTE_MS

# JSON lines of a dozen fields, as Parquet with Snappy: 6 to 12 times smaller on the demo's events.
_TEXT_TIMES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The landed files that are in no batch yet."""

    count: int
    size_bytes: int
    oldest_ms: int


def released_by(waiting: Waiting, landing: Landing, now_ms: int) -> str | Explanation:
    """What releases the waiting files, as a part of a sentence; or why they still wait.

    The text is empty if the landing has no policy.
    """
    if landing.release_files == 1:
        return ""
    if waiting.count >= landing.release_files:
        return f"; released by their number, {landing.release_files} or more"
    if 0 < landing.release_bytes <= waiting.size_bytes:
        return f"; released by their bytes, {size_text(landing.release_bytes)} or more"
    wait_ms = round(landing.release_minutes * MINUTE_MS)
    # A file that is dated in the future must not wait for that date.
    if abs(now_ms - waiting.oldest_ms) >= wait_ms:
        minutes = f"{landing.release_minutes:g}"
        return f"; released by their age, the oldest has waited {minutes} min or more"
    return Reason.BATCH_WAITING.explain(
        files=waiting.count,
        bytes=waiting.size_bytes,
        release_files=landing.release_files,
        or_bytes=f" or {size_text(landing.release_bytes)}" if landing.release_bytes else "",
        released=waiting.oldest_ms + wait_ms,
        minutes=f"{landing.release_minutes:g}",
    )


def count_outputs(
    landed_bytes: int, row_count: int, files: Sequence[DataFile], target_bytes: int
) -> int:
    """The number of files for a batch, each near the target size.

    The bytes per row are those of the table's file with the most rows.
    """
    most_rows, size_bytes = max(
        ((file.row_count, file.size_bytes) for file in files if file.row_count), default=(0, 0)
    )
    expected = (
        min(landed_bytes, row_count * size_bytes // most_rows)
        if most_rows
        else landed_bytes // _TEXT_TIMES
    )
    return max(1, round(expected / target_bytes))
