"""How a family of metrics is made: named `hawker_...`, on the one registry it is given, with the house's buckets."""

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

COMMIT_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
STEP_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0)
REQUEST_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
LAG_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
GROUP = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


@dataclass(frozen=True, slots=True)
class Family:
    """A metric as a reader sees it: `name` is that of its series, less the endings of a histogram's."""

    name: str
    kind: str
    text: str
    labels: tuple[str, ...]


class Families:
    """Makes collectors on `registry`, and keeps what they are in `made`. `text` says what and by which labels."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.made: list[Family] = []

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(self._note("counter", name, text, labels), text, labels, registry=self._registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(self._note("gauge", name, text, labels), text, labels, registry=self._registry)

    def histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        full = self._note("histogram", name, text, labels)
        return Histogram(full, text, labels, registry=self._registry, buckets=buckets)

    def _note(self, kind: str, name: str, text: str, labels: tuple[str, ...]) -> str:
        self.made.append(Family(f"hawker_{name}", kind, text, labels))
        return f"hawker_{name}"
