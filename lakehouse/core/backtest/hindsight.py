"""The cost of upkeep and readers together under a schedule of compactions, and under the best schedule in hindsight.

The least cost until a compaction at one event is a minimum over the compaction before it: the least cost until that one, plus the losses
of readers between the two, plus the price of the later one. One model of the table (`SmallFiles`) prices every schedule.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, inf

from lakehouse.core.backtest.bill import Bill
from lakehouse.core.compaction.comparison import choose_comparison
from lakehouse.core.compaction.target_size import WriteHistory, target_in_force
from lakehouse.core.costs.estimate import Rates, estimate, fit_rates, price
from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.declaration.prices import Prices
from lakehouse.core.delta.commits import Commit
from lakehouse.core.delta.snapshot import DataFile, Snapshot
from lakehouse.core.delta.table_facts import TableFacts
from lakehouse.core.scheduling.net_benefit import seconds_per_opening, usd_per_opening
from lakehouse.core.scheduling.read_losses import SmallFiles, folder_of, is_rewrite, mean_added_bytes, settled_times, written_paths
from lakehouse.core.units import DAY_MS

# The work grows with the square of the events: so many take half a second. Of a longer history every second, third, ... one may be chosen.
_MOST_EVENTS = 200

# After a compaction at an event (-1: the beginning), and the one before it, for each later event and the end: the losses of readers, and
# the price of another one.
type_of_phases = Callable[[int, int], Iterable[tuple[float, float]]]


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
    `opening_seconds` were measured (`None`: the default holds). Readers that are spread evenly read until `until_ms` (`None`: to the last
    event).
    """

    start: tuple[tuple[str, str, int, bool], ...]
    events: tuple[LogEvent, ...]
    policy: Compaction
    rates: Rates
    reads_per_day: float
    read_ms: tuple[int, ...] = ()
    on_s3: bool = False
    opening_seconds: float | None = None
    until_ms: int | None = None

    def bill(self, compacted_ms: Collection[int]) -> Bill:
        """The cost of a schedule that compacts at these times, as far as they are times of events."""
        newest = {event.at_ms: place for place, event in enumerate(self.events)}
        return self._bill(sorted(newest[at_ms] for at_ms in {*compacted_ms} & newest.keys()))

    def best(self, *, beside: Iterable[Bill] = ()) -> Bill:
        """The cost of the best schedule in hindsight. In a long history not every event is tried, but none `beside` is below it.

        What a compaction leaves depends a little on those before it: a single new file is left alone (docs/decisions/0003), and a file of
        three quarters of the target is done. Of all schedules until one event the best is gone on with, so a better one may be missed.
        """
        every, walk = max(1, ceil(len(self.events) / _MOST_EVENTS)), _Walk(self)
        unit, end = 0 if self._is_free else 1, len(self.events)
        opening = self._opening[unit]

        def phases(place: int, before: int) -> Iterator[tuple[float, float]]:
            for later, (openings, small) in enumerate(walk.after(place, before), start=place + 1):
                may_run = small.files_removed and later % every == 0
                yield openings * opening, 0.0 if later == end else self._cost(small)[unit] if may_run else inf

        return min([self._bill(best_schedule(end, phases)[1]), *beside], key=self._amount)

    def _bill(self, places: Sequence[int]) -> Bill:
        """The cost of compactions at these events, each after what the ones before it left."""
        openings, seconds, usd = 0.0, 0.0, 0.0
        walk, chosen = _Walk(self), {*places}
        small = walk.start.copy()
        for place, event in enumerate(self.events):
            _apply(small, event)
            if place in chosen:
                spent = self._cost(small) if small.files_removed else (0.0, 0.0)
                seconds, usd = seconds + spent[0], usd + spent[1]
                small.compact()
            openings += walk.reads[place] * small.openings_saved
        opening_seconds, opening_usd = self._opening
        return Bill(
            compaction_count=len(places),
            upkeep_seconds=seconds,
            upkeep_usd=usd,
            readers_seconds=openings * opening_seconds,
            readers_usd=openings * opening_usd,
        )

    @property
    def _opening(self) -> tuple[float, float]:
        """Seconds and money of opening a file more."""
        usd = usd_per_opening(self.rates.prices, on_s3=self.on_s3, opening_seconds=self.opening_seconds)
        return seconds_per_opening(self.opening_seconds), usd

    @property
    def _is_free(self) -> bool:
        """Whether nothing here costs money; seconds are what counts then."""
        return not self._opening[1] and not price(self.rates.prices, seconds=1)

    def _amount(self, bill: Bill) -> float:
        return bill.seconds if self._is_free else bill.usd

    def _cost(self, small: SmallFiles) -> tuple[float, float]:
        """Seconds and money of a compaction, its comparison included."""
        compared = choose_comparison(self.policy, small.bytes_removed) == "content"
        sizes = {"files_removed": small.files_removed, "bytes_removed": small.bytes_removed, "files_added": small.files_added}
        found = estimate(self.rates, **sizes, on_s3=self.on_s3, compared=compared)
        more = found.comparison_seconds if compared else 0.0
        return found.seconds + more, found.usd + price(self.rates.prices, seconds=more)


class _Walk:
    """Goes over the events after compactions; `start` are the small files before the first.

    `reads` are those between each event and the next, of the last one those after it.
    """

    def __init__(self, history: ReadHistory) -> None:
        self._history, read_ms = history, sorted(history.read_ms)
        times = [event.at_ms for event in history.events]
        counts = [bisect_left(read_ms, at_ms) for at_ms in times] + [len(read_ms)]
        ends = [max(times[-1], history.until_ms or 0)] if times else []
        spans = zip(pairwise(counts), pairwise([*times, *ends]), strict=True) if times else ()
        self.reads = [later - before + history.reads_per_day / DAY_MS * (until - since) for (before, later), (since, until) in spans]
        policy = history.policy
        self.start = SmallFiles(target_bytes=policy.target_file_bytes, candidate_bytes=policy.candidate_bytes)
        self.start.add(history.start)
        self._left = {-1: self.start}

    def after(self, place: int, before: int) -> Iterator[tuple[float, SmallFiles]]:
        """Of each event after a compaction at `place` (the one before: at `before`) and of the end: the openings lost, the small files."""
        small, lost, events = self._left[before].copy(), 0.0, self._history.events
        for event in events[before + 1 : place + 1]:
            _apply(small, event)
        if place >= 0:
            small.compact()
            self._left[place] = small.copy()
        for later in range(place + 1, len(events) + 1):
            lost += self.reads[later - 1] * small.openings_saved if later else 0.0
            if later < len(events):
                _apply(small, events[later])
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
    opening_seconds: float | None = None,
    until_ms: int | None = None,
) -> ReadHistory:
    """The history of a table of that shape by these commits; `files` are all files whose size is known."""
    known, written = list(files), written_paths(commits)
    before = {file.path: file for file in known if file.path not in written}.values()  # a file is known once more with each vector
    in_force = replace(policy, target_file_bytes=target_in_force(shape.size_bytes, policy, WriteHistory()))
    return ReadHistory(
        start=tuple((each.path, folder_of(each.path, shape), each.size_bytes, each.compacted) for each in before),
        events=events_of(commits, shape, {file.path: file.size_bytes for file in known}, compacted_ms=compacted_ms),
        policy=in_force,
        rates=rates,
        reads_per_day=reads_per_day,
        read_ms=read_ms,
        on_s3=shape.on_s3,
        opening_seconds=opening_seconds,
        until_ms=until_ms,
    )


def bills_of_log(
    facts: TableFacts,
    policy: Compaction,
    *,
    prices: Prices,
    now_ms: int,
    reads_per_day: float,
    read_ms: tuple[int, ...] = (),
    opening_seconds: float | None = None,
) -> tuple[Bill, Bill]:
    """The real cost of upkeep and readers in the commits that the log still holds, and until now; and the cost of the best schedule."""
    told, snapshot = facts.history.commits, facts.snapshot
    times = settled_times([commit.committed_ms for commit in told], now_ms=now_ms)
    commits = [replace(commit, committed_ms=at_ms) for commit, at_ms in zip(told, times, strict=True)]
    history = read_history(
        commits,
        snapshot.files,
        snapshot,
        policy=policy,
        rates=fit_rates(facts.history, snapshot, prices=prices),
        reads_per_day=reads_per_day,
        read_ms=read_ms,
        opening_seconds=opening_seconds,
        until_ms=now_ms,
    )
    really = history.bill([commit.committed_ms for commit in commits if is_rewrite(commit)])
    return really, history.best(beside=[really])


def best_schedule(event_count: int, phases: type_of_phases) -> tuple[float, tuple[int, ...]]:
    """The least total of losses and costs, and the events at which its compactions are."""
    least, before = [0.0] + [inf] * (event_count + 1), [0] * (event_count + 2)
    for place in range(event_count + 1):
        if least[place] == inf:
            continue
        for later, (lost, cost) in enumerate(phases(place - 1, before[place] - 1), start=place + 1):
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
    small.add((*file, False) for file in event.added)
