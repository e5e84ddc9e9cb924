"""Every metric of the node: frozen groups of collectors on a registry of their own, built once and handed down.

Names follow Prometheus: a base unit at the end, `_total` on what only grows. Labels come from closed sets (flows,
steps, states, routes), never from what users name: no app, machine, run or image is a label.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from platform import python_version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric

from hawker.value_object import ValueObject

COMMIT_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
STEP_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0)
REQUEST_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
LAG_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
GROUP = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "SOCKET"})
_BORN = "_created"  # a second series for each counter and histogram, which nothing here needs


class Family(ValueObject, frozen=True):
    """A metric as a reader sees it: `name` is that of its series, less the endings of a histogram's."""

    name: str
    kind: str
    """The kind of the family: `counter`, `gauge` or `histogram`."""
    text: str
    """The text that says what the family counts, for people: the line `# HELP`."""
    labels: tuple[str, ...]
    """Names of those that each series has; none for a single series."""


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


class RunMetrics:
    """Flows at work. The gauges are set when they are read."""

    def __init__(self, make: Families) -> None:
        self.accepted = make.counter("runs_accepted_total", "Runs accepted, by flow.", "flow")
        self.resumed = make.counter("runs_resumed_total", "Runs that a new daemon took up again, by flow.", "flow")
        self.ended = make.counter("runs_ended_total", "Runs ended, by flow and outcome.", "flow", "outcome")
        self.seconds = make.histogram("run_duration_seconds", "From accepted to ended, by flow.", STEP_S, "flow")
        self.attempts = make.counter(
            "step_attempts_total", "Attempts of steps and undos, by flow, step and outcome.", "flow", "step", "outcome"
        )
        self.attempt_seconds = make.histogram(
            "step_duration_seconds", "One attempt of a step or an undo, by flow and step.", STEP_S, "flow", "step"
        )
        self.open = make.gauge("runs_open", "Runs that have not ended, by state.", "state")
        self.queue_limit = make.gauge("queue_limit", "How many steps of a queue may be under way, by queue.", "queue")
        self.queue_active = make.gauge("queue_active", "Steps of a queue that are under way, by queue.", "queue")
        self.queue_waiting = make.gauge("queue_waiting", "Runs that wait for a queue, by queue.", "queue")


class StoreMetrics:
    """Keeps `store.contract.StoreObserver`: hears of each commit in the writer's thread."""

    def __init__(self, make: Families) -> None:
        self._commits = make.histogram(
            "store_commit_duration_seconds",
            "One commit, by durability; a durable one is an fsync.",
            COMMIT_S,
            "durability",
        )
        self._failures = make.counter("store_commit_failures_total", "Groups of transactions that failed to commit.")
        self._group = make.histogram("store_group_transactions", "Transactions that shared one commit.", GROUP)
        self.waiting = make.gauge("store_waiting_transactions", "Transactions that wait for the store's writer.")

    @contextmanager
    def commit(self, transactions: int, *, durable: bool) -> Iterator[None]:
        with self._commits.labels("durable" if durable else "ordered").time():
            yield
        self._group.observe(transactions)

    def failed(self) -> None:
        self._failures.inc()


class ApiMetrics:
    """Keeps `api.server.ServerObserver`."""

    def __init__(self, make: Families) -> None:
        self._requests = make.counter(
            "api_requests_total", "API requests, by method, route and status.", "method", "route", "status"
        )
        self._seconds = make.histogram(
            "api_request_duration_seconds",
            "From a request's head to the end of its answer, by method and route.",
            REQUEST_S,
            "method",
            "route",
        )
        self._limited = make.counter(
            "api_rate_limited_total",
            "Calls refused because they came too often, by method and route.",
            "method",
            "route",
        )

        self._unknown = make.counter(
            "graphql_unknown_names_total",
            "Names in GraphQL operations that the schema lacks, by kind: a newer client may ask them.",
            "kind",
        )

    def unknown_name(self, kind: str) -> None:
        """`kind` is one of five words."""
        self._unknown.labels(kind).inc()

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """`route` is a path of the route table or `-`, so that there are not many."""
        known = method if method in _METHODS else "other"
        self._requests.labels(known, route, str(status)).inc()
        self._seconds.labels(known, route).observe(seconds)

    def limited(self, method: str, route: str) -> None:
        """Both are the route table's own."""
        self._limited.labels(method, route).inc()


class NodeMetrics:
    """The metrics of what the node has, and its machines. Set when they are read."""

    def __init__(self, make: Families) -> None:
        self.machines = make.gauge("machines", "Machines, by state.", "state")
        self.cpus = make.gauge("capacity_cpus", "Cpus for sale, by kind; each shared one is a part of a cpu.", "kind")
        self.memory = make.gauge("capacity_memory_bytes", "Memory for sale.")
        self.disk = make.gauge("capacity_disk_bytes", "Disk for sale; 0 when the file system is nearly full.")
        self.cpus_used = make.gauge("used_cpus", "Cpus that machines hold, by kind.", "kind")
        self.memory_used = make.gauge("used_memory_bytes", "Memory that machines hold.")
        self.disk_used = make.gauge("used_disk_bytes", "Disk that machines hold.")
        self.connections = make.gauge("connections_tracked", "Entries in the host's table of connections (conntrack).")
        self.most_connections = make.gauge("connections_limit", "The most entries that table may have.")
        self.dropped = make.gauge(
            "dropped_packets",
            "Packets of machines that were dropped since the packet rules were put in place, by reason.",
            "reason",
        )
        self.edge_events = make.gauge("edge_events", "What the host's edge did since it began, by event.", "event")
        self.edge_process_events = make.gauge(
            "edge_process_events",
            "What each of several edge processes did since it began, by process and event.",
            "process",
            "event",
        )
        self.edge_in_flight = make.gauge("edge_in_flight", "Requests and connections that are in machines now.")
        self.edge_held = make.gauge("edge_held", "Requests and connections that wait for a machine now.")
        self.log_lines = make.gauge(
            "log_lines",
            "What became of machines' output since the daemon began, by event: lines kept, sent to the collector, or"
            " dropped before they could be sent; pieces of output lost.",
            "event",
        )
        self.histories = make.gauge("histories_waiting", "Histories of destroyed machines that wait for the archive.")


class FleetMetrics:
    """The cluster as this node sees it; nothing on a node that is alone. Set when they are read."""

    def __init__(self, make: Families) -> None:
        self.nodes = make.gauge("fleet_nodes", "Nodes of the cluster, this one included, by what is believed.", "fate")
        self.gaps = make.gauge("catalog_gaps", "Streams of other nodes that are known to be behind here.")
        self.queued = make.gauge("catalog_queued", "Changes of other nodes that wait to be applied here.")
        self.lag = make.gauge("catalog_lag_seconds", "How old others' changes are when applied, 99th percentile.")


class LoopMetrics:
    """The event loop, as the watchdog sees it."""

    def __init__(self, make: Families) -> None:
        self.lag = make.histogram("event_loop_lag_seconds", "How long the event loop let a call wait.", LAG_S)
        self.stalls = make.counter("event_loop_stalls_total", "Times that the event loop did not turn for too long.")


class SpanMetrics:
    """The metrics of what became of spans, when they are sent anywhere."""

    def __init__(self, make: Families) -> None:
        self.sent = make.counter("spans_sent_total", "Spans that the collector took.")
        self.dropped = make.counter("spans_dropped_total", "Spans given up: the collector was away or too slow.")


class MetricsRegistry(ValueObject, frozen=True):
    """All groups, and the registry they are on."""

    registry: CollectorRegistry
    families: tuple[Family, ...]
    runs: RunMetrics
    store: StoreMetrics
    api: ApiMetrics
    node: NodeMetrics
    loop: LoopMetrics
    spans: SpanMetrics
    fleet: FleetMetrics

    def exposition(self) -> str:
        """Prometheus's text format, 0.0.4."""
        return generate_latest(_Unborn(self.registry)).decode()


class _Unborn:
    """What a registry collects, without the series that say when the others were born."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        for family in self._registry.collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith(_BORN)]
            yield family


def build_metrics(version: str) -> MetricsRegistry:
    """Every collector, at nothing. `version` is Hawker's."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    make = Families(registry)
    build = make.gauge(
        "build_info", "Always 1; its labels are the version of Hawker and of Python.", "version", "python"
    )
    build.labels(version, python_version()).set(1)
    groups = RunMetrics(make), StoreMetrics(make), ApiMetrics(make), NodeMetrics(make), LoopMetrics(make)
    others = SpanMetrics(make), FleetMetrics(make)
    return MetricsRegistry(registry, tuple(make.made), *groups, *others)
