"""Serves the metrics of a lake over HTTP on loopback, or writes them as text.

**Safety properties**
- A scrape waits at most `_WAIT_SECONDS` for a reading. After that time, it gets the values of the
  previous reading (none before the first one), and a metric shows their age.
- Only scrapes start readings, and at most one reading runs at a time.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

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

from lakehouse.watch.metrics.plan import Metric, Sample

# Less than the 10 seconds after which Prometheus, by default, gives up a scrape.
_WAIT_SECONDS = 8.0

_LOG = logging.getLogger(__name__)

Samples = Sequence[Sample]


class LakeCollector(Collector):
    """The metrics of a lake.

    A scrape starts a new reading if the last one ended, or failed, over `max_age_seconds` ago.
    """

    def __init__(self, read: Callable[[], Samples], *, max_age_seconds: float) -> None:
        self._read = read
        self._max_age_seconds = max_age_seconds
        self._samples: Samples = ()
        self._problem = ""
        self._due = 0.0
        self._lock = threading.Lock()
        self._reading: threading.Thread | None = None

    def collect(self) -> Iterable[PrometheusMetric]:
        """The newest values. If they are too old, starts a reading and waits a while for it."""
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
        except Exception as error:  # scrapes keep getting the older values
            problem = f"{type(error).__name__}: {error}"
            if problem != self._problem:
                _LOG.exception("the metrics cannot be read")
        with self._lock:
            self._problem = problem
            self._due = time.monotonic() + self._max_age_seconds
            self._reading = None


def families(samples: Iterable[Sample]) -> list[PrometheusMetric]:
    """The samples as `prometheus_client` families."""
    types = {
        "gauge": GaugeMetricFamily,
        "counter": CounterMetricFamily,
        "summary": SummaryMetricFamily,
    }
    by_metric = dict[Metric, Any]()
    for sample in samples:
        metric = sample.metric
        if metric not in by_metric:
            by_metric[metric] = types[metric.kind](metric.name, metric.help, labels=metric.labels)
        family = by_metric[metric]
        if isinstance(family, SummaryMetricFamily):
            family.add_metric(sample.labels, count_value=sample.count, sum_value=sample.value)
        else:
            family.add_metric(sample.labels, sample.value)
    return list(by_metric.values())


def metrics_text(samples: Iterable[Sample]) -> bytes:
    """The samples in Prometheus' text format.

    If several samples have the same metric and labels, only the last one is written.
    """
    unique = {(sample.metric, sample.labels): sample for sample in samples}
    return generate_latest(_registry(_FixedSamples(unique.values())))


def serve(collector: LakeCollector, *, port: int) -> Callable[[], None]:
    """Serves the metrics at `http://127.0.0.1:<port>/metrics`; returns a function that stops this.

    Raises:
        OSError: the port cannot be opened, for example because it is in use.
    """
    server, thread = start_http_server(port, addr="127.0.0.1", registry=_registry(collector))

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop


class _FixedSamples(Collector):
    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = samples

    def collect(self) -> Iterable[PrometheusMetric]:
        return families(self._samples)


def _registry(collector: Collector) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(collector)
    return registry
