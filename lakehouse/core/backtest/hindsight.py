"""The cost of upkeep and readers together under a schedule of compactions, and under the best schedule in hindsight.

The least cost until a compaction at one event is a minimum over the compaction before it: the least cost until that one, plus the losses
of readers between the two, plus the price of the later one. One model of the table (`SmallFiles`) prices every schedule, so none is below
the best.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from math import ceil, inf
from typing import Any

from lakehouse.core.compaction.comparison import choose_comparison
from lakehouse.core.compaction.target_size import WriteHistory, target_in_force
from lakehouse.core.costs.estimate import Rates, estimate, fit_rates, price
from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.declaration.prices import Prices
from lakehouse.core.delta.commits import Commit
from lakehouse.core.delta.snapshot import DataFile, Snapshot
from lakehouse.core.delta.table_facts import TableFacts
from lakehouse.core.scheduling.net_benefit import seconds_per_opening, usd_per_opening
from lakehouse.core.scheduling.read_losses import SmallFiles, folder_of, is_rewrite, mean_added_bytes
from lakehouse.core.text import count_of
from lakehouse.core.units import DAY_MS

# The work grows with the square of the events: so many take half a second. Of a longer history every second, third, ... one may be chosen.
_MOST_EVENTS = 200

# After a compaction at an event (-1: the beginning), for each later event and the end: the losses of readers, and the price of another one.
type_of_phases = Callable[[int], Iterable[tuple[float, float]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """The cost of upkeep and readers under one schedule; readers pay for each opening that a compaction would have spared them."""

    compaction_count: int
    upkeep_seconds: float
    upkeep_usd: float
    readers_seconds: float
    readers_usd: float

    @property
    def seconds(self) -> float:
        """Both together."""
        return self.upkeep_seconds + self.readers_seconds

    @property
    def usd(self) -> float:
        """Both together; the best schedule is the one with the least of it."""
        return self.upkeep_usd + self.readers_usd

    @property
    def sentence(self) -> str:
        """The parts and their sum."""
        parts = f"{count_of(self.compaction_count, 'compaction')} {self.upkeep_seconds:.1f} s, readers {self.readers_seconds:.1f} s"
        return f"{parts}, together {self.usd:.6f} USD"

    def times(self, best: "Bill") -> float | None:
        """How many times the best this costs; `None` where the best costs nothing."""
        return self.usd / best.usd if best.usd else None

    def as_json(self) -> dict[str, float]:
        """The documented shape."""
        told = {**asdict(self), "seconds": self.seconds, "usd": self.usd}
        return {name: round(figure, 9 if name.endswith("usd") else 3) for name, figure in told.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent:
    """A commit of a writer: the files (path, partition, bytes) that it added and removed; or only a time, at which somebody compacted."""

    at_ms: int
    added: tuple[tuple[str, str, int], ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadHistory:
    """A table's history for its readers: `start` lay in it before the first event; reads come at `read_ms`, and evenly `reads_per_day`.

    A file of `start` is a path, a partition, bytes, and whether a compaction wrote it. The policy's target is the one in force, never 0.
    """

    start: tuple[tuple[str, str, int, bool], ...]
    events: tuple[LogEvent, ...]
    policy: Compaction
    rates: Rates
    reads_per_day: float
    read_ms: tuple[int, ...] = ()
    on_s3: bool = False

    def bill(self, compacted_ms: Collection[int]) -> Bill:
        """The cost of a schedule that compacts at these times, as far as they are times of events."""
        newest = {event.at_ms: place for place, event in enumerate(self.events)}
        return self._bill(sorted(newest[at_ms] for at_ms in {*compacted_ms} & newest.keys()))

    def best(self, *, beside: Iterable[Bill] = ()) -> Bill:
        """The cost of the best schedule in hindsight. In a long history not every event is tried, but none `beside` is below it."""
        every = ceil(len(self.events) / _MOST_EVENTS)
        opening_usd, walk = usd_per_opening(self.rates.prices, on_s3=self.on_s3), _Walk(self)

        def phases(place: int) -> Iterator[tuple[float, float]]:
            for later, (openings, small) in enumerate(walk.after(place), start=place + 1):
                is_event = later < len(self.events)
                cost = 0.0 if not is_event else inf if every > 1 and later % every else self._cost(small)[1]
                yield openings * opening_usd, cost

        return min([self._bill(best_schedule(len(self.events), phases)[1]), *beside], key=lambda bill: bill.usd)

    def _bill(self, places: Sequence[int]) -> Bill:
        openings, seconds, usd = 0.0, 0.0, 0.0
        walk, count = _Walk(self), len(self.events)
        for place, until in pairwise([-1, *places, count]):
            for later, (lost, small) in enumerate(walk.after(place), start=place + 1):
                if later == until:
                    openings += lost
                    spent = (0.0, 0.0) if until == count else self._cost(small)
                    seconds, usd = seconds + spent[0], usd + spent[1]
                    break
        return Bill(
            compaction_count=len(places),
            upkeep_seconds=seconds,
            upkeep_usd=usd,
            readers_seconds=openings * seconds_per_opening(),
            readers_usd=openings * usd_per_opening(self.rates.prices, on_s3=self.on_s3),
        )

    def _cost(self, small: SmallFiles) -> tuple[float, float]:
        """Seconds and money of a compaction, its comparison included."""
        compared = choose_comparison(self.policy, small.bytes_removed) == "content"
        sizes = {"files_removed": small.files_removed, "bytes_removed": small.bytes_removed, "files_added": small.files_added}
        found = estimate(self.rates, **sizes, on_s3=self.on_s3, compared=compared)
        more = found.comparison_seconds if compared else 0.0
        return found.seconds + more, found.usd + price(self.rates.prices, seconds=more)


class _Walk:
    """Goes over the events, forwards only; the table as it would be without any compaction stands at the newest one asked for."""

    def __init__(self, history: ReadHistory) -> None:
        self._history, self._place, read_ms = history, -1, sorted(history.read_ms)
        times = [event.at_ms for event in history.events]
        counts = [bisect_left(read_ms, at_ms) for at_ms in times] + [len(read_ms)]
        spans = zip(pairwise(counts), pairwise([*times, *times[-1:]]), strict=True) if times else ()
        self._reads = [later - before + history.reads_per_day / DAY_MS * (until - since) for (before, later), (since, until) in spans]
        self._never_compacted = SmallFiles(target_bytes=history.policy.target_file_bytes, candidate_bytes=history.policy.candidate_bytes)
        self._never_compacted.add_all(history.start)

    def after(self, place: int) -> Iterator[tuple[float, SmallFiles]]:
        """Of each event after a compaction at `place`, and of the end: the openings lost until then, and the small files then."""
        while self._place < place:
            self._place += 1
            _apply(self._never_compacted, self._history.events[self._place])
        small, lost = self._never_compacted.copy(), 0.0
        if place >= 0:
            small.compact()
        for later in range(place + 1, len(self._history.events) + 1):
            lost += self._reads[later - 1] * small.openings_saved if later else 0.0
            if later < len(self._history.events):
                _apply(small, self._history.events[later])
            yield lost, small


def read_history(
    commits: Sequence[Commit],
    files: Iterable[DataFile],
    shape: Snapshot,
    *,
    policy: Compaction,
    rates: Rates,
    reads_per_day: float,
    read_ms: tuple[int, ...] = (),
    compacted_ms: Iterable[int] = (),
) -> ReadHistory:
    """The history of a table of that shape by these commits; `files` are all files whose size is known."""
    known, written = list(files), {path for commit in commits for path in commit.added_paths}
    before = [file for file in known if file.path not in written]
    in_force = replace(policy, target_file_bytes=target_in_force(shape.size_bytes, policy, WriteHistory()))
    return ReadHistory(
        start=tuple((each.path, folder_of(each.path, shape), each.size_bytes, each.compacted) for each in before),
        events=events_of(commits, shape, {file.path: file.size_bytes for file in known}, compacted_ms=compacted_ms),
        policy=in_force,
        rates=rates,
        reads_per_day=reads_per_day,
        read_ms=read_ms,
        on_s3=shape.on_s3,
    )


def bills_of_log(
    facts: TableFacts, policy: Compaction, *, prices: Prices, reads_per_day: float, read_ms: tuple[int, ...] = ()
) -> tuple[Bill, Bill]:
    """The real cost of upkeep and readers in the commits that the log still holds, and the cost of the best schedule."""
    commits, snapshot = facts.history.commits, facts.snapshot
    rates = fit_rates(facts.history, prices=prices)
    history = read_history(commits, snapshot.files, snapshot, policy=policy, rates=rates, reads_per_day=reads_per_day, read_ms=read_ms)
    really = history.bill([commit.committed_ms for commit in commits if is_rewrite(commit)])
    return really, history.best(beside=[really])


def bill_document(bills: tuple[Bill, Bill] | None) -> dict[str, Any] | None:
    """The documented shape of the real bill and the best one; `None` where nobody tells how often a table is read."""
    return {"really": bills[0].as_json(), "best": bills[1].as_json()} if bills else None


def best_schedule(event_count: int, phases: type_of_phases) -> tuple[float, tuple[int, ...]]:
    """The least total of losses and costs, and the events at which its compactions are."""
    least, before = [0.0] + [inf] * (event_count + 1), [0] * (event_count + 2)
    for place in range(event_count + 1):
        if least[place] == inf:
            continue
        for later, (lost, cost) in enumerate(phases(place - 1), start=place + 1):
            if (total := least[place] + lost + cost) < least[later]:
                least[later], before[later] = total, place
    chosen, place = list[int](), before[-1]
    while place:
        chosen.append(place - 1)
        place = before[place]
    return least[-1], tuple(reversed(chosen))


def events_of(
    commits: Sequence[Commit], shape: Snapshot, sizes: Mapping[str, int], *, compacted_ms: Iterable[int] = ()
) -> tuple[LogEvent, ...]:
    """The commits of writers as events, and the times of compactions, real and others; `sizes` are those of the files that are known.

    A writer that removes a file of a real compaction removes the files that were merged into it.
    """
    merged: dict[str, list[str]] = {}
    found: list[LogEvent] = []
    for commit in commits:
        again = {*commit.added_paths} & {*commit.removed_paths}
        removed = [path for each in commit.removed_paths if each not in again for path in merged.pop(each, [each])]
        added = [path for path in commit.added_paths if path not in again]
        if is_rewrite(commit):
            by_folder: dict[str, list[str]] = {}
            for path in removed:
                by_folder.setdefault(folder_of(path, shape), []).append(path)
            merged |= {path: by_folder.pop(folder_of(path, shape), []) for path in added}
            found.append(LogEvent(at_ms=commit.committed_ms))
        elif commit.changed_data:
            mean_bytes = mean_added_bytes(commit)
            files = tuple((path, folder_of(path, shape), sizes.get(path, mean_bytes)) for path in added)
            found.append(LogEvent(at_ms=commit.committed_ms, added=files, removed=tuple(removed)))
    found += [LogEvent(at_ms=at_ms) for at_ms in {*compacted_ms} - {event.at_ms for event in found}]
    return tuple(sorted(found, key=lambda event: event.at_ms))


def _apply(small: SmallFiles, event: LogEvent) -> None:
    for path in event.removed:
        small.remove(path)
    for path, folder, size_bytes in event.added:
        small.add(path, folder, size_bytes)
