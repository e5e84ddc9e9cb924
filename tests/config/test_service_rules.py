"""What is stored for the edge: accepted as clients send it, refused by the path of the field."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from hawker.config import MachineConfig
from hawker.config.service_rules import (
    MAX_PORTS,
    MAX_SERVICES,
    MAX_SERVICES_BYTES,
    may_set,
    metrics,
    services,
    standbys,
    statics,
)
from hawker.edge import head

ID = "148e2d4a67389e"


def _complaints(given: dict[str, Any]) -> list[str]:
    config = msgspec.convert(given, MachineConfig)
    found: Iterator[str] = chain(services(config), statics(config), metrics(config), standbys(config))
    return list(found)


def _service(**more: Any) -> dict[str, Any]:
    return {"services": [{"internal_port": 8080, **more}]}


def _long_headers(size_bytes: int) -> dict[str, Any]:
    headers = {"response": {"headers": {"a": "x" * size_bytes}}}
    return {"internal_port": 1, "ports": [{"port": 1, "handlers": ["http"], "http_options": headers}]}


def _port(**fields: Any) -> dict[str, Any]:
    return _service(ports=[fields])


FLY_LAUNCH = {
    "protocol": "tcp",
    "internal_port": 8080,
    "autostart": True,
    "autostop": "stop",
    "min_machines_running": 0,
    "force_instance_key": None,
    "ports": [
        {"port": 80, "handlers": ["http"], "force_https": True},
        {"port": 443, "handlers": ["http", "tls"], "http_options": {"response": {"headers": {"Server": False}}}},
    ],
    "concurrency": {"type": "requests", "soft_limit": 200, "hard_limit": 250},
    "checks": [{"type": "http", "interval": "10s", "path": "/up"}],
}
ACCEPTED: list[dict[str, Any]] = [
    {},
    {"services": [], "statics": [], "metrics": {}, "standbys": []},
    {"services": [FLY_LAUNCH]},
    _service(protocol="udp", ports=[{"start_port": 5000, "end_port": 5100}]),
    _service(protocol="udp", ports=[{"port": 443, "handlers": ["tls"]}]),
    {"services": [{"internal_port": 53, "ports": [{"port": 53}], "protocol": kind} for kind in ("tcp", "udp")]},
    _port(port=443, tls_options={"alpn": ["h2", "http/1.1"], "versions": ["TLSv1.2", "TLSv1.3"]}),
    _port(port=443, proxy_proto_options={"version": "v2"}),
    _port(port=1, http_options={"replay_cache": [{"path_prefix": "/a", "type": "cookie", "name": "c"}]}),
    {"statics": [{"guest_path": "/app/public", "url_prefix": "/public/", "index_document": "index.html"}]},
    {"metrics": {"port": 9091, "path": "/metrics", "https": False}},
    {"standbys": [ID]},
]


@pytest.mark.parametrize("given", ACCEPTED)
def test_services_of_clients_are_accepted(given: dict[str, Any]) -> None:
    assert _complaints(given) == []


HEADERS = "services[0].ports[0].http_options.response.headers"
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"services": [{}]}, "services[0].internal_port must be between 1 and 65535, not None"),
    ({"services": [FLY_LAUNCH, {"internal_port": 65536}]}, "services[1].internal_port"),
    ({"services": [{"internal_port": 1}] * (MAX_SERVICES + 1)}, "services has more than 64"),
    ({"services": [_long_headers(MAX_SERVICES_BYTES)]}, f"services is larger than {MAX_SERVICES_BYTES} bytes"),
    (
        {"services": [{"internal_port": 1, "checks": [{"type": "tcp"}] * 17}]},
        "checks: the machine and its services",
    ),
    (_service(protocol="sctp"), "services[0].protocol must be tcp or udp, not 'sctp'"),
    (_service(ports=[{"port": 1}] * (MAX_PORTS + 1)), "services[0].ports has more than 64"),
    (_port(), "services[0].ports[0].port: give either"),
    (_port(port=80, start_port=80), "services[0].ports[0].port: give either"),
    (_port(port=0), "services[0].ports[0].port must be"),
    (_port(start_port=80), "services[0].ports[0].end_port must be"),
    (_port(start_port=90, end_port=80), "services[0].ports[0].start_port 90 is beyond end_port 80"),
    (_port(port=80, handlers=["gopher"]), "services[0].ports[0].handlers: 'gopher' is not one of http"),
    (_service(protocol="udp", ports=[{"port": 1, "handlers": ["http"]}]), "services[0].ports[0].handlers are for tcp"),
    (_port(port=80, force_https=True), "services[0].ports[0].force_https needs the http handler"),
    (_port(port=80, tls_options={"versions": ["SSLv3"]}), "services[0].ports[0].tls_options.versions: 'SSLv3'"),
    (_port(port=80, tls_options={"alpn": [""]}), "services[0].ports[0].tls_options.alpn"),
    (_port(port=80, http_options={"idle_timeout": -1}), "services[0].ports[0].http_options.idle_timeout"),
    (
        _port(port=80, http_options={"response": {"headers": {"A": "b\r\nC: d"}}}),
        "services[0].ports[0].http_options.response.headers: 'A'",
    ),
    (_port(port=80, http_options={"response": {"headers": {"A": 1}}}), "services[0].ports[0].http_options.response"),
    *(
        (_port(port=80, http_options={"response": {"headers": {name: value}}}), f"{HEADERS}: {name!r} {why}")
        for name, value, why in (
            ("", "b", "is no name of a header"),
            ("x y", "b", "is no name of a header"),
            ("x:y", False, "is no name of a header"),
            (":status", "204", "is no name of a header"),
            ("A\n", "b", "is no name of a header"),
            ("Ä", "b", "is no name of a header"),
            ("Content-Length", "0", "frames the answer"),
            ("transfer-encoding", ["chunked"], "frames the answer"),
            ("Connection", False, "frames the answer"),
            ("A", "b\x00", "needs a text"),
            ("A", ["b", "c\r"], "needs a text"),
        )
    ),
    (_port(port=80, http_options={"replay_cache": [{}]}), "services[0].ports[0].http_options.replay_cache"),
    (_port(port=80, proxy_proto_options={"version": "v3"}), "services[0].ports[0].proxy_proto_options.version"),
    (_service(concurrency={"type": "hopes"}), "services[0].concurrency.type must be connections or requests"),
    (_service(concurrency={"soft_limit": 9, "hard_limit": 8}), "services[0].concurrency.soft_limit 9 is above"),
    (_service(min_machines_running=-1), "services[0].min_machines_running must be between 0"),
    (_service(checks=[{"type": "exec"}]), "services[0].checks[0].type is required"),
    (
        {"services": [FLY_LAUNCH, {"internal_port": 1, "ports": [{"start_port": 400, "end_port": 500}]}]},
        "services[0].ports[1]: port 443 is another service's already",
    ),
    ({"statics": [{}]}, "statics[0].guest_path is required"),
    ({"statics": [{"guest_path": "/a/../b", "url_prefix": "/"}]}, "statics[0].guest_path"),
    ({"statics": [{"guest_path": "/a", "url_prefix": "a"}]}, "statics[0].url_prefix must begin with one /"),
    ({"statics": [{"guest_path": "/a", "url_prefix": "//evil"}]}, "statics[0].url_prefix"),
    ({"statics": [{"guest_path": "/a", "url_prefix": "/", "index_document": "a/b"}]}, "statics[0].index_document"),
    ({"metrics": {"path": "/metrics"}}, "metrics.port must be between 1 and 65535, not None"),
    ({"metrics": {"port": 1, "path": "metrics"}}, "metrics.path must begin with /"),
    ({"standbys": ["web-1"]}, "standbys[0] is not the id of a machine: 'web-1'"),
    ({"standbys": [ID] * 17}, "standbys has more than 16"),
    ({"standbys": [ID], "services": [{"internal_port": 1}]}, "standbys: a standby cannot have services"),
]


@pytest.mark.parametrize(("given", "complaint"), REFUSED)
def test_a_complaint_opens_with_the_path_of_the_field(given: dict[str, Any], complaint: str) -> None:
    assert _complaints(given)[0].startswith(complaint)


PORTS = st.tuples(st.integers(1, 300), st.integers(0, 20)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@hypothesis.given(st.lists(PORTS, max_size=12))
def test_a_public_port_is_refused_exactly_when_two_services_have_it(ranges: list[tuple[int, int]]) -> None:
    given = [{"internal_port": 1, "ports": [{"start_port": first, "end_port": last}]} for first, last in ranges]
    had = [port for first, last in ranges for port in range(first, last + 1)]
    assert bool(_complaints({"services": given})) == (len(had) != len(set(had)))


def test_no_field_that_the_edge_reads_of_a_connection_is_an_apps_to_set() -> None:
    assert not any(may_set(name.decode()) for name in (*head._HOP, b"content-length", b"trailer"))
    assert all(map(may_set, ("Server", "Via", "x_y", "Fly-Request-Id", "Set-Cookie", "Date")))
