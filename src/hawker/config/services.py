"""The shape of a machine's services: what the edge will route to it. Field meanings: contract section 2."""

from typing import Any, ClassVar, Literal

import msgspec

from hawker.config.check import HttpHeader
from hawker.config.part import Part, TimedPart


class Concurrency(Part, frozen=True, kw_only=True):
    type: str | None = None
    soft_limit: int | None = None
    hard_limit: int | None = None


class TlsOptions(Part, frozen=True, kw_only=True):
    alpn: tuple[str, ...] | None = None
    versions: tuple[str, ...] | None = None
    default_self_signed: bool | None = None


class HttpResponseOptions(Part, frozen=True, kw_only=True):
    headers: dict[str, Any] | None = None
    pristine: bool | None = None


class ReplayCache(Part, frozen=True, kw_only=True):
    path_prefix: str | None = None
    ttl_seconds: int | None = None
    type: Literal["cookie", "header"] | None = None
    name: str | None = None
    allow_bypass: bool | None = None


class HttpOptions(Part, frozen=True, kw_only=True):
    compress: bool | None = None
    h2_backend: bool | None = None
    idle_timeout: int | None = None  # seconds
    headers_read_timeout: int | None = None  # seconds
    response: HttpResponseOptions | None = None
    replay_cache: tuple[ReplayCache, ...] | None = None


class ProxyProtoOptions(Part, frozen=True, kw_only=True):
    version: str | None = None


class Port(Part, frozen=True, kw_only=True):
    port: int | None = None
    start_port: int | None = None
    end_port: int | None = None
    handlers: tuple[str, ...] | None = None
    force_https: bool | None = None
    tls_options: TlsOptions | None = None
    http_options: HttpOptions | None = None
    proxy_proto_options: ProxyProtoOptions | None = None


class ServiceCheck(TimedPart, frozen=True, kw_only=True):
    durations: ClassVar[tuple[str, ...]] = ("interval", "timeout", "grace_period")

    type: str | None = None
    port: int | None = None
    interval: str | int | None = None
    timeout: str | int | None = None
    grace_period: str | int | None = None
    method: str | None = None
    path: str | None = None
    protocol: str | None = None
    tls_skip_verify: bool | None = None
    tls_server_name: str | None = None
    headers: tuple[HttpHeader, ...] | None = None


class Service(Part, frozen=True, kw_only=True):
    """`autostop` is kept as clients read it: false, true, or "suspend"."""

    protocol: str | None = None
    internal_port: int | None = None
    ports: tuple[Port, ...] | None = None
    concurrency: Concurrency | None = None
    autostart: bool | None = None
    autostop: bool | Literal["off", "stop", "suspend"] | None = None
    min_machines_running: int | None = None
    checks: tuple[ServiceCheck, ...] | None = None
    force_instance_key: str | None = None
    force_instance_description: str | None = None

    def __post_init__(self) -> None:
        if self.autostop in ("off", "stop"):
            msgspec.structs.force_setattr(self, "autostop", self.autostop == "stop")
