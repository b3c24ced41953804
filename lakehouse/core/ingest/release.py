"""When landed files that wait make a batch: by their number, their bytes, or the age of the oldest, whichever comes first."""

from dataclasses import dataclass

from lakehouse.core.declaration.landing import Landing
from lakehouse.core.reasons import Explanation, Reason
from lakehouse.core.text import size_text
from lakehouse.core.units import MINUTE_MS


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


def _released_ms(waiting: Waiting, landing: Landing) -> int:
    return waiting.oldest_ms + round(landing.release_minutes * MINUTE_MS)
