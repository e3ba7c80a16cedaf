"""Metrics for Prometheus."""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
SIZES = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """Counters of one server, whose batches are of ``items``."""

    def __init__(self, items: str) -> None:
        self._registry = CollectorRegistry()
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
        """A number that is read at every scrape."""
        Gauge(f"vitrail_{name}", what, registry=self._registry).set_function(value)

    def counter(self, name: str, what: str) -> Callable[[], None]:
        """A number that only grows: by one whenever what it returns is called."""
        return Counter(f"vitrail_{name}", what, registry=self._registry).inc

    def answered(self, path: str, status: int, seconds: float) -> None:
        """A request is done."""
        self._requests.labels(path, str(status)).inc()
        self._latency.labels(path).observe(seconds)

    def timing(self, name: str, what: str) -> Callable[[int, float], None]:
        """A histogram of seconds: what it returns is called with how many were computed, and in how many seconds."""
        seconds = Histogram(f"vitrail_{name}", what, buckets=SECONDS, registry=self._registry)
        return lambda count, took: seconds.observe(took)

    def computed(self, count: int, seconds: float) -> None:
        """A batch is done."""
        self._batch.observe(count)
        self._computing(count, seconds)

    def text(self) -> bytes:
        """All of them, in the text format of Prometheus."""
        return generate_latest(self._registry)


class _Families(Collector):
    def __init__(self, found: Iterable[Metric]):
        self._found = found

    def collect(self) -> Iterable[Metric]:
        return self._found


def merged(texts: Mapping[int, str]) -> bytes:
    """The metrics of several workers, by their numbers, as one text in which each sample names its worker, counted from 1."""
    found: dict[str, Metric] = {}
    for number, text in texts.items():
        for family in text_string_to_metric_families(text):
            whole = found.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            labels = {"worker": str(number + 1)}
            whole.samples += [sample._replace(labels={**labels, **sample.labels}) for sample in family.samples]
    registry = CollectorRegistry()
    registry.register(_Families(found.values()))
    return generate_latest(registry)
