"""Serves the metrics of a lake over HTTP on loopback, or writes them as text.

**Safety properties**
- A scrape never waits longer than `_WAIT_SECONDS`. It gets the values that were read last, whose
  age is a metric, too.
- However many scrapes arrive, one reading runs at a time, and none without a scrape.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.core import (
    Metric as PrometheusMetric,
)
from prometheus_client.registry import Collector

from lakehouse.core.metrics.families import METRICS, Sample

# Prometheus gives up after 10 seconds unless it is configured otherwise.
_WAIT_SECONDS = 8.0

_LOG = logging.getLogger(__name__)

Samples = Sequence[Sample]


class LakeCollector(Collector):
    """The metrics of a lake, read again if a scrape finds the last reading too old."""

    def __init__(self, read: Callable[[], Samples], *, max_age_seconds: float) -> None:
        self._read = read
        self._max_age_seconds = max_age_seconds
        self._samples: Samples = ()
        self._problem = ""
        self._due = 0.0
        self._lock = threading.Lock()
        self._reading: threading.Thread | None = None

    def describe(self) -> Iterable[PrometheusMetric]:
        """The metrics without values, so that registering the collector reads nothing."""
        return families(())

    def collect(self) -> Iterable[PrometheusMetric]:
        """The newest values; starts a reading if they are too old, and waits a little for it."""
        with self._lock:
            if self._reading is None and time.monotonic() >= self._due:
                self._reading = threading.Thread(target=self._refresh, daemon=True)
                self._reading.start()
            reading = self._reading
        if reading is not None:
            reading.join(_WAIT_SECONDS)
        return families(self._samples)

    def _refresh(self) -> None:
        try:
            self._samples = self._read()
            problem = ""
        except Exception as error:  # a scrape gets the older values, whose age is a metric
            problem = f"{type(error).__name__}: {error}"
            if problem != self._problem:
                _LOG.exception("the metrics cannot be read")
        with self._lock:
            self._problem = problem
            self._due = time.monotonic() + self._max_age_seconds
            self._reading = None


def families(samples: Iterable[Sample]) -> list[PrometheusMetric]:
    """The samples as the library's metric families. Metrics without a value are included."""
    makers = {
        "gauge": GaugeMetricFamily,
        "counter": CounterMetricFamily,
        "summary": SummaryMetricFamily,
    }
    found = {each: makers[each.kind](each.name, each.help, labels=each.labels) for each in METRICS}
    for sample in samples:
        family = found[sample.metric]
        if isinstance(family, SummaryMetricFamily):
            family.add_metric(sample.labels, count_value=sample.count, sum_value=sample.value)
        else:
            family.add_metric(sample.labels, sample.value)
    return list(found.values())


def metrics_text(samples: Iterable[Sample]) -> bytes:
    """The samples in Prometheus' text format. Of samples with the same labels, the last counts."""
    unique = {(sample.metric, sample.labels): sample for sample in samples}
    return generate_latest(_registry(_Constant(unique.values())))


def write_metrics(path: Path, text: bytes) -> None:
    """Replaces a file that node_exporter's textfile collector reads. It is never half written."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.write_bytes(text)
    fresh.replace(path)


def serve(collector: LakeCollector, *, port: int) -> Callable[[], None]:
    """Serves the metrics at `http://127.0.0.1:<port>/metrics`; returns what ends it.

    Raises:
        OSError: the port is taken.
    """
    server, thread = start_http_server(port, addr="127.0.0.1", registry=_registry(collector))

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return end


class _Constant(Collector):
    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = samples

    def collect(self) -> Iterable[PrometheusMetric]:
        return families(self._samples)


def _registry(collector: Collector) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(collector)
    return registry
