"""An app's config into one machine config for each process group, with the meaning that fly.toml has elsewhere: with
another client the machines are the same. Pure; what does not fit the machine's rules, `reader` reports."""

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from hawker.config.duration import parse_duration
from hawker.config.effective import PRESETS
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
    Port,
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
        files=tuple(_file(file, local) for file in _mine(config.files, group, config)) or None,
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
        memory_mb=vm.memory or preset.memory_mb,
        gpu_kind=vm.gpu_kind,
        gpus=vm.gpus,
        kernel_args=vm.kernel_args,
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
