"""What a config means once the contract's defaults are filled in. Pure; takes configs that `validate` accepted."""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from hawker.config.check import MachineCheck
from hawker.config.duration import parse_duration
from hawker.config.guest import Guest
from hawker.config.machine import MachineConfig
from hawker.config.signals import signal_name
from hawker.machine import Policy

SHARED_MIB_PER_CPU = 256
PERFORMANCE_MIB_PER_CPU = 2048
MAX_RETRIES = 10
STOP_SIGNAL = "SIGINT"
STOP_TIMEOUT_S = 5.0
FILE_MODE = 0o644

_SHARED = (1, 2, 4, 6, 8)
_PERFORMANCE = (1, 2, 4, 6, 8, 10, 12, 14, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class Size:
    """How large a machine is. `memory_mb` counts MiB, as everywhere in the Machines API."""

    cpu_kind: str
    cpus: int
    memory_mb: int


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


def restart_policy(config: MachineConfig) -> tuple[Policy, int]:
    """The policy and how often an on-failure machine is tried again (contract 3.5)."""
    given = config.restart
    if given is None:
        return Policy.ON_FAILURE, MAX_RETRIES
    policy = Policy(given.policy) if given.policy else Policy.ON_FAILURE
    return policy, MAX_RETRIES if given.max_retries is None else given.max_retries


def stop_config(config: MachineConfig) -> tuple[str, float]:
    """The signal's full name, and the seconds until SIGKILL."""
    given = config.stop_config
    signal = signal_name(given.signal) if given and given.signal else STOP_SIGNAL
    return signal, STOP_TIMEOUT_S if given is None else _seconds(given.timeout, STOP_TIMEOUT_S)


def file_contents(config: MachineConfig, secrets: Mapping[str, str]) -> Iterator[tuple[str, bytes, int]]:
    """Path inside the machine, content and mode of each file. `secrets` has the value of each that a file names."""
    for file in config.files or ():
        mode = FILE_MODE if file.mode is None else file.mode
        encoded = secrets[file.secret_name] if file.secret_name else file.raw_value
        yield file.guest_path or "", base64.b64decode(encoded or ""), mode


@dataclass(frozen=True, slots=True)
class Check:
    """One top-level check with its defaults. `headers` may repeat a name. Times are seconds."""

    name: str
    type: str
    port: int
    interval_s: float
    timeout_s: float
    grace_s: float
    method: str
    path: str
    protocol: str
    tls_skip_verify: bool
    headers: tuple[tuple[str, str], ...]


def checks(config: MachineConfig) -> tuple[Check, ...]:
    return tuple(_check(name, given) for name, given in (config.checks or {}).items())


def _check(name: str, given: MachineCheck) -> Check:
    return Check(
        name=name,
        type=given.type or "tcp",
        port=given.port or 0,
        interval_s=_seconds(given.interval, 15.0),
        timeout_s=_seconds(given.timeout, 10.0),
        grace_s=_seconds(given.grace_period, 5.0),
        method=(given.method or "GET").upper(),
        path=given.path or "/",
        protocol=given.protocol or "http",
        tls_skip_verify=bool(given.tls_skip_verify),
        headers=tuple((header.name or "", value) for header in given.headers or () for value in header.values or ()),
    )


def _seconds(given: str | int | None, default: float) -> float:
    return default if not given else parse_duration(str(given))
