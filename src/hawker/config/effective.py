"""What a config means once the contract's defaults are filled in. Pure; takes configs that `validate` accepted."""

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, TypeAlias

import msgspec

from hawker.config.duration import parse_duration
from hawker.config.machine import (
    Container,
    ContainerHealthcheck,
    ExecHealthcheck,
    File,
    Guest,
    HttpHealthcheck,
    MachineCheck,
    MachineConfig,
    MachineRestart,
    ServiceCheck,
    StopConfig,
    TcpHealthcheck,
)
from hawker.config.process_rules import MAX_CONTENTS_BYTES, signal_name
from hawker.errors import BadRequest
from hawker.machine import Policy
from hawker.value_object import ValueObject

LONGEST_CHECK_S = 60.0
PUBLISH = "hawker_publish"
"""Metadata of a machine: the ports of its services are those of the host. The value is an address of the host, or `*`
for all addresses that its edge has."""
SHARED_MIB_PER_CPU = 256
PERFORMANCE_MIB_PER_CPU = 2048
MAX_RETRIES = 10
STOP_SIGNAL = "SIGINT"
STOP_TIMEOUT_S = 5.0
FILE_MODE = 0o644
SERVICE_CHECK = "servicecheck-"
_MIB_PER_GB = 1024

_SHARED = (1, 2, 4, 6, 8)
_PERFORMANCE = (1, 2, 4, 6, 8, 10, 12, 14, 16, 32, 64, 128)


class Size(ValueObject, frozen=True):
    """The size of a machine. `memory_mb` counts MiB, as everywhere in the Machines API."""

    cpu_kind: str
    """The kind of cpu, `shared` or `performance`: whether the cpus may be oversold."""
    cpus: int
    """Virtual ones, 1 or more."""
    memory_mb: int
    """The MiB that the machine may use at most."""


PRESETS: dict[str, Size] = {
    **{f"shared-cpu-{n}x": Size("shared", n, n * SHARED_MIB_PER_CPU) for n in _SHARED},
    **{f"performance-{n}x": Size("performance", n, n * PERFORMANCE_MIB_PER_CPU) for n in _PERFORMANCE},
}


def guest(config: MachineConfig) -> Size:
    """The size that was ordered: the guest, else the preset, else one shared cpu with 256 MiB."""
    if config.guest is None and config.size:
        return PRESETS[config.size]
    given = config.guest or Guest()
    kind, cpus = given.cpu_kind or "shared", given.cpus or 1
    per_cpu = PERFORMANCE_MIB_PER_CPU if kind == "performance" else SHARED_MIB_PER_CPU
    return Size(kind, cpus, given.memory_mb or cpus * per_cpu)


def with_guest(config: MachineConfig) -> MachineConfig:
    """The config as answers show it: `guest` is always there, because clients read it without looking."""
    if config.guest is not None:
        return config
    size = guest(config)
    filled = Guest(cpu_kind="performance" if size.cpu_kind == "performance" else "shared", cpus=size.cpus)
    return msgspec.structs.replace(config, guest=msgspec.structs.replace(filled, memory_mb=size.memory_mb))


class Persist(StrEnum):
    """The time for which the writable layer of a root filesystem is kept: as long as an instance, a version, or the
    machine."""

    NEVER = "never"
    RESTART = "restart"
    ALWAYS = "always"


_NUMBERED: Mapping[str, Persist] = {"0": Persist.NEVER, "1": Persist.NEVER, "2": Persist.RESTART, "3": Persist.ALWAYS}


def persistence(config: MachineConfig) -> Persist:
    """The time that `rootfs.persist` says, else the deprecated `guest.persist_rootfs`, by name or by number."""
    if config.rootfs is not None and config.rootfs.persist:
        return Persist(config.rootfs.persist)
    return persist_of(config.guest.persist_rootfs if config.guest is not None else None) or Persist.NEVER


def rootfs_mib(config: MachineConfig) -> int | None:
    """The MiB that the machine may write to its root filesystem; None: what its node gives to each."""
    size_gb = config.rootfs.size_gb if config.rootfs is not None else None
    return size_gb * _MIB_PER_GB if size_gb else None


def persist_of(given: int | str | None) -> Persist | None:
    """The value that a name or a number means; None for what is neither a name nor a number of one."""
    text = str(given or 0)
    known = {**_NUMBERED, **{each.value: each for each in Persist}}
    return known.get(text)


def restart_policy(config: MachineConfig) -> tuple[Policy, int]:
    """The policy and how often an on-failure machine is tried again (contract 3.5)."""
    return policy_of(config.restart)


def policy_of(given: MachineRestart | None) -> tuple[Policy, int]:
    """The restart policy of a machine or container, and how often it is tried again."""
    if given is None:
        return Policy.ON_FAILURE, MAX_RETRIES
    policy = Policy(given.policy) if given.policy else Policy.ON_FAILURE
    return policy, MAX_RETRIES if given.max_retries is None else given.max_retries


def stop_config(config: MachineConfig) -> tuple[str, float]:
    """The signal's full name, and the seconds until SIGKILL."""
    return stop_of(config.stop_config, STOP_SIGNAL, STOP_TIMEOUT_S)


def stop_of(given: StopConfig | None, signal: str, timeout_s: float) -> tuple[str, float]:
    """The signal's full name and the seconds until SIGKILL, with `signal` and `timeout_s` for what is not given."""
    if given is None:
        return signal, timeout_s
    return signal_name(given.signal) if given.signal else signal, _seconds(given.timeout, timeout_s)


def file_contents(
    files: Iterable[File] | None, secrets: Mapping[str, str], image_configs: Mapping[str, bytes]
) -> Iterator[tuple[str, bytes, int]]:
    """Path inside the machine, content and mode of each file that was not uploaded. `secrets` and `image_configs` have
    the value of each secret and image that a file names. Raises `BadRequest` once they are too large together."""
    size = 0
    for file in files or ():
        if file.digest:
            continue
        content = _content(file, secrets, image_configs)
        size += len(content)
        if size > MAX_CONTENTS_BYTES:
            raise BadRequest(f"files: with those of secrets and images they are larger than {MAX_CONTENTS_BYTES} bytes")
        yield file.guest_path or "", content, FILE_MODE if file.mode is None else file.mode


def _content(file: File, secrets: Mapping[str, str], image_configs: Mapping[str, bytes]) -> bytes:
    if file.image_config:
        return image_configs[file.image_config]
    return base64.b64decode((secrets[file.secret_name] if file.secret_name else file.raw_value) or "")


def uploads_of(config: MachineConfig) -> dict[str, int]:
    """The uploaded files that a machine needs, its containers' too: the size in bytes of each digest."""
    files = [*(config.files or ()), *(file for each in config.containers or () for file in each.files or ())]
    return {file.digest: file.size or 0 for file in files if file.digest}


class Check(ValueObject, frozen=True):
    """One check with its defaults, the machine's own or a service's. `headers` may repeat a name. Times are seconds."""

    name: str
    """The name in the answers of the API and in events; a service's is `servicecheck-NN-TYPE-PORT`."""
    type: str
    """The type of check. `tcp`: a connection is enough; `http`: an answer of 200 to 299 is."""
    port: int
    """The port in the machine, 1 to 65535, at its private address."""
    interval_s: float
    """The seconds from the end of one look to the next."""
    timeout_s: float
    """A look that takes longer has failed."""
    grace_s: float
    """The seconds from a start in which a look that fails is repeated, at least every second, and is not told."""
    method: str
    """The method of the HTTP request, in capitals."""
    path: str
    """The path of the HTTP request, from the slash."""
    protocol: str
    """The protocol, `http` or `https`; `tcp` checks ignore it."""
    tls_skip_verify: bool
    """Any certificate is good."""
    tls_server_name: str | None
    """The name for which the certificate must be, also sent as SNI; None for the address."""
    headers: tuple[tuple[str, str], ...]


def checks(config: MachineConfig) -> tuple[Check, ...]:
    """The machine's own under their names, then the services', numbered through as clients know them."""
    own = [_check(name, given, given.port) for name, given in (config.checks or {}).items()]
    routed = [(service, given) for service in config.services or () for given in service.checks or ()]
    for number, (service, given) in enumerate(routed):
        port = given.port or service.internal_port
        own.append(_check(f"{SERVICE_CHECK}{number:02}-{given.type}-{port}", given, port))
    return tuple(own)


def _check(name: str, given: MachineCheck | ServiceCheck, port: int | None) -> Check:
    return Check(
        name=name,
        type=given.type or "tcp",
        port=port or 0,
        interval_s=_seconds(given.interval, 15.0),
        timeout_s=min(_seconds(given.timeout, 10.0), LONGEST_CHECK_S),
        grace_s=_seconds(given.grace_period, 5.0),
        method=(given.method or "GET").upper(),
        path=given.path or "/",
        protocol=given.protocol or "http",
        tls_skip_verify=bool(given.tls_skip_verify),
        tls_server_name=given.tls_server_name or None,
        headers=tuple((header.name or "", value) for header in given.headers or () for value in header.values or ()),
    )


def _seconds(given: str | int | None, default: float) -> float:
    return default if not given else parse_duration(str(given))


# What containers mean once the contract's defaults are filled in. Pure; takes configs that `validate` accepted.

Asks: TypeAlias = HttpHealthcheck | TcpHealthcheck | ExecHealthcheck
Storage: TypeAlias = Literal["disk", "memory"]

INTERVAL_S, TIMEOUT_S, GRACE_S = 15.0, 10.0, 0.0
SUCCESSES, FAILURES = 1, 3


@dataclass(frozen=True, slots=True)
class Healthcheck:
    """One check of a container. It is made first when `grace_s` is over; so many `successes` in a row make it passing,
    so many `failures` in a row critical. `stops`: the container is stopped then. Times are seconds."""

    container: str
    name: str
    interval_s: float
    timeout_s: float
    grace_s: float
    successes: int
    failures: int
    stops: bool
    asks: Asks = field(compare=False)


class EffectiveTempDir(ValueObject, frozen=True):
    """A volume of the machine's containers, made fresh for each instance. Sizes count MiB."""

    name: str
    """The name by which containers mount the directory; unique in the machine."""
    storage: Storage
    size_mib: int
    """The most MiB that the directory may hold."""


def image_names(config: MachineConfig) -> list[str]:
    """The images that a config asks for, each once."""
    containers = config.containers or ()
    names = [config.image, *(container_image(config, each) for each in containers)]
    return list(dict.fromkeys(name or "" for name in names if name or not containers))


def container_image(config: MachineConfig, container: Container) -> str:
    """The image of a container: its own, else the machine's."""
    return container.image or config.image or ""


def container_restart(container: Container) -> tuple[Policy, int]:
    """The restart policy of a container, as for a machine: on-failure, and ten tries, when unset."""
    return policy_of(container.restart)


def container_stop(config: MachineConfig, container: Container) -> tuple[str, float]:
    """The signal's full name, and the seconds until SIGKILL; the machine's where it has none of its own."""
    return stop_of(container.stop, *stop_config(config))


def healthchecks(container: Container) -> tuple[Healthcheck, ...]:
    """The checks of a container. A check without a name is called by its container and its place."""
    given = container.healthchecks or ()
    return tuple(_healthcheck(container, index, each) for index, each in enumerate(given))


def _healthcheck(container: Container, index: int, given: ContainerHealthcheck) -> Healthcheck:
    asks = given.http or given.tcp or given.exec
    assert asks is not None, "a healthcheck asks something"
    return Healthcheck(
        container=container.name or "",
        name=given.name or f"{container.name}-{index:02}",
        interval_s=float(given.interval or INTERVAL_S),
        timeout_s=float(given.timeout or TIMEOUT_S),
        grace_s=float(given.grace_period or GRACE_S),
        successes=given.success_threshold or SUCCESSES,
        failures=given.failure_threshold or FAILURES,
        stops=given.unhealthy == "stop",
        asks=asks,
    )


def temp_dirs(config: MachineConfig) -> tuple[EffectiveTempDir, ...]:
    """The shared directories of the machine's containers. They are on disk unless they ask for memory."""
    return tuple(_temp_dirs(config))


def _temp_dirs(config: MachineConfig) -> Iterator[EffectiveTempDir]:
    for volume in config.volumes or ():
        given = volume.temp_dir
        assert given is not None, "a volume has its kind"
        yield EffectiveTempDir(volume.name or "", given.storage_type or "disk", given.size_mb or 0)
