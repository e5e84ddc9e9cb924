"""What `GET /metrics/edge` says, in Prometheus's text format: what clients of each app got from the host's edge, with
Fly's names where Fly has them. Pure.

How many series there are is bounded by what an edge process counts: so many apps and machines, of each so many
statuses; all other labels are from closed sets. What was never counted has no series.
"""

from collections.abc import Iterable, Iterator, Mapping

from hawker.feed import RESPONSE_S, EdgeReport, Times
from hawker.ids import AppName, MachineId
from hawker.observe.metrics import Family

Labels = tuple[tuple[str, str], ...]
Sample = tuple[Labels, int | Times]

EDGE_FAMILIES = tuple(
    Family(name, kind, text, labels)
    for name, kind, text, labels in (
        ("fly_edge_http_responses_count", "counter", "Answers, the edge's own too.", ("app", "status")),
        (
            "fly_edge_http_response_time_seconds",
            "histogram",
            "From the whole head of a request to the head of its answer; its wait for a machine counts.",
            ("app",),
        ),
        ("fly_edge_tcp_connects_count", "counter", "Raw connections that came.", ("app",)),
        ("fly_edge_tcp_disconnects_count", "counter", "Raw connections that have ended.", ("app",)),
        ("fly_edge_data_in", "counter", "Bytes of clients: bodies, raw and upgraded connections.", ("app",)),
        ("fly_edge_data_out", "counter", "Bytes to clients: bodies, raw and upgraded connections.", ("app",)),
        (
            "fly_edge_tls_handshake_errors",
            "counter",
            "Handshakes that failed once it was known for which app they were.",
            ("app",),
        ),
        (
            "fly_edge_tls_handshake_time_seconds",
            "histogram",
            "From a connection to the end of its handshake, by version of TLS.",
            ("app", "version"),
        ),
        ("fly_app_concurrency", "gauge", "Requests and connections that are in a machine now.", ("app", "instance")),
        (
            "fly_app_http_responses_count",
            "counter",
            "Answers of a machine to clients of this host.",
            ("app", "instance", "status"),
        ),
        (
            "fly_app_http_response_time_seconds",
            "histogram",
            "From the request's way to the machine to the head of its answer.",
            ("app", "instance"),
        ),
        (
            "fly_app_connect_time_seconds",
            "histogram",
            "Until a machine of this host took a connection; tries of one that begins count.",
            ("app", "instance"),
        ),
        (
            "fly_app_tcp_connects_count",
            "counter",
            "Raw connections that reached a machine.",
            ("app", "instance"),
        ),
        (
            "fly_app_tcp_disconnects_count",
            "counter",
            "Raw connections with a machine that have ended.",
            ("app", "instance"),
        ),
        ("hawker_edge_app_held", "gauge", "Requests and connections that wait for a machine now.", ("app",)),
        (
            "hawker_edge_app_events_total",
            "counter",
            "What the edge did for an app, by event: wakes, rests, retries, errors_PR01 and so on.",
            ("app", "event"),
        ),
        (
            "hawker_edge_app_wake_seconds",
            "histogram",
            "From the word that starts a machine to its being open.",
            ("app",),
        ),
        (
            "hawker_edge_app_verdicts_total",
            "counter",
            "What gates of other hosts said to requests from here: go, or the code of an error.",
            ("app", "verdict"),
        ),
    )
)


def edge_page(report: EdgeReport, app_of: Mapping[MachineId, AppName]) -> str:
    """`app_of` has the machines in flight that are still there."""
    samples = {family.name: list(of) for family, of in zip(EDGE_FAMILIES, _samples(report, app_of), strict=True)}
    return "".join(line for family in EDGE_FAMILIES for line in _lines(family, samples[family.name]))


def _samples(report: EdgeReport, app_of: Mapping[MachineId, AppName]) -> Iterator[Iterable[Sample]]:
    """In the order of the families."""
    apps, machines = report.apps, report.machines
    flying = [(MachineId(machine), count) for machine, count in report.in_flight.items()]
    yield [((("app", a.app), ("status", name)), n) for a in apps for name, n in sorted(a.statuses.items())]
    yield [((("app", a.app),), Times(buckets=a.buckets, seconds=a.seconds)) for a in apps]
    yield [((("app", a.app),), a.connects) for a in apps]
    yield [((("app", a.app),), a.disconnects) for a in apps]
    yield [((("app", a.app),), a.bytes_in) for a in apps]
    yield [((("app", a.app),), a.bytes_out) for a in apps]
    yield [((("app", a.app),), a.tls_errors) for a in apps]
    yield [((("app", a.app), ("version", version)), t) for a in apps for version, t in sorted(a.handshakes.items())]
    yield [(_of_machine(app_of[machine], machine), count) for machine, count in flying if machine in app_of]
    yield [
        ((*_of_machine(m.app, m.machine), ("status", name)), n)
        for m in machines
        for name, n in sorted(m.statuses.items())
    ]
    yield [(_of_machine(m.app, m.machine), m.answers) for m in machines]
    yield [(_of_machine(m.app, m.machine), m.dials) for m in machines]
    yield [(_of_machine(m.app, m.machine), m.connects) for m in machines]
    yield [(_of_machine(m.app, m.machine), m.disconnects) for m in machines]
    yield [((("app", a.app),), a.held) for a in apps]
    yield [((("app", a.app), ("event", name)), n) for a in apps for name, n in sorted(a.events.items())]
    yield [((("app", a.app),), a.wakes) for a in apps]
    yield [((("app", a.app), ("verdict", name)), n) for a in apps for name, n in sorted(a.verdicts.items())]


def _of_machine(app: AppName, machine: MachineId) -> Labels:
    return ("app", app), ("instance", machine)


def _lines(family: Family, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP {family.name} {family.text}\n# TYPE {family.name} {family.kind}\n"
    for labels, value in samples:
        named = ",".join(f'{name}="{each}"' for name, each in labels)
        if isinstance(value, Times):
            yield from _histogram(family.name, named, value)
        elif value or family.kind == "gauge":
            yield f"{family.name}{{{named}}} {value}\n"


def _histogram(name: str, labels: str, times: Times) -> Iterator[str]:
    """Nothing of what never happened."""
    total, bounds = 0, (*map(str, RESPONSE_S), "+Inf")
    if not any(times.buckets):
        return
    for most, count in zip(bounds, times.buckets, strict=True):
        total += count
        yield f'{name}_bucket{{{labels},le="{most}"}} {total}\n'
    yield f"{name}_sum{{{labels}}} {times.seconds:.6f}\n"
    yield f"{name}_count{{{labels}}} {total}\n"
