"""The whole config of a machine, with every field that the Machines API knows, so that each one is understood."""

from typing import Any, ClassVar, Literal

import msgspec

from hawker.config.duration import format_duration


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A group of optional fields. None means absent; anything that was given is kept, also an empty list or false."""


class TimedPart(Part, frozen=True, kw_only=True, omit_defaults=True):
    """A part with durations: a Go duration string, or integer nanoseconds, which are turned into a string."""

    durations: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name in self.durations:
            value = getattr(self, name)
            if isinstance(value, int):
                msgspec.structs.force_setattr(self, name, format_duration(value))


# The shape of a machine's size.


class Guest(Part, frozen=True, kw_only=True):
    cpu_kind: Literal["shared", "performance"] | None = None
    cpus: int | None = None
    memory_mb: int | None = None
    max_memory_mb: int | None = None
    gpu_kind: str | None = None
    gpus: int | None = None
    kernel_args: tuple[str, ...] | None = None
    host_dedication_id: str | None = None
    persist_rootfs: int | str | None = None
    required_host_features: tuple[str, ...] | None = None


class Spot(Part, frozen=True, kw_only=True):
    max_price_fraction: float | None = None


# The shape of what a machine stores its data on. Field meanings: contract section 2.


class Mount(Part, frozen=True, kw_only=True):
    volume: str | None = None
    name: str | None = None
    path: str | None = None
    size_gb: int | None = None
    encrypted: bool | None = None
    extend_threshold_percent: int | None = None
    add_size_gb: int | None = None
    add_size_percent: int | None = None
    min_add_size_gb: int | None = None
    size_gb_limit: int | None = None


class TempDir(Part, frozen=True, kw_only=True):
    storage_type: Literal["disk", "memory"] | None = None
    size_mb: int | None = None


class ContainerVolume(Part, frozen=True, kw_only=True):
    """A volume shared by the containers of one machine."""

    name: str | None = None
    temp_dir: TempDir | None = None
    image: str | None = None


class RootfsConfig(Part, frozen=True, kw_only=True):
    persist: Literal["never", "restart", "always"] | None = None
    size_gb: int | None = None


class CacheDrive(Part, frozen=True, kw_only=True):
    size_mb: int | None = None


# The shape of a machine's names, metrics and static files.


class DnsOption(Part, frozen=True, kw_only=True):
    name: str | None = None
    value: str | None = None


class DnsForwardRule(Part, frozen=True, kw_only=True):
    basename: str | None = None
    addr: str | None = None


class DnsConfig(Part, frozen=True, kw_only=True):
    skip_registration: bool | None = None
    nameservers: tuple[str, ...] | None = None
    searches: tuple[str, ...] | None = None
    options: tuple[DnsOption, ...] | None = None
    dns_forward_rules: tuple[DnsForwardRule, ...] | None = None
    hostname: str | None = None
    hostname_fqdn: str | None = None


class Metrics(Part, frozen=True, kw_only=True):
    port: int | None = None
    path: str | None = None
    https: bool | None = None


class Static(Part, frozen=True, kw_only=True):
    guest_path: str | None = None
    url_prefix: str | None = None
    tigris_bucket: str | None = None
    index_document: str | None = None


# The shape of a machine's own checks.


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


# The shape of what runs in a machine: commands, files, and what follows their end.


class EnvFrom(Part, frozen=True, kw_only=True):
    env_var: str | None = None
    field_ref: Literal["id", "version", "app_name", "private_ip", "region", "image"] | None = None


class MachineSecret(Part, frozen=True, kw_only=True):
    env_var: str | None = None
    name: str | None = None


class Init(Part, frozen=True, kw_only=True):
    """Replaces parts of the image's command: `exec` all of it, `entrypoint` and `cmd` each their own part. `tty` gives
    it a terminal; `stdin` keeps its input open for clients that attach, where without it has none."""

    exec: tuple[str, ...] | None = None
    entrypoint: tuple[str, ...] | None = None
    cmd: tuple[str, ...] | None = None
    tty: bool | None = None
    stdin: bool | None = None
    swap_size_mb: int | None = None
    kernel_args: tuple[str, ...] | None = None


class MachineProcess(Part, frozen=True, kw_only=True):
    exec: tuple[str, ...] | None = None
    entrypoint: tuple[str, ...] | None = None
    cmd: tuple[str, ...] | None = None
    env: dict[str, str] | None = None
    user: str | None = None
    secrets: tuple[MachineSecret, ...] | None = None
    ignore_app_secrets: bool | None = None
    env_from: tuple[EnvFrom, ...] | None = None


class File(Part, frozen=True, kw_only=True):
    """Written before the first process starts. `raw_value` is base64, `mode` the bits of chmod(2). `digest` names what
    was uploaded for the app (`sha256:...`), and `size` says how many bytes that has."""

    guest_path: str | None = None
    raw_value: str | None = None
    secret_name: str | None = None
    image_config: str | None = None
    digest: str | None = None
    size: int | None = None
    mode: int | None = None


class MachineRestart(Part, frozen=True, kw_only=True):
    policy: Literal["no", "always", "on-failure", "spot-price"] | None = None
    max_retries: int | None = None
    gpu_bid_price: float | None = None


class StopConfig(TimedPart, frozen=True, kw_only=True):
    durations: ClassVar[tuple[str, ...]] = ("timeout",)

    signal: str | None = None
    timeout: str | int | None = None


# The shape of a machine's services: what the edge will route to it. Field meanings: contract section 2.


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


# The shape of several containers in one machine. Field meanings: contract section 2; durations are whole seconds.


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


# What every struct of a config has in common: no field is required, and an absent one stays absent.


class MachineConfig(Part, frozen=True, kw_only=True):
    """What a user orders. A field that is understood but not served yet is refused by name, never dropped."""

    image: str | None = None
    env: dict[str, str] | None = None
    init: Init | None = None
    guest: Guest | None = None
    size: str | None = None
    metadata: dict[str, str] | None = None
    files: tuple[File, ...] | None = None
    processes: tuple[MachineProcess, ...] | None = None
    checks: dict[str, MachineCheck] | None = None
    restart: MachineRestart | None = None
    stop_config: StopConfig | None = None
    auto_destroy: bool | None = None
    services: tuple[Service, ...] | None = None
    mounts: tuple[Mount, ...] | None = None
    rootfs: RootfsConfig | None = None
    cache_drive: CacheDrive | None = None
    containers: tuple[Container, ...] | None = None
    volumes: tuple[ContainerVolume, ...] | None = None
    schedule: Literal["hourly", "daily", "weekly", "monthly"] | None = None
    standbys: tuple[str, ...] | None = None
    dns: DnsConfig | None = None
    metrics: Metrics | None = None
    statics: tuple[Static, ...] | None = None
    spot: Spot | None = None
    disable_machine_autostart: bool | None = None
