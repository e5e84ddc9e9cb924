"""The shape of a machine's own checks."""

from typing import ClassVar, Literal

from hawker.config.part import Part, TimedPart


class HttpHeader(Part, frozen=True, kw_only=True):
    name: str | None = None
    values: tuple[str, ...] | None = None


class MachineCheck(TimedPart, frozen=True, kw_only=True):
    durations: ClassVar[tuple[str, ...]] = ("interval", "timeout", "grace_period")

    type: Literal["tcp", "http"] | None = None
    port: int | None = None
    interval: str | int | None = None
    timeout: str | int | None = None
    grace_period: str | int | None = None
    method: str | None = None
    path: str | None = None
    protocol: Literal["http", "https"] | None = None
    tls_skip_verify: bool | None = None
    tls_server_name: str | None = None
    headers: tuple[HttpHeader, ...] | None = None
    kind: Literal["informational", "readiness"] | None = None
