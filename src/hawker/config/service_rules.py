"""What services, static files, the metrics endpoint and standbys must satisfy. Pure; yields complaints by path.

They are stored as given: an edge routes by them. What it could not route by is refused here, by name.
"""

import posixpath
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

from hawker.config.duration import duration_complaints
from hawker.config.effective import LONGEST_CHECK_S
from hawker.config.machine import (
    Concurrency,
    HttpHeader,
    HttpOptions,
    MachineCheck,
    MachineConfig,
    Port,
    Service,
    ServiceCheck,
    Static,
    TlsOptions,
)
from hawker.ids import is_machine_id

MAX_CHECKS = 16
_TYPES = ("tcp", "http")
_CHECK_PROTOCOLS = ("http", "https")


def check_complaints(check: MachineCheck | ServiceCheck) -> Iterator[str]:
    """Each opens with the field's name. The port of a service's check is the service's unless it names one."""
    if check.type not in _TYPES:
        yield f"type is required: {' or '.join(_TYPES)}"
    if check.port is not None or isinstance(check, MachineCheck):
        yield from port_complaints("port", check.port)
    yield from duration_complaints("interval", check.interval, 1.0, 86_400.0)
    yield from duration_complaints("timeout", check.timeout, 0.001, LONGEST_CHECK_S)
    yield from duration_complaints("grace_period", check.grace_period, 0.0, 86_400.0)
    if not (check.method or "GET").isalpha():
        yield f"method is not an HTTP method: {check.method!r}"
    if check.path and (not check.path.startswith("/") or not header_safe(check.path)):
        yield f"path must begin with / and have no control characters, not {check.path!r}"
    if (check.protocol or "http") not in _CHECK_PROTOCOLS:
        yield f"protocol must be {' or '.join(_CHECK_PROTOCOLS)}, not {check.protocol!r}"
    if check.tls_server_name and not header_safe(check.tls_server_name):
        yield "tls_server_name has a control character in it"
    yield from header_complaints(check.headers or ())


def header_complaints(headers: tuple[HttpHeader, ...]) -> Iterator[str]:
    for header in headers:
        if not header.name or not all(header_safe(text) for text in (header.name, *(header.values or ()))):
            yield "headers: a header needs a name, and no control characters"


def port_complaints(field: str, port: int | None) -> Iterator[str]:
    if port is None or not 1 <= port <= 65535:
        yield f"{field} must be between 1 and 65535, not {port}"


def header_safe(text: str) -> bool:
    """Whether a text can be part of a request without making another one of it."""
    return text.isprintable()


# What a health check must satisfy, whether it is the machine's own or one of a service. Pure; yields complaints.

MAX_SERVICES, MAX_PORTS, MAX_STATICS, MAX_STANDBYS = 64, 64, 32, 16
MAX_SERVICES_BYTES = 128 * 1024
"""The most bytes of all services of a machine as JSON: all nodes of its region know them, and edges of others."""
MAX_LIMIT = 1_000_000
HANDLERS = ("http", "tls", "tcp", "proxy_proto", "pg_tls", "edge_http")
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
_PROTOCOLS = ("tcp", "udp")
_FIELD_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}")
"""The name of a field. Source: RFC 9110, 5.6.2."""
_FRAMING = frozenset(
    """content-length transfer-encoding trailer te connection keep-alive upgrade http2-settings proxy-connection
    proxy-authorization proxy-authenticate""".split()
)
"""Fields that say where an answer ends, or are for one connection alone: the edge's, and no app's to set."""
_PASSED_OVER_FOR_UDP = frozenset({"tls"})
"""Clients send it with every port 443. Datagrams go to the machine as they came."""


def services(config: MachineConfig) -> Iterator[str]:
    given = config.services or ()
    if len(given) > MAX_SERVICES:
        yield f"services has more than {MAX_SERVICES} items"
        return
    if len(config.checks or {}) + sum(len(service.checks or ()) for service in given) > MAX_CHECKS:
        yield f"checks: the machine and its services have more than {MAX_CHECKS} together"
    found = [f"services[{index}].{complaint}" for index, service in enumerate(given) for complaint in _service(service)]
    yield from found
    if not found and len(msgspec.json.encode(given)) > MAX_SERVICES_BYTES:  # nested too deep to encode is among them
        yield f"services is larger than {MAX_SERVICES_BYTES} bytes"
    yield from _taken_twice(given)


def _service(service: Service) -> Iterator[str]:
    protocol = service.protocol or "tcp"
    if protocol not in _PROTOCOLS:
        yield f"protocol must be {' or '.join(_PROTOCOLS)}, not {protocol!r}"
    yield from port_complaints("internal_port", service.internal_port)
    if len(service.ports or ()) > MAX_PORTS:
        yield f"ports has more than {MAX_PORTS} items"
    for index, port in enumerate(service.ports or ()):
        yield from (f"ports[{index}].{complaint}" for complaint in _port(port, protocol))
    if service.concurrency is not None:
        yield from (f"concurrency.{complaint}" for complaint in _concurrency(service.concurrency))
    yield from _amount("min_machines_running", service.min_machines_running, 0)
    for index, check in enumerate(service.checks or ()):
        yield from (f"checks[{index}].{complaint}" for complaint in check_complaints(check))


def _port(port: Port, protocol: str) -> Iterator[str]:
    """One port, or a range of them."""
    single, first, last = port.port, port.start_port, port.end_port
    if (single is None) == (first is None and last is None):
        yield "port: give either port, or start_port with end_port"
    elif single is not None:
        yield from port_complaints("port", single)
    else:
        yield from port_complaints("start_port", first)
        yield from port_complaints("end_port", last)
        if first is not None and last is not None and first > last:
            yield f"start_port {first} is beyond end_port {last}"
    handlers = port.handlers or ()
    for handler in handlers:
        if handler not in HANDLERS:
            yield f"handlers: {handler!r} is not one of {', '.join(HANDLERS)}"
    if protocol == "udp" and set(handlers) - _PASSED_OVER_FOR_UDP:
        yield "handlers are for tcp; of a udp service only tls is passed over"
    if port.force_https and not {"http", "edge_http"} & set(handlers):
        yield "force_https needs the http handler"
    yield from _tls(port.tls_options or TlsOptions())
    yield from _http(port.http_options or HttpOptions())
    version = port.proxy_proto_options.version if port.proxy_proto_options else None
    if version not in (None, "", "v1", "v2", "1", "2"):
        yield f"proxy_proto_options.version must be v1 or v2, not {version!r}"


def _tls(options: TlsOptions) -> Iterator[str]:
    for version in options.versions or ():
        if version not in TLS_VERSIONS:
            yield f"tls_options.versions: {version!r} is not one of {', '.join(TLS_VERSIONS)}"
    for protocol in options.alpn or ():
        if not 1 <= len(protocol.encode()) <= 255:
            yield "tls_options.alpn: a protocol's name has 1 to 255 bytes"


def _http(options: HttpOptions) -> Iterator[str]:
    yield from _amount("http_options.idle_timeout", options.idle_timeout, 0)
    yield from _amount("http_options.headers_read_timeout", options.headers_read_timeout, 0)
    headers = options.response.headers if options.response else None
    for name, value in (headers or {}).items():
        if not _FIELD_NAME.fullmatch(name):
            yield f"http_options.response.headers: {name!r:.80} is no name of a header"
        elif not may_set(name):
            yield f"http_options.response.headers: {name!r} frames the answer or its connection: leave it to the edge"
        elif not _is_header_value(value):
            yield (
                f"http_options.response.headers: {name!r} needs a text, a list of texts, or false,"
                " without control characters"
            )
    for cached in options.replay_cache or ():
        if not (cached.path_prefix or "").removeprefix("*").strip():
            yield "http_options.replay_cache: a rule needs a path_prefix"
        yield from _amount("http_options.replay_cache.ttl_seconds", cached.ttl_seconds, 0)
        if cached.type and not cached.name:
            yield f"http_options.replay_cache: a {cached.type} needs a name"


@lru_cache(1024)
def may_set(name: str) -> bool:
    """Whether an app may set the field of this name in its answers, or take it out."""
    return _FIELD_NAME.fullmatch(name) is not None and name.lower() not in _FRAMING


def _is_header_value(value: Any) -> bool:
    """A header is set to one text or several, or taken out by false."""
    texts = value if isinstance(value, list) else [value]
    return value is False or all(isinstance(text, str) and header_safe(text) for text in texts)


def _concurrency(limits: Concurrency) -> Iterator[str]:
    if limits.type not in (None, "", "connections", "requests"):
        yield f"type must be connections or requests, not {limits.type!r}"
    yield from _amount("soft_limit", limits.soft_limit, 0)
    yield from _amount("hard_limit", limits.hard_limit, 0)
    if limits.soft_limit and limits.hard_limit and limits.soft_limit > limits.hard_limit:
        yield f"soft_limit {limits.soft_limit} is above hard_limit {limits.hard_limit}"


def _amount(field: str, value: int | None, least: int) -> Iterator[str]:
    if value is not None and not least <= value <= MAX_LIMIT:
        yield f"{field} must be between {least} and {MAX_LIMIT}, not {value}"


def _taken_twice(given: tuple[Service, ...]) -> Iterator[str]:
    """A public port leads to one service."""
    reach: dict[str, int] = {}  # of a protocol, the last port that a range before this one has
    for protocol, first, last, where in sorted(_ranges(given)):
        if first <= reach.get(protocol, 0):
            yield f"{where}: {_span(first, last)} is another service's already"
        reach[protocol] = max(last, reach.get(protocol, 0))


def _ranges(given: tuple[Service, ...]) -> Iterator[tuple[str, int, int, str]]:
    for index, service in enumerate(given):
        for place, port in enumerate(service.ports or ()):
            first, last = port.port or port.start_port or 0, port.port or port.end_port or 0
            yield service.protocol or "tcp", first, last, f"services[{index}].ports[{place}]"


def _span(first: int, last: int) -> str:
    return f"port {first}" if first == last else f"ports {first} to {last}"


def statics(config: MachineConfig) -> Iterator[str]:
    if len(config.statics or ()) > MAX_STATICS:
        yield f"statics has more than {MAX_STATICS} items"
    for index, static in enumerate(config.statics or ()):
        yield from (f"statics[{index}].{complaint}" for complaint in _static(static))


def _static(static: Static) -> Iterator[str]:
    path, prefix = static.guest_path or "", static.url_prefix or ""
    if not path or "\0" in path or ".." in path.split("/"):
        yield f"guest_path is required, without .., not {path!r}"
    if not prefix.startswith("/") or not header_safe(prefix) or posixpath.normpath(prefix).startswith("//"):
        yield f"url_prefix must begin with one / and have no control characters, not {prefix!r}"
    if "/" in (static.index_document or ""):
        yield f"index_document is the name of a file, not a path: {static.index_document!r}"


def metrics(config: MachineConfig) -> Iterator[str]:
    """The complaints about the endpoint of metrics. Without a port there is no endpoint."""
    given = config.metrics
    if given is None or (given.port is None and not given.path and not given.https):
        return
    yield from (f"metrics.{complaint}" for complaint in port_complaints("port", given.port))
    if given.path and (not given.path.startswith("/") or not header_safe(given.path)):
        yield f"metrics.path must begin with / and have no control characters, not {given.path!r}"


def standbys(config: MachineConfig) -> Iterator[str]:
    """A spare takes the place of machines that nothing is routed to."""
    given = config.standbys or ()
    if not given:
        return
    if config.services:
        yield "standbys: a standby cannot have services"
    if len(given) > MAX_STANDBYS:
        yield f"standbys has more than {MAX_STANDBYS} items"
    for index, machine_id in enumerate(given):
        if not is_machine_id(machine_id):
            yield f"standbys[{index}] is not the id of a machine: {machine_id!r}"


# What is kept and not acted on: no complaint, but who gives it is told.


def kept_only(config: MachineConfig) -> Iterator[str]:
    """The sentences about what a config says and nobody acts on: it is kept, and without effect."""
    if config.statics:
        yield "statics are kept and not served"
    if not config.services and config.disable_machine_autostart is not None:
        yield "disable_machine_autostart is kept and without effect: the machine has no services"
    for service in config.services or ():
        if service.force_instance_key or service.force_instance_description:
            yield f"force_instance_key is kept and not acted on: port {service.internal_port}"
        for port in service.ports or ():
            yield from _kept_of_port(port)


def _kept_of_port(port: Port) -> Iterator[str]:
    number = port.port or port.start_port
    offered = (port.tls_options.alpn if port.tls_options else None) or ()
    if "http" in (port.handlers or ()) and set(offered) - {"h2", "http/1.1"}:
        yield f"port {number}: of tls_options.alpn only h2 and http/1.1 are offered to clients of the http handler"
