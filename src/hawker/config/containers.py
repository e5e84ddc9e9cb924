"""The shape of several containers in one machine. Field meanings: contract section 2; durations are whole seconds."""

from typing import Literal

from hawker.config.check import HttpHeader
from hawker.config.part import Part
from hawker.config.process import EnvFrom, File, MachineRestart, MachineSecret, StopConfig


class ContainerDependency(Part, frozen=True, kw_only=True):
    name: str | None = None
    condition: Literal["exited_successfully", "healthy", "started"] | None = None


class HttpHealthcheck(Part, frozen=True, kw_only=True):
    port: int | None = None
    method: str | None = None
    path: str | None = None
    scheme: Literal["http", "https"] | None = None
    headers: tuple[HttpHeader, ...] | None = None
    tls_skip_verify: bool | None = None
    tls_server_name: str | None = None


class TcpHealthcheck(Part, frozen=True, kw_only=True):
    port: int | None = None


class ExecHealthcheck(Part, frozen=True, kw_only=True):
    command: tuple[str, ...] | None = None


class ContainerHealthcheck(Part, frozen=True, kw_only=True):
    name: str | None = None
    interval: int | None = None
    grace_period: int | None = None
    timeout: int | None = None
    success_threshold: int | None = None
    failure_threshold: int | None = None
    kind: Literal["readiness", "liveness"] | None = None
    unhealthy: Literal["stop"] | None = None
    http: HttpHealthcheck | None = None
    tcp: TcpHealthcheck | None = None
    exec: ExecHealthcheck | None = None


class ContainerMount(Part, frozen=True, kw_only=True):
    name: str | None = None
    path: str | None = None


class Container(Part, frozen=True, kw_only=True):
    name: str | None = None
    image: str | None = None
    exec: tuple[str, ...] | None = None
    entrypoint: tuple[str, ...] | None = None
    cmd: tuple[str, ...] | None = None
    user: str | None = None
    env: dict[str, str] | None = None
    env_from: tuple[EnvFrom, ...] | None = None
    secrets: tuple[MachineSecret, ...] | None = None
    files: tuple[File, ...] | None = None
    restart: MachineRestart | None = None
    stop: StopConfig | None = None
    depends_on: tuple[ContainerDependency, ...] | None = None
    healthchecks: tuple[ContainerHealthcheck, ...] | None = None
    mounts: tuple[ContainerMount, ...] | None = None
