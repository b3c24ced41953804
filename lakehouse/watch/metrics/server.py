"""Serves the metrics of a lake over HTTP on loopback, or writes them as text.

Counters begin at 0 with the process that reads them; Prometheus handles such resets.

**Safety properties**
- A scrape waits at most `_WAIT_SECONDS` for a reading. After that time, it gets the values of the
  previous reading (none before the first one), and a metric shows their age.
- Only scrapes start readings, and at most one reading runs at a time.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Summary,
    disable_created_metrics,
    generate_latest,
    start_http_server,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from lakehouse.base.clock import now_ms
from lakehouse.declare.upkeep_records import UpkeepOperation
from lakehouse.watch.metrics.plan import TABLE_LABELS, labels_of

# Less than the 10 seconds after which Prometheus, by default, gives up a scrape.
_WAIT_SECONDS = 8.0
# The kinds of operation that every table may have. They are counted from 0 on, because Prometheus'
# `increase` ignores the first value of a series.
_KINDS = ("compaction", "vacuum")

Families = Iterable[GaugeMetricFamily]

_LOG = logging.getLogger(__name__)

disable_created_metrics()


class Counters:
    """Counts operations that ended after `since_ms`, each once, in the memory of a process."""

    def __init__(self, registry: CollectorRegistry, *, since_ms: int) -> None:
        self._since_ms = since_ms
        self._counted = set[tuple[str, str, str]]()
        kind = (*TABLE_LABELS, "operation")
        self._decisions = Counter(
            "lakehouse_decisions_total",
            "Operations that ended, by the reason of their plan.",
            (*kind, "reason"),
            registry=registry,
        )
        self._operations = Counter(
            "lakehouse_operations_total",
            "Operations that ended.",
            (*kind, "outcome"),
            registry=registry,
        )
        self._durations = Summary(
            "lakehouse_operation_duration_seconds",
            "Known durations of the operations that ended.",
            kind,
            registry=registry,
        )
        self._costs = Counter(
            "lakehouse_cost_usd_total",
            "Known costs of the operations that ended, by kind of operation.",
            (*TABLE_LABELS, "kind"),
            registry=registry,
        )

    def count(self, table: str, operations: Sequence[UpkeepOperation]) -> None:
        """Adds the operations that are new."""
        labels = labels_of(table)
        for kind in _KINDS:
            self._operations.labels(*labels, kind, "succeeded")
            self._operations.labels(*labels, kind, "failed")
            self._durations.labels(*labels, kind)
            self._costs.labels(*labels, kind)
        for each in operations:
            identity = (table, each.kind, each.operation_id)
            if each.ended_ms < self._since_ms or identity in self._counted:
                continue
            self._counted.add(identity)
            outcome = "succeeded" if each.result == "succeeded" else "failed"
            self._operations.labels(*labels, each.kind, outcome).inc()
            self._costs.labels(*labels, each.kind).inc(each.usd or 0.0)
            if each.reason:
                self._decisions.labels(*labels, each.kind, each.reason).inc()
            if each.seconds is not None:
                self._durations.labels(*labels, each.kind).observe(each.seconds)


class LakeCollector(Collector):
    """The gauges of a lake.

    A scrape starts a new reading if the last one ended, or failed, over `max_age_seconds` ago.
    """

    def __init__(self, read: Callable[[], Families], *, max_age_seconds: float) -> None:
        self._read = read
        self._max_age_seconds = max_age_seconds
        self._gauges: Families = ()
        self._due = 0.0
        self._lock = threading.Lock()
        self._reading: threading.Thread | None = None

    def collect(self) -> Families:
        """The newest values. If they are too old, starts a reading and waits a while for it."""
        with self._lock:
            if self._reading is None and time.monotonic() >= self._due:
                self._reading = threading.Thread(target=self._refresh, daemon=True)
                self._reading.start()
            reading = self._reading
        if reading is not None:
            reading.join(_WAIT_SECONDS)
        return self._gauges

    def _refresh(self) -> None:
        try:
            self._gauges = self._read()
        except Exception:  # scrapes keep getting the older values
            _LOG.exception("the metrics cannot be read")
        with self._lock:
            self._due = time.monotonic() + self._max_age_seconds
            self._reading = None


class _GaugesCollector(Collector):
    def __init__(self, gauges: Families) -> None:
        self._gauges = gauges

    def collect(self) -> Families:
        return self._gauges


def metrics_text(gauges: Families) -> str:
    """The gauges in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_GaugesCollector(gauges))
    return generate_latest(registry).decode()


def serve(
    read: Callable[[Counters], Families], *, max_age_seconds: float, port: int
) -> Callable[[], None]:
    """Serves metrics at `http://127.0.0.1:<port>/metrics`; returns a function that stops this.

    Raises:
        OSError: the port cannot be opened, for example because it is in use.
    """
    registry = CollectorRegistry()
    # Collectors are asked in this order, and a reading counts operations.
    registry.register(LakeCollector(lambda: read(counters), max_age_seconds=max_age_seconds))
    counters = Counters(registry, since_ms=now_ms())
    server, _ = start_http_server(port, addr="127.0.0.1", registry=registry)
    return server.shutdown
