"""The cost of upkeep and readers together under a schedule of compactions, and under the best schedule in hindsight.

The least cost until a compaction at one event is a minimum over the compaction before it: the least cost until that one, plus the losses
of readers between the two, plus the price of the later one. One model of the table (`SmallFiles`) prices every schedule.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, inf

from lakehouse.core.backtest.result import Bill
from lakehouse.core.compaction.plan import choose_comparison
from lakehouse.core.compaction.target_size import WriteHistory, target_in_force
from lakehouse.core.costs.estimate import (
    SECONDS_PER_OPENING,
    Rates,
    estimate,
    fit_rates,
    price,
    usd_per_opening,
)
from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.declaration.prices import Prices
from lakehouse.core.delta.commits import Commit
from lakehouse.core.delta.snapshot import DataFile, Snapshot
from lakehouse.core.delta.table_facts import TableFacts
from lakehouse.core.scheduling.read_losses import (
    LogEvent,
    SmallFiles,
    event_of,
    folder_of,
    is_rewrite,
    settled_times,
    written_paths,
)
from lakehouse.core.units import DAY_MS

# The work grows with the square of the events: so many take half a second. Of a longer history every second, third, ... one may be chosen.
_MOST_EVENTS = 200

# After a compaction at an event (-1: the beginning), and the one before it, for each later event and the end: the losses of readers, and
# the price of another one.
type_of_phases = Callable[[int, int], Iterable[tuple[float, float]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadHistory:
    """A table's history for its readers: `start` lay in it before the first event; reads come at `read_ms`, and as the policy declares.

    A file of `start` is a path, a partition, bytes, and whether a compaction wrote it. The policy's target is the one in force, never 0.
    Readers that it declares are spread evenly, until `until_ms` or the last event.
    """

    start: tuple[tuple[str, str, int, bool], ...]
    events: tuple[LogEvent, ...]
    policy: Compaction
    rates: Rates
    read_ms: tuple[int, ...] = ()
    on_s3: bool = False
    opening_seconds: float = SECONDS_PER_OPENING
    until_ms: int = 0

    def bill(self, compacted_ms: Collection[int]) -> Bill:
        """The cost of a schedule that compacts at these times, as far as they are times of events."""
        newest = {event.at_ms: place for place, event in enumerate(self.events)}
        return self._bill(sorted(newest[at_ms] for at_ms in {*compacted_ms} & newest.keys()))

    def best(self, *, beside: Iterable[Bill] = ()) -> Bill:
        """The cost of the best schedule in hindsight. In a long history not every event is tried, but none `beside` is below it.

        What a compaction leaves depends a little on those before it: a single new file is left alone (docs/decisions/0003), and a file of
        three quarters of the target is done. Of all schedules until one event the best is gone on with, so a better one may be missed.
        """
        every, end, reads = (
            max(1, ceil(len(self.events) / _MOST_EVENTS)),
            len(self.events),
            self._reads(),
        )
        left, unit = {-1: self._small_files()}, 0 if self._is_free else 1
        opening = self._opening[unit]

        def phases(place: int, before: int) -> Iterator[tuple[float, float]]:
            small, lost = left[before].copy(), 0.0
            for event in self.events[before + 1 : place + 1]:
                small.apply(event)
            if place >= 0:
                small.compact()
                left[place] = small.copy()
            for later in range(place + 1, end + 1):
                lost += reads[later - 1] * small.openings_saved if later else 0.0
                if later < end:
                    small.apply(self.events[later])
                may_run = small.files_removed and later % every == 0
                yield (
                    lost * opening,
                    0.0 if later == end else self._cost(small)[unit] if may_run else inf,
                )

        return min(
            [self._bill(best_schedule(end, phases)[1]), *beside],
            key=lambda bill: bill.seconds if self._is_free else bill.usd,
        )

    def _bill(self, places: Sequence[int]) -> Bill:
        """The cost of compactions at these events, each after what the ones before it left."""
        openings, seconds, usd = 0.0, 0.0, 0.0
        small, chosen = self._small_files(), {*places}
        for place, (event, reads) in enumerate(zip(self.events, self._reads(), strict=True)):
            small.apply(event)
            if place in chosen:
                spent = self._cost(small) if small.files_removed else (0.0, 0.0)
                seconds, usd = seconds + spent[0], usd + spent[1]
                small.compact()
            openings += reads * small.openings_saved
        opening_seconds, opening_usd = self._opening
        return Bill(
            compaction_count=len(places),
            upkeep_seconds=seconds,
            upkeep_usd=usd,
            readers_seconds=openings * opening_seconds,
            readers_usd=openings * opening_usd,
        )

    def _small_files(self) -> SmallFiles:
        """The small files before the first event."""
        small = SmallFiles(
            target_bytes=self.policy.target_file_bytes, candidate_bytes=self.policy.candidate_bytes
        )
        small.add(self.start)
        return small

    def _reads(self) -> list[float]:
        """The reads between each event and the next, of the last one those after it."""
        times, read_ms = [event.at_ms for event in self.events], sorted(self.read_ms)
        counts = [*(bisect_left(read_ms, at_ms) for at_ms in times), len(read_ms)]
        spans = pairwise([*times, max(times[-1], self.until_ms)] if times else [])
        per_ms = (self.policy.reads_per_day or 0) / DAY_MS
        return [
            later - before + per_ms * (until - since)
            for (before, later), (since, until) in zip(pairwise(counts), spans, strict=True)
        ]

    @property
    def _opening(self) -> tuple[float, float]:
        """Seconds and money of opening a file more."""
        usd = usd_per_opening(
            self.rates.prices, on_s3=self.on_s3, opening_seconds=self.opening_seconds
        )
        return self.opening_seconds, usd

    @property
    def _is_free(self) -> bool:
        """Whether nothing here costs money; seconds are what counts then."""
        return not self._opening[1] and not price(self.rates.prices, seconds=1)

    def _cost(self, small: SmallFiles) -> tuple[float, float]:
        """Seconds and money of a compaction, its comparison included."""
        compared = choose_comparison(self.policy, small.bytes_removed) == "content"
        sizes = {
            "files_removed": small.files_removed,
            "bytes_removed": small.bytes_removed,
            "files_added": small.files_added,
        }
        found = estimate(self.rates, **sizes, on_s3=self.on_s3, compared=compared)
        more = found.comparison_seconds if compared else 0.0
        return found.seconds + more, found.usd + price(self.rates.prices, seconds=more)


def read_history(
    commits: Sequence[Commit],
    files: Iterable[DataFile],
    shape: Snapshot,
    *,
    policy: Compaction,
    rates: Rates,
    compacted_ms: Iterable[int] = (),
) -> ReadHistory:
    """The history of a table of that shape by these commits; `files` are all files whose size is known, `compacted_ms` more times."""
    known, written = list(files), written_paths(commits)
    before = {
        file.path: file for file in known if file.path not in written
    }.values()  # a file is known once more with each vector
    events = _events_of(commits, shape, {file.path: file.size_bytes for file in known})
    events += [
        LogEvent(at_ms=at_ms) for at_ms in {*compacted_ms} - {event.at_ms for event in events}
    ]
    return ReadHistory(
        start=tuple(
            (each.path, folder_of(each.path, shape), each.size_bytes, each.compacted)
            for each in before
        ),
        events=tuple(sorted(events, key=lambda event: event.at_ms)),
        policy=replace(
            policy, target_file_bytes=target_in_force(shape.size_bytes, policy, WriteHistory())
        ),
        rates=rates,
        on_s3=shape.on_s3,
    )


def bills_of_log(
    facts: TableFacts,
    policy: Compaction,
    *,
    prices: Prices,
    now_ms: int,
    read_ms: tuple[int, ...],
    opening_seconds: float,
) -> tuple[Bill, Bill]:
    """The real cost of upkeep and readers in the commits that the log still holds, and until now; and the cost of the best schedule."""
    told, snapshot = facts.history.commits, facts.snapshot
    times = settled_times([commit.committed_ms for commit in told], now_ms=now_ms)
    commits = [
        replace(commit, committed_ms=at_ms) for commit, at_ms in zip(told, times, strict=True)
    ]
    rates = fit_rates(facts.history, snapshot, prices=prices)
    history = read_history(commits, snapshot.files, snapshot, policy=policy, rates=rates)
    history = replace(history, read_ms=read_ms, opening_seconds=opening_seconds, until_ms=now_ms)
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


def _events_of(
    commits: Sequence[Commit], shape: Snapshot, sizes: Mapping[str, int]
) -> list[LogEvent]:
    """The commits of writers, and the times of compactions; a writer that removes a compaction's file removes those merged into it."""
    merged: dict[str, list[str]] = {}
    found: list[LogEvent] = []
    for commit in commits:
        event = event_of(commit, shape, sizes)
        removed = [path for each in event.removed for path in merged.pop(each, [each])]
        if is_rewrite(commit):
            by_folder, gone = dict[str, list[str]](), {*commit.removed_paths}
            for path in removed:
                by_folder.setdefault(folder_of(path, shape), []).append(path)
            merged |= {
                path: by_folder.pop(folder_of(path, shape), [])
                for path in commit.added_paths
                if path not in gone
            }
            found.append(LogEvent(at_ms=commit.committed_ms))
        elif commit.changed_data:
            found.append(replace(event, removed=tuple(removed)))
    return found
