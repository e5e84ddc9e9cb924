"""What a fly.toml says, typed: every section of the current format. None is absent; durations are Go's texts, sizes are
MiB or GB. Keys that are known and refused are not here: `reader` names them. Older spellings are changed there, too."""

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from hawker.config.machine import Concurrency, HttpOptions, Part, ProxyProtoOptions, TlsOptions
from hawker.flytoml.shape import Spelling

Text: TypeAlias = Annotated[str, msgspec.Meta(extra={"spelling": Spelling.TEXT})]
Command: TypeAlias = Annotated[tuple[str, ...], msgspec.Meta(extra={"spelling": Spelling.COMMAND})]
Seconds: TypeAlias = Annotated[str, msgspec.Meta(extra={"spelling": Spelling.SECONDS})]
Millis: TypeAlias = Annotated[str, msgspec.Meta(extra={"spelling": Spelling.MILLIS})]
Mib: TypeAlias = Annotated[int, msgspec.Meta(extra={"spelling": Spelling.MIB})]
Gb: TypeAlias = Annotated[int, msgspec.Meta(extra={"spelling": Spelling.GB})]
Groups: TypeAlias = tuple[str, ...] | None
"""Process groups that a section is for. One that names none is for the default group, but `[[vm]]` and `[[restart]]`
are for all."""


class BuildSection(Part, frozen=True, kw_only=True):
    """`image` is a reference. What asks for a build is understood, and needs an image beside it."""

    image: str | None = None
    dockerfile: str | None = None
    ignorefile: str | None = None
    build_target: str | None = msgspec.field(default=None, name="build-target")
    args: dict[str, Text] | None = None
    compression: str | None = None
    compression_level: int | None = None


class VmSize(Part, frozen=True, kw_only=True):
    """`size` is a preset such as shared-cpu-1x; the others replace parts of it. `memory` is MiB, and `memory_mb` wins
    over it; the others are those of a machine's `guest`."""

    size: str | None = None
    memory: Mib | None = None
    memory_mb: int | None = None
    max_memory_mb: int | None = None
    cpus: int | None = None
    cpu_kind: Literal["shared", "performance"] | None = None
    gpu_kind: str | None = None
    gpus: int | None = None
    kernel_args: tuple[str, ...] | None = None
    persist_rootfs: Text | None = None
    processes: Groups = None

    @property
    def memory_mib(self) -> int | None:
        """What the file says of it; 0 says nothing."""
        return self.memory_mb or self.memory


class Deploy(Part, frozen=True, kw_only=True):
    """`max_unavailable` is a count from 1 on, a share below it."""

    strategy: Literal["rolling", "canary", "bluegreen", "immediate"] | None = None
    max_unavailable: float | None = None
    wait_timeout: Seconds | None = None
    release_command: Command | None = None
    release_command_timeout: Seconds | None = None
    release_command_vm: VmSize | None = None
    seed_command: Command | None = None


class MountSection(Part, frozen=True, kw_only=True):
    """One for each group. `initial_size` and the two last are GB, the threshold percent, the retention days."""

    source: str | None = None
    destination: str | None = None
    initial_size: Gb | None = None
    snapshot_retention: int | None = None
    scheduled_snapshots: bool | None = None
    auto_extend_size_threshold: int | None = None
    auto_extend_size_increment: Gb | None = None
    auto_extend_size_limit: Gb | None = None
    processes: Groups = None


class SmokeTest(Part, frozen=True, kw_only=True):
    """A machine that runs `command` against a new one, and must exit with 0."""

    command: Command | None = None
    entrypoint: Command | None = None
    image: str | None = None
    kill_signal: str | None = None
    kill_timeout: Seconds | None = None


class CheckSection(Part, frozen=True, kw_only=True):
    """A check of a service. `type`, `port` and `processes` are for `[checks]` alone."""

    type: Literal["tcp", "http"] | None = None
    port: int | None = None
    interval: Millis | None = None
    timeout: Millis | None = None
    grace_period: Millis | None = None
    method: str | None = None
    path: str | None = None
    protocol: str | None = None
    tls_skip_verify: bool | None = None
    tls_server_name: str | None = None
    headers: dict[str, Text] | None = None
    processes: Groups = None


class ServicePort(Part, frozen=True, kw_only=True):
    port: int | None = None
    start_port: int | None = None
    end_port: int | None = None
    handlers: tuple[str, ...] | None = None
    force_https: bool | None = None
    tls_options: TlsOptions | None = None
    http_options: HttpOptions | None = None
    proxy_proto_options: ProxyProtoOptions | None = None


AutoStop: TypeAlias = bool | Literal["off", "stop", "suspend"]


class HttpService(Part, frozen=True, kw_only=True):
    """Ports 80 (http) and 443 (http and tls) of one port of the machine."""

    internal_port: int | None = None
    force_https: bool | None = None
    auto_stop_machines: Any = None  # an `AutoStop`
    auto_start_machines: bool | None = None
    min_machines_running: int | None = None
    concurrency: Concurrency | None = None
    tls_options: TlsOptions | None = None
    http_options: HttpOptions | None = None
    checks: tuple[CheckSection, ...] | None = None
    machine_checks: tuple[SmokeTest, ...] | None = None
    processes: Groups = None


class ServiceSection(Part, frozen=True, kw_only=True):
    protocol: str | None = None
    internal_port: int | None = None
    auto_stop_machines: Any = None  # an `AutoStop`
    auto_start_machines: bool | None = None
    min_machines_running: int | None = None
    ports: tuple[ServicePort, ...] | None = None
    concurrency: Concurrency | None = None
    tcp_checks: tuple[CheckSection, ...] | None = None
    http_checks: tuple[CheckSection, ...] | None = None
    machine_checks: tuple[SmokeTest, ...] | None = None
    processes: Groups = None


class FileSection(Part, frozen=True, kw_only=True):
    """`raw_value` is base64, and empty for an empty file; `local_path` a file beside the document, which the command
    reads."""

    guest_path: str | None = None
    local_path: str | None = None
    raw_value: str | None = None
    secret_name: str | None = None
    mode: int | None = None
    processes: Groups = None

    @property
    def is_none(self) -> bool:
        """Whether its source is there and empty: the image's own file stays as it is."""
        return self.raw_value is None and not self.local_path and not self.secret_name


class RestartSection(Part, frozen=True, kw_only=True):
    policy: Literal["always", "on-failure", "never", "no"] | None = None
    retries: int | None = None
    processes: Groups = None


class MetricsSection(Part, frozen=True, kw_only=True):
    port: int | None = None
    path: str | None = None
    https: bool | None = None
    processes: Groups = None


class StaticSection(Part, frozen=True, kw_only=True):
    guest_path: str | None = None
    url_prefix: str | None = None
    index_document: str | None = None


class Experimental(Part, frozen=True, kw_only=True):
    """`cmd`, `entrypoint` and `exec` replace parts of the image's command."""

    cmd: Command | None = None
    entrypoint: Command | None = None
    exec: Command | None = None
    auto_rollback: bool | None = None


class HawkerDeploy(Part, frozen=True, kw_only=True):
    """Ours alone; other readers of the file pass it over."""

    rollback: bool | None = None
    waves: tuple[tuple[str, ...], ...] | None = None
    bake: Seconds | None = None
    smoke: Seconds | None = None
    smoke_rest: Seconds | None = None
    surge: bool | None = None
    unreachable: Literal["skip", "fail"] | None = None
    keep_blue: Seconds | None = None


class HawkerSection(Part, frozen=True, kw_only=True):
    deploy: HawkerDeploy | None = None


class AppConfig(Part, frozen=True, kw_only=True):
    """The whole document."""

    app: str | None = None
    primary_region: str | None = None
    kill_signal: str | None = None
    kill_timeout: Seconds | None = None
    swap_size_mb: int | None = None
    console_command: str | None = None
    build: BuildSection | None = None
    deploy: Deploy | None = None
    env: dict[str, Text] | None = None
    processes: dict[str, Command] | None = None
    mounts: tuple[MountSection, ...] | None = None
    http_service: HttpService | None = None
    services: tuple[ServiceSection, ...] | None = None
    checks: dict[str, CheckSection] | None = None
    machine_checks: tuple[SmokeTest, ...] | None = None
    files: tuple[FileSection, ...] | None = None
    vm: tuple[VmSize, ...] | None = None
    restart: tuple[RestartSection, ...] | None = None
    metrics: tuple[MetricsSection, ...] | None = None
    statics: tuple[StaticSection, ...] | None = None
    experimental: Experimental | None = None
    hawker: HawkerSection | None = None

    @property
    def groups(self) -> tuple[str, ...]:
        """Process groups, in the file's order; `app` where it names none."""
        return tuple(self.processes or {}) or ("app",)

    @property
    def default_group(self) -> str:
        """`app`, or the first by name where no group is called so."""
        return "app" if "app" in self.groups else min(self.groups)
