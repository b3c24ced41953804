"""When landed files that wait make a batch (by their number, their bytes, or the age of the oldest), and how many files it writes."""

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


def released_by(waiting: Waiting, landing: Landing, now_ms: int) -> str | None:
    """What releases the files, in words to be added to a sentence, empty where no file ever waits; `None`: they wait on."""
    if landing.release_files == 1:
        return ""
    if waiting.count >= landing.release_files:
        return f"; released by their number, {landing.release_files} or more"
    if 0 < landing.release_bytes <= waiting.size_bytes:
        return f"; released by their bytes, {size_text(landing.release_bytes)} or more"
    if waiting.oldest_ms - now_ms > _wait_ms(landing):  # further ahead than any file waits
        return "; released by their age, which nobody knows: the oldest is dated in the future"
    if now_ms >= _released_ms(waiting, landing):
        return f"; released by their age, the oldest has waited {landing.release_minutes:g} min or more"
    return None


def why_waiting(waiting: Waiting, landing: Landing) -> Explanation:
    """What the files wait for."""
    return Reason.BATCH_WAITING.explain(
        files=waiting.count,
        bytes=waiting.size_bytes,
        release_files=landing.release_files,
        or_bytes=f" or {size_text(landing.release_bytes)}" if landing.release_bytes else "",
        released=_released_ms(waiting, landing),
        minutes=f"{landing.release_minutes:g}",
    )


def count_outputs(landed_bytes: int, row_count: int, files: Sequence[DataFile], target_bytes: int) -> int:
    """How many files a batch of so many rows writes, so that each comes near the target.

    The fullest of the table's `files` tells what a row takes: of small files the footer takes most. Where nothing tells it, Parquet is
    taken for an eighth of the text that landed, and never for more than the text.
    """
    counted = [file for file in files if file.row_count]
    fullest = max(counted, key=lambda file: file.row_count or 0, default=None)
    expected = landed_bytes // _TEXT_TIMES
    if fullest is not None and fullest.row_count:
        expected = min(landed_bytes, row_count * fullest.size_bytes // fullest.row_count)
    return max(1, round(expected / target_bytes))


def _released_ms(waiting: Waiting, landing: Landing) -> int:
    return waiting.oldest_ms + _wait_ms(landing)


def _wait_ms(landing: Landing) -> int:
    return round(landing.release_minutes * MINUTE_MS)
