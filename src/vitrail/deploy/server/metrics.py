"""Metrics for Prometheus."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
SIZES = (1, 2, 4, 8, 16, 32, 64)


class _Labelled(Collector):
    """The metrics of a registry, with the label ``worker`` on every sample."""

    def __init__(self, registry: CollectorRegistry, worker: str):
        self._registry, self._label = registry, {"worker": worker}

    def collect(self) -> Iterable[Metric]:
        for family in self._registry.collect():
            family.samples = [each._replace(labels={**self._label, **each.labels}) for each in family.samples]
            yield family


class Metrics:
    """Counters of one process.

    Args:
        items: what a batch consists of: images, people.
        worker: label of all metrics if there are several processes.
    """

    def __init__(self, items: str, worker: str = "") -> None:
        self._registry, self._worker = CollectorRegistry(), worker
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._requests = Counter(
            "vitrail_requests",
            "Requests by path and status; 499: the client went away.",
            ["path", "status"],
            registry=self._registry,
        )
        self._latency = Histogram(
            "vitrail_request_seconds", "From a request's head to its answer.", ["path"], buckets=SECONDS, registry=self._registry
        )
        self._batch = Histogram(
            f"vitrail_batch_{items}", f"{items.capitalize()} that were computed together.", buckets=SIZES, registry=self._registry
        )
        self._computing = self.timing("batch_seconds", "What a batch took to compute.")

    def gauge(self, name: str, what: str, value: Callable[[], float]) -> None:
        """Add a gauge whose value is read at every scrape."""
        Gauge(f"vitrail_{name}", what, registry=self._registry).set_function(value)

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Count a request with its path, HTTP status and seconds."""
        self._requests.labels(path, str(status)).inc()
        self._latency.labels(path).observe(seconds)

    def timing(self, name: str, what: str) -> Callable[[int, float], None]:
        """Add a histogram of seconds, and return a function ``(count, seconds)`` that adds an observation."""
        seconds = Histogram(f"vitrail_{name}", what, buckets=SECONDS, registry=self._registry)
        return lambda count, took: seconds.observe(took)

    def computed(self, count: int, seconds: float) -> None:
        """Count a batch with its number of items and its seconds."""
        self._batch.observe(count)
        self._computing(count, seconds)

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        if not self._worker:
            return generate_latest(self._registry)
        labelled = CollectorRegistry()
        labelled.register(_Labelled(self._registry, self._worker))
        return generate_latest(labelled)
