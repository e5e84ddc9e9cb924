"""What a health check must satisfy, whether it is the machine's own or one of a service. Pure; yields complaints."""

from collections.abc import Iterator

from hawker.config.check import HttpHeader, MachineCheck
from hawker.config.duration import duration_complaints
from hawker.config.services import ServiceCheck

MAX_CHECKS = 64
_TYPES = ("tcp", "http")
_PROTOCOLS = ("http", "https")


def check_complaints(check: MachineCheck | ServiceCheck) -> Iterator[str]:
    """Each opens with the field's name. The port of a service's check is the service's unless it names one."""
    if check.type not in _TYPES:
        yield f"type is required: {' or '.join(_TYPES)}"
    if check.port is not None or isinstance(check, MachineCheck):
        yield from port_complaints("port", check.port)
    yield from duration_complaints("interval", check.interval, 1.0, 86_400.0)
    yield from duration_complaints("timeout", check.timeout, 0.001, 300.0)
    yield from duration_complaints("grace_period", check.grace_period, 0.0, 86_400.0)
    if not (check.method or "GET").isalpha():
        yield f"method is not an HTTP method: {check.method!r}"
    if check.path and (not check.path.startswith("/") or not header_safe(check.path)):
        yield f"path must begin with / and have no control characters, not {check.path!r}"
    if (check.protocol or "http") not in _PROTOCOLS:
        yield f"protocol must be {' or '.join(_PROTOCOLS)}, not {check.protocol!r}"
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
    """Whether it can be part of a request without making another one of it."""
    return text.isprintable()
