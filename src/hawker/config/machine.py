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
    cpus: int | None = None  # 1 to 1024; absent: 1
    memory_mb: int | None = None  # MiB, 32 to 16777216; absent: 256 for each shared cpu, 2048 for each dedicated one
    max_memory_mb: int | None = None
    """The MiB that the machine may be grown to while it runs, from what it has to 16777216; absent: it may not."""
    gpu_kind: str | None = None  # small letters, digits and dashes; absent: no GPU
    gpus: int | None = None  # devices of that kind; absent: 1
    kernel_args: tuple[str, ...] | None = None
    """The arguments of a microVM's kernel, beside the node's own; those of `init` come with them."""
    host_dedication_id: str | None = None  # refused: hosts are not dedicated
    persist_rootfs: int | str | None = None
    """The older way to say `rootfs.persist`: by its name, or 0 and 1 for never, 2 and 3 for the others."""
    required_host_features: tuple[str, ...] | None = None  # refused: hosts declare none


class Spot(Part, frozen=True, kw_only=True):
    """Refused with a `max_price_fraction`: there is no spot price."""

    max_price_fraction: float | None = None


# The shape of what a machine stores its data on. Field meanings: contract section 2.


class Mount(Part, frozen=True, kw_only=True):
    volume: str | None = None
    """Id of a volume of the app."""
    name: str | None = None
    """The name of a volume that no machine has, in place of `volume`."""
    path: str | None = None
    """Absolute, at most 1024 characters, below the root."""
    size_gb: int | None = None
    """The GiB that the volume has to have; absent or 0: any size."""
    encrypted: bool | None = None
    """True: the volume has to be encrypted."""
    extend_threshold_percent: int | None = None
    """The percentage of the volume, 1 to 99, that is used when it is extended; absent or 0: never."""
    add_size_gb: int | None = None
    """The GiB that the volume is extended by each time."""
    add_size_percent: int | None = None  # refused: a volume grows by GiB
    min_add_size_gb: int | None = None  # refused, too
    size_gb_limit: int | None = None
    """The GiB up to which the volume is extended; absent or 0: what its node lets a volume have."""


class TempDir(Part, frozen=True, kw_only=True):
    storage_type: Literal["disk", "memory"] | None = None
    size_mb: int | None = None
    """The size in MiB, 1 or more; in memory no more than the machine has."""


class ContainerVolume(Part, frozen=True, kw_only=True):
    """A volume shared by the containers of one machine."""

    name: str | None = None  # by which containers mount it, unique in the machine
    temp_dir: TempDir | None = None
    image: str | None = None  # refused: they share temporary directories alone


class RootfsConfig(Part, frozen=True, kw_only=True):
    persist: Literal["never", "restart", "always"] | None = None
    size_gb: int | None = None
    """The GiB that the machine may write to it, 1 to 500; absent or 0: what its node gives to each."""


class CacheDrive(Part, frozen=True, kw_only=True):
    """Refused with a `size_mb`: there are no cache drives."""

    size_mb: int | None = None


# The shape of a machine's names, metrics and static files.


class DnsOption(Part, frozen=True, kw_only=True):
    """An option of resolv.conf(5): `ndots` as `name`, `2` as `value`, say."""

    name: str | None = None
    value: str | None = None


class DnsForwardRule(Part, frozen=True, kw_only=True):
    """Refused: names below `basename` are not asked of a server `addr`."""

    basename: str | None = None
    addr: str | None = None


class DnsConfig(Part, frozen=True, kw_only=True):
    skip_registration: bool | None = None
    """Names of the app do not lead to the machine."""
    nameservers: tuple[str, ...] | None = None
    """IP addresses; absent: the node's own resolver."""
    searches: tuple[str, ...] | None = None
    """Domain names; absent: those of the platform."""
    options: tuple[DnsOption, ...] | None = None
    dns_forward_rules: tuple[DnsForwardRule, ...] | None = None
    hostname: str | None = None
    """The machine's host name, one label; absent: the machine's id."""
    hostname_fqdn: str | None = None
    """A whole domain name, which the machine has beside."""


class Metrics(Part, frozen=True, kw_only=True):
    port: int | None = None  # 1 to 65535; absent: nothing is asked
    path: str | None = None  # from the slash; absent: `/metrics`
    https: bool | None = None  # asked over HTTPS; any certificate will do


class Static(Part, frozen=True, kw_only=True):
    """Kept, and not served: what is at `guest_path` of the image, for requests below `url_prefix`; in place of a
    directory its `index_document`; with `tigris_bucket` it is there and not in the image."""

    guest_path: str | None = None
    url_prefix: str | None = None
    tigris_bucket: str | None = None
    index_document: str | None = None


# The shape of a machine's own checks.


class HttpHeader(Part, frozen=True, kw_only=True):
    """A header with one line for each of `values`; `name` and values are printable."""

    name: str | None = None
    values: tuple[str, ...] | None = None


class MachineCheck(TimedPart, frozen=True, kw_only=True):
    durations: ClassVar[tuple[str, ...]] = ("interval", "timeout", "grace_period")

    type: Literal["tcp", "http"] | None = None
    port: int | None = None
    """The port, 1 to 65535."""
    interval: str | int | None = None
    """The time from the end of one look to the next, 1 s to a day; absent: 15 s. A number is nanoseconds."""
    timeout: str | int | None = None
    """The time after which a look has failed, up to 60 s; absent: 10 s."""
    grace_period: str | int | None = None
    """The time from a start in which failures are not told, up to a day; absent: 5 s."""
    method: str | None = None
    """The method of HTTP; absent: GET."""
    path: str | None = None
    """The path, from the slash; absent: `/`."""
    protocol: Literal["http", "https"] | None = None
    tls_skip_verify: bool | None = None
    """Any certificate will do."""
    tls_server_name: str | None = None
    """The name for which the certificate must be; absent: the address's."""
    headers: tuple[HttpHeader, ...] | None = None
    kind: Literal["informational", "readiness"] | None = None


# The shape of what runs in a machine: commands, files, and what follows their end.


class EnvFrom(Part, frozen=True, kw_only=True):
    """The variable `env_var` with a fact about the machine."""

    env_var: str | None = None
    field_ref: Literal["id", "version", "app_name", "private_ip", "region", "image"] | None = None


class MachineSecret(Part, frozen=True, kw_only=True):
    """The variable `env_var` with the secret `name` of the app; absent: the secret of the name of the variable."""

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
    """The size of the swap space in MiB, 0 to 65536; absent: none."""
    kernel_args: tuple[str, ...] | None = None
    """The arguments of a microVM's kernel, beside the node's own."""


class MachineProcess(Part, frozen=True, kw_only=True):
    exec: tuple[str, ...] | None = None
    """The whole command; the image's and the machine's count for nothing."""
    entrypoint: tuple[str, ...] | None = None
    """The entrypoint, in place of the image's."""
    cmd: tuple[str, ...] | None = None
    """The command, in place of the image's."""
    env: dict[str, str] | None = None
    """Variables beside the machine's, and before them."""
    user: str | None = None
    """The user, in place of the image's."""
    secrets: tuple[MachineSecret, ...] | None = None
    ignore_app_secrets: bool | None = None
    """The process gets only those of the app's secrets that `secrets` names."""
    env_from: tuple[EnvFrom, ...] | None = None


class File(Part, frozen=True, kw_only=True):
    """Written before the first process starts. `raw_value` is base64, `mode` the bits of chmod(2). `digest` names what
    was uploaded for the app (`sha256:...`), and `size` says how many bytes that has."""

    guest_path: str | None = None
    """Absolute, without `.` and `..`."""
    raw_value: str | None = None
    secret_name: str | None = None
    """A secret of the app whose base64 text is the content."""
    image_config: str | None = None
    """The name of an image of the machine: the content is its config."""
    digest: str | None = None
    size: int | None = None
    mode: int | None = None


class MachineRestart(Part, frozen=True, kw_only=True):
    policy: Literal["no", "always", "on-failure", "spot-price"] | None = None
    max_retries: int | None = None
    """Starts again after failures in a row, 0 to 1000000; absent: 10. Of `on-failure` only."""
    gpu_bid_price: float | None = None  # refused: there is no spot price


class StopConfig(TimedPart, frozen=True, kw_only=True):
    durations: ClassVar[tuple[str, ...]] = ("timeout",)

    signal: str | None = None
    """The signal's name or number; absent: SIGINT."""
    timeout: str | int | None = None
    """The time until SIGKILL, up to 300 s; absent: 5 s. A number is nanoseconds."""


# The shape of a machine's services: what the edge will route to it. Field meanings: contract section 2.


class Concurrency(Part, frozen=True, kw_only=True):
    type: str | None = None
    """The thing that is counted: `connections` or `requests`."""
    soft_limit: int | None = None
    """The number from which other machines are taken first; 0 to 1000000."""
    hard_limit: int | None = None
    """The most at once, no less than `soft_limit`; absent or 0: no limit."""


class TlsOptions(Part, frozen=True, kw_only=True):
    alpn: tuple[str, ...] | None = None
    """Protocols that are offered; of an HTTP port h2 and http/1.1 alone count."""
    versions: tuple[str, ...] | None = None
    """The versions that are spoken, `TLSv1.2`, `TLSv1.3`; absent: both."""
    default_self_signed: bool | None = None
    """The edge shows a certificate signed by itself for names without one."""


class HttpResponseOptions(Part, frozen=True, kw_only=True):
    headers: dict[str, Any] | None = None
    pristine: bool | None = None  # the edge adds no fields of its own


class ReplayCache(Part, frozen=True, kw_only=True):
    path_prefix: str | None = None
    """The beginning of the paths that it is for; a star at its end says no more."""
    ttl_seconds: int | None = None
    """The seconds for which a replay is kept, 10 to 86400; what is out of that counts as the nearer end."""
    type: Literal["cookie", "header"] | None = None
    name: str | None = None
    """The name of the cookie or field that tells sessions apart."""
    allow_bypass: bool | None = None
    """A client may ask for its request not to be answered from it."""


class HttpOptions(Part, frozen=True, kw_only=True):
    compress: bool | None = None  # answers are compressed for clients that take it
    h2_backend: bool | None = None  # the machine is spoken to in HTTP/2, without TLS
    idle_timeout: int | None = None  # seconds
    headers_read_timeout: int | None = None  # seconds
    response: HttpResponseOptions | None = None
    replay_cache: tuple[ReplayCache, ...] | None = None


class ProxyProtoOptions(Part, frozen=True, kw_only=True):
    version: str | None = None
    """The version of the protocol, `v1` or `v2`, also without the letter; absent: v1."""


class Port(Part, frozen=True, kw_only=True):
    port: int | None = None
    """The port at the host, 1 to 65535."""
    start_port: int | None = None  # in place of `port`: the first of a range
    end_port: int | None = None  # the last of it, no less
    handlers: tuple[str, ...] | None = None
    """The handlers of a connection in the edge: `tls`, `http` and so on; none: it is passed on as it is."""
    force_https: bool | None = None
    """Plain requests are answered with where HTTPS is."""
    tls_options: TlsOptions | None = None
    http_options: HttpOptions | None = None
    proxy_proto_options: ProxyProtoOptions | None = None


class ServiceCheck(TimedPart, frozen=True, kw_only=True):
    """`interval`, `timeout`, `grace_period`, `method`, `path`, `protocol`, `tls_skip_verify` and `tls_server_name` are
    as in a `MachineCheck`."""

    durations: ClassVar[tuple[str, ...]] = ("interval", "timeout", "grace_period")

    type: str | None = None
    """The kind of check, `tcp` or `http`."""
    port: int | None = None
    """The port, 1 to 65535; absent: the service's."""
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
    """`autostop` is kept as clients read it: false, true, or "suspend". `force_instance_key` and
    `force_instance_description` are kept, and not acted on."""

    protocol: str | None = None
    """The protocol, `tcp` or `udp`; absent: tcp."""
    internal_port: int | None = None
    """The port in the machine, 1 to 65535."""
    ports: tuple[Port, ...] | None = None
    concurrency: Concurrency | None = None
    autostart: bool | None = None
    """A request starts the machine when it is off."""
    autostop: bool | Literal["off", "stop", "suspend"] | None = None
    min_machines_running: int | None = None
    """The machines of the service on its host that are not let rest for want of requests: 0 to 1000000, absent: 0."""
    checks: tuple[ServiceCheck, ...] | None = None
    force_instance_key: str | None = None
    force_instance_description: str | None = None

    def __post_init__(self) -> None:
        if self.autostop in ("off", "stop"):
            msgspec.structs.force_setattr(self, "autostop", self.autostop == "stop")


# The shape of several containers in one machine. Field meanings: contract section 2; durations are whole seconds.


class ContainerDependency(Part, frozen=True, kw_only=True):
    name: str | None = None  # of another container of the machine
    condition: Literal["exited_successfully", "healthy", "started"] | None = None


class HttpHealthcheck(Part, frozen=True, kw_only=True):
    port: int | None = None  # 1 to 65535
    method: str | None = None  # absent: GET
    path: str | None = None  # from the slash; absent: `/`
    scheme: Literal["http", "https"] | None = None
    headers: tuple[HttpHeader, ...] | None = None
    tls_skip_verify: bool | None = None  # any certificate will do
    tls_server_name: str | None = None  # whose certificate is wanted; absent: the address's


class TcpHealthcheck(Part, frozen=True, kw_only=True):
    port: int | None = None  # 1 to 65535


class ExecHealthcheck(Part, frozen=True, kw_only=True):
    command: tuple[str, ...] | None = None  # runs in the container; passes when it ends with 0


class ContainerHealthcheck(Part, frozen=True, kw_only=True):
    name: str | None = None  # at most 64 characters; absent: made of the container's and its place
    interval: int | None = None  # seconds, 1 to 86400; absent or 0: 15
    grace_period: int | None = None  # seconds from a start until it is first asked, 0 to 86400; absent: 0
    timeout: int | None = None  # seconds, 1 to 60; absent or 0: 10
    success_threshold: int | None = None  # good answers in a row that make it pass, 1 to 100; absent or 0: 1
    failure_threshold: int | None = None  # bad answers in a row that make it fail, 1 to 100; absent or 0: 3
    kind: Literal["readiness", "liveness"] | None = None
    unhealthy: Literal["stop"] | None = None
    http: HttpHealthcheck | None = None
    tcp: TcpHealthcheck | None = None
    exec: ExecHealthcheck | None = None


class ContainerMount(Part, frozen=True, kw_only=True):
    name: str | None = None  # of a shared volume of the machine
    path: str | None = None  # absolute, in the container


class Container(Part, frozen=True, kw_only=True):
    name: str | None = None  # up to 16 small letters, digits and dashes, unique in the machine
    image: str | None = None  # absent: the machine's
    exec: tuple[str, ...] | None = None  # the whole command; the image's counts for nothing
    entrypoint: tuple[str, ...] | None = None  # in place of the image's
    cmd: tuple[str, ...] | None = None  # in place of the image's
    user: str | None = None  # in place of the image's
    env: dict[str, str] | None = None  # variables beside the machine's, and before them
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
    """The config of a machine, as a user orders it. A field that is understood but not served yet is refused by name,
    never dropped."""

    image: str | None = None
    """A reference of at most 1024 characters; with containers that of those that name none."""
    env: dict[str, str] | None = None
    """The names and values of variables, at most 128 KiB."""
    init: Init | None = None
    guest: Guest | None = None
    size: str | None = None
    """A size by name, `shared-cpu-2x` say, in place of `guest`."""
    metadata: dict[str, str] | None = None
    """The keys and values, at most 64 KiB; some keys have a meaning for the platform."""
    files: tuple[File, ...] | None = None
    processes: tuple[MachineProcess, ...] | None = None
    checks: dict[str, MachineCheck] | None = None
    restart: MachineRestart | None = None
    stop_config: StopConfig | None = None
    auto_destroy: bool | None = None
    """The machine is destroyed when it has ended and is not started again."""
    services: tuple[Service, ...] | None = None
    mounts: tuple[Mount, ...] | None = None
    rootfs: RootfsConfig | None = None
    cache_drive: CacheDrive | None = None
    containers: tuple[Container, ...] | None = None
    volumes: tuple[ContainerVolume, ...] | None = None
    schedule: Literal["hourly", "daily", "weekly", "monthly"] | None = None
    standbys: tuple[str, ...] | None = None
    """The ids, at most 16, of machines that this one, which is off, takes the place of when their host is lost."""
    dns: DnsConfig | None = None
    metrics: Metrics | None = None
    statics: tuple[Static, ...] | None = None
    spot: Spot | None = None
    disable_machine_autostart: bool | None = None
    """No request starts it, whatever its services say."""
