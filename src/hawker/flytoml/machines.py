"""An app's config into one machine config for each process group, with the meaning that fly.toml has elsewhere: with
another client the machines are the same. Pure; what does not fit the machine's rules, `reader` reports."""

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from hawker.config.duration import parse_duration
from hawker.config.effective import PRESETS
from hawker.config.effective import guest as size_of
from hawker.config.machine import (
    File,
    Guest,
    HttpHeader,
    Init,
    MachineCheck,
    MachineConfig,
    MachineRestart,
    Metrics,
    Mount,
    Part,
    Port,
    RootfsConfig,
    Service,
    ServiceCheck,
    Static,
    StopConfig,
)
from hawker.flytoml.app_config import (
    AppConfig,
    CheckSection,
    FileSection,
    HttpService,
    MountSection,
    RestartSection,
    ServiceSection,
    VmSize,
)

T = TypeVar("T")
P = TypeVar("P", bound=Part)
G = TypeVar("G", VmSize, RestartSection)

GROUP = "fly_process_group"
PLATFORM = {"fly_platform_version": "v2"}
LEAST_CHECK_S, MOST_CHECK_S = 1.0, 60.0


def machine_configs(
    config: AppConfig, image: str | None = None, local: Mapping[str, bytes] | None = None
) -> dict[str, MachineConfig]:
    """By process group. `image` wins over that of the file; without either the field is absent. `local` has the content
    of each `local_path`; a file that is not among them is left without content."""
    chosen = image or (config.build.image if config.build else None)
    return {group: _machine(config, group, chosen, local or {}) for group in config.groups}


def of_group(section: Any, group: str, config: AppConfig) -> bool:
    """Whether a section with `processes` is for that group; one that names none is for the default group."""
    return group in (section.processes or (config.default_group,))


def _machine(config: AppConfig, group: str, image: str | None, local: Mapping[str, bytes]) -> MachineConfig:
    metrics = next(iter(_mine(config.metrics, group, config)), None)
    restart = _for(config.restart, group)
    return MachineConfig(
        image=image,
        env=_env(config, group),
        init=_init(config, group),
        guest=_guest(_for(config.vm, group)),
        metadata={**PLATFORM, GROUP: group},
        files=tuple(_file(file, local) for file in _mine(config.files, group, config) if not file.is_none) or None,
        checks=_checks(config, group),
        restart=None if restart is None else _restart(restart.policy, restart.retries),
        stop_config=_stop(config),
        services=tuple(_services(config, group)) or None,
        mounts=tuple(_mount(volume) for volume in _mine(config.mounts, group, config)) or None,
        metrics=None if metrics is None else Metrics(port=metrics.port, path=metrics.path, https=metrics.https),
        statics=tuple(
            Static(guest_path=each.guest_path, url_prefix=each.url_prefix, index_document=each.index_document)
            for each in config.statics or ()
        )
        or None,
    )


def _mine(sections: Iterable[T] | None, group: str, config: AppConfig) -> Iterator[T]:
    return (section for section in sections or () if of_group(section, group, config))


def _file(given: FileSection, local: Mapping[str, bytes]) -> File:
    raw = local.get(given.local_path) if given.local_path else None
    value = given.raw_value if raw is None else b64encode(raw).decode()
    return File(guest_path=given.guest_path, raw_value=value, secret_name=given.secret_name, mode=given.mode)


def _env(config: AppConfig, group: str) -> dict[str, str]:
    region = {"PRIMARY_REGION": config.primary_region} if config.primary_region else {}
    return {**(config.env or {}), **region, "FLY_PROCESS_GROUP": group}


def _init(config: AppConfig, group: str) -> Init | None:
    """The group's command replaces that of `[experimental]`, and both that of the image."""
    given = config.experimental
    init = Init(
        exec=given.exec if given else None,
        entrypoint=given.entrypoint if given else None,
        cmd=(config.processes or {}).get(group) or (given.cmd if given else None),
        swap_size_mb=config.swap_size_mb,
    )
    return None if init == Init() else init


def _stop(config: AppConfig) -> StopConfig | None:
    if config.kill_signal is None and config.kill_timeout is None:
        return None
    return StopConfig(signal=config.kill_signal, timeout=config.kill_timeout)


def _restart(policy: str | None, retries: int | None) -> MachineRestart:
    match policy:
        case "never" | "no":
            return MachineRestart(policy="no", max_retries=retries)
        case "always":
            return MachineRestart(policy="always", max_retries=retries)
        case "on-failure":
            return MachineRestart(policy="on-failure", max_retries=retries)
    return MachineRestart(max_retries=retries)


def _for(sections: tuple[G, ...] | None, group: str) -> G | None:
    """The first that names the group wins over the first that names none."""
    mine = [each for each in sections or () if group in (each.processes or (group,))]
    return min(mine, key=lambda each: not each.processes, default=None)


def _guest(vm: VmSize | None) -> Guest | None:
    """None: machines keep the size that they have."""
    if vm is None:
        return None
    preset = PRESETS.get(vm.size or "shared-cpu-1x", PRESETS["shared-cpu-1x"])
    kind = vm.cpu_kind or ("performance" if preset.cpu_kind == "performance" else "shared")
    return Guest(
        cpu_kind=kind,
        cpus=vm.cpus or preset.cpus,
        memory_mb=vm.memory_mib or preset.memory_mb,
        max_memory_mb=vm.max_memory_mb or None,
        gpu_kind=vm.gpu_kind,
        gpus=vm.gpus,
        kernel_args=vm.kernel_args,
        persist_rootfs=vm.persist_rootfs,
    )


def _mount(volume: MountSection) -> Mount:
    """`initial_size` and what follows are for the volume, when it is made."""
    return Mount(
        name=volume.source,
        path=volume.destination,
        extend_threshold_percent=volume.auto_extend_size_threshold,
        add_size_gb=volume.auto_extend_size_increment,
        size_gb_limit=volume.auto_extend_size_limit,
    )


def _services(config: AppConfig, group: str) -> Iterator[Service]:
    """In this order, which `reader` counts on."""
    if config.http_service is not None and of_group(config.http_service, group, config):
        yield _http(config.http_service)
    for section in _mine(config.services, group, config):
        yield _service(section)


def _http(given: HttpService) -> Service:
    ports = (
        Port(port=80, handlers=("http",), force_https=given.force_https, http_options=given.http_options),
        Port(port=443, handlers=("http", "tls"), http_options=given.http_options, tls_options=given.tls_options),
    )
    return Service(
        protocol="tcp",
        internal_port=given.internal_port,
        ports=ports,
        concurrency=given.concurrency,
        autostart=given.auto_start_machines,
        autostop=given.auto_stop_machines,
        min_machines_running=given.min_machines_running,
        checks=tuple(_service_check(check, "http") for check in given.checks or ()) or None,
    )


def _service(given: ServiceSection) -> Service:
    checks = [_service_check(check, "tcp") for check in given.tcp_checks or ()]
    checks += [_service_check(check, "http") for check in given.http_checks or ()]
    return Service(
        protocol=given.protocol,
        internal_port=given.internal_port,
        ports=tuple(msgspec.convert(msgspec.to_builtins(port), Port) for port in given.ports or ()) or None,
        concurrency=given.concurrency,
        autostart=given.auto_start_machines,
        autostop=given.auto_stop_machines,
        min_machines_running=given.min_machines_running,
        checks=tuple(checks) or None,
    )


def _service_check(probe: CheckSection, kind: str) -> ServiceCheck:
    return ServiceCheck(
        type=kind,
        port=probe.port,
        interval=clamped(probe.interval),
        timeout=clamped(probe.timeout),
        grace_period=probe.grace_period,
        method=probe.method,
        path=probe.path,
        protocol=probe.protocol,
        tls_skip_verify=probe.tls_skip_verify,
        tls_server_name=probe.tls_server_name,
        headers=_headers(probe),
    )


def _checks(config: AppConfig, group: str) -> dict[str, MachineCheck] | None:
    """The port is that of `[http_service]` where a check names none."""
    usual = usual_port(config, group)
    mine = {name: probe for name, probe in (config.checks or {}).items() if of_group(probe, group, config)}
    return {name: _check(probe, probe.port or usual) for name, probe in mine.items()} or None


def usual_port(config: AppConfig, group: str) -> int | None:
    """That of the group's `[http_service]`."""
    http = config.http_service
    return http.internal_port if http is not None and of_group(http, group, config) else None


def _check(probe: CheckSection, port: int | None) -> MachineCheck:
    return MachineCheck(
        type=probe.type,
        port=port,
        interval=probe.interval,
        timeout=probe.timeout,
        grace_period=probe.grace_period,
        method=probe.method,
        path=probe.path,
        protocol="https" if probe.protocol == "https" else "http" if probe.protocol else None,
        tls_skip_verify=probe.tls_skip_verify,
        tls_server_name=probe.tls_server_name,
        headers=_headers(probe),
    )


def _headers(probe: CheckSection) -> tuple[HttpHeader, ...] | None:
    return tuple(HttpHeader(name=name, values=(text,)) for name, text in (probe.headers or {}).items()) or None


def clamped(duration: str | None) -> str | None:
    """A service's check has at least one second, at most one minute."""
    if duration is None or LEAST_CHECK_S <= parse_duration(duration) <= MOST_CHECK_S:
        return duration
    return "1s" if parse_duration(duration) < LEAST_CHECK_S else "1m0s"


# What the machines keep that are there.

KEPT: Mapping[type[Part], frozenset[str]] = {
    MachineConfig: frozenset(("processes", "containers", "volumes", "rootfs", "cache_drive", "schedule", "standbys"))
    | {"auto_destroy", "dns", "spot", "disable_machine_autostart"},
    Init: frozenset(("tty", "stdin", "kernel_args")),
    Guest: frozenset(("max_memory_mb", "host_dedication_id", "persist_rootfs", "required_host_features")),
    Mount: frozenset(("volume", "size_gb", "encrypted", "add_size_percent", "min_add_size_gb")),
    MachineCheck: frozenset(("kind",)),
    Service: frozenset(("force_instance_key", "force_instance_description")),
    File: frozenset(("image_config", "digest", "size")),
}
"""The fields of a machine's config that stay as they are where a file does not say them, or cannot. Every other one is
as the file says, and absent where it says nothing; `size` and `metadata` are looked at by themselves."""


def overlaid(said: MachineConfig, old: MachineConfig) -> MachineConfig:
    """The config of a machine that is there and has `old`, once it is brought to a file: what the file says, and what
    no file says, as it was."""
    own = {key: value for key, value in (old.metadata or {}).items() if not key.startswith("fly_")}
    mounts = [_kept(new, had) for new, had in zip(said.mounts or (), old.mounts or (), strict=False)]
    full = _kept(said, old)
    return replace(
        full,
        guest=old.guest if said.guest is None else _grown(said.guest, old.guest),
        size=old.size if said.guest is None else None,
        rootfs=_rootfs(said, old),
        metadata={**own, **(said.metadata or {})},
        init=_kept(said.init or Init(), old.init) if old.init else said.init,
        mounts=tuple(mounts) + (said.mounts or ())[len(mounts) :] or None,
        checks=_checks_over(said.checks, old.checks or {}),
        services=_services_over(said.services, old.services or ()),
        files=_files_over(said.files or (), old.files or ()) or None,
    )


def _kept(said: P, old: P | None) -> P:
    kept = {name: value for name in KEPT[type(said)] if (value := getattr(old, name, None)) is not None}
    return replace(said, **{name: value for name, value in kept.items() if getattr(said, name) is None})


def _grown(said: Guest, old: Guest | None) -> Guest:
    """A machine that the file makes larger than it could be grown to, or gives a GPU, is not grown any more."""
    kept = _kept(said, old)
    most = kept.max_memory_mb if said.max_memory_mb is None else None
    if most and (kept.gpu_kind or most < size_of(MachineConfig(guest=kept)).memory_mb):
        return replace(kept, max_memory_mb=None)
    return kept


def _rootfs(said: MachineConfig, old: MachineConfig) -> RootfsConfig | None:
    """The file's word on whether a root filesystem is kept is of the older field, which counts for less."""
    if old.rootfs is None or said.guest is None or said.guest.persist_rootfs is None:
        return old.rootfs
    return replace(old.rootfs, persist=None)


def _checks_over(
    said: Mapping[str, MachineCheck] | None, old: Mapping[str, MachineCheck]
) -> dict[str, MachineCheck] | None:
    return {name: _kept(check, old.get(name)) for name, check in (said or {}).items()} or None


def _services_over(said: tuple[Service, ...] | None, old: tuple[Service, ...]) -> tuple[Service, ...] | None:
    had = {(each.protocol or "tcp", each.internal_port): each for each in old}
    return tuple(_kept(each, had.get((each.protocol or "tcp", each.internal_port))) for each in said or ()) or None


def _files_over(said: tuple[File, ...], old: tuple[File, ...]) -> tuple[File, ...]:
    """Those of the file, and those that were uploaded or are an image's config, where the file names no other."""
    named = {each.guest_path for each in said}
    return said + tuple(each for each in old if each.guest_path not in named and (each.digest or each.image_config))
