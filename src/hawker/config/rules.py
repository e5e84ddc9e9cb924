"""What a config must satisfy beyond its shape. Pure: each rule yields complaints that open with the field's path."""

from collections.abc import Callable, Iterator
from typing import Protocol

from hawker.config import container_rules, dns, gpu_rules, kernel_rules, mount_rules, service_rules, size_rules
from hawker.config.check_rules import MAX_CHECKS, check_complaints
from hawker.config.effective import PRESETS, SERVICE_CHECK, guest
from hawker.config.machine import MachineConfig
from hawker.config.process_rules import (
    argv_complaints,
    bytes_of,
    env_complaints,
    files_complaints,
    image_complaints,
    restart_complaints,
    run_complaints,
    stop_complaints,
)
from hawker.config.served import not_served
from hawker.errors import Unprocessable

_ONE = "its machines hold one container"
MAX_CPUS = 1024
MIN_MEMORY_MIB, MAX_MEMORY_MIB = 32, 16 * 1024 * 1024
MAX_METADATA_BYTES = 64 * 1024
MAX_PROCESSES = 16


class Served(size_rules.Sized, gpu_rules.Attached, Protocol):
    """What the driver that will run the machine can do (`runtime.driver.Features` is one)."""

    @property
    def containers(self) -> bool: ...
    @property
    def mounts(self) -> bool: ...
    @property
    def disks(self) -> bool: ...


def validate(config: MachineConfig, served: Served) -> None:
    """Raise `Unprocessable` with the first complaint: a value out of range, or a field that is not served yet."""
    for path, reason in not_served(config):
        raise Unprocessable(f"config.{path} is not served by this node yet: {reason}")
    if config.files and not served.rootfs:
        raise Unprocessable("config.files is not served by this node's driver: its machines have no filesystem")
    if config.mounts and not (served.mounts or served.disks):
        raise Unprocessable("config.mounts is not served by this node's driver: its machines have no filesystem")
    if dns.asks_inside(config.dns) and not served.rootfs:
        raise Unprocessable("config.dns is not served by this node's driver: its machines use the host's resolver")
    if config.containers and not served.containers:
        raise Unprocessable(f"config.containers is not served by this node's driver ({served.driver}): {_ONE}")
    for rule in _RULES:
        for complaint in rule(config):
            raise Unprocessable(f"config.{complaint}")
    for complaint in (*size_rules.unserved(config, served), *gpu_rules.unserved(config, served)):
        raise Unprocessable(f"config.{complaint}")


def validate_metadata(metadata: dict[str, str]) -> None:
    """The rule for metadata alone, for the calls that change nothing else. Raises `Unprocessable`."""
    for complaint in _metadata(MachineConfig(metadata=metadata)):
        raise Unprocessable(complaint)


def _image(config: MachineConfig) -> Iterator[str]:
    """A machine with containers needs none of its own: it is what those are made from that name none."""
    if config.image or not config.containers:
        yield from image_complaints("image", config.image)


def _size(config: MachineConfig) -> Iterator[str]:
    if config.size and config.size not in PRESETS:
        yield f"size: {config.size!r} is not one of {', '.join(PRESETS)}"
        return
    given = config.guest
    if given is None:
        return
    if config.size and guest(config) != PRESETS[config.size]:
        yield "size and config.guest exclude each other"
    if given.cpus is not None and not 1 <= given.cpus <= MAX_CPUS:
        yield f"guest.cpus must be between 1 and {MAX_CPUS}, not {given.cpus}"
    if given.memory_mb is not None and not MIN_MEMORY_MIB <= given.memory_mb <= MAX_MEMORY_MIB:
        yield f"guest.memory_mb must be between {MIN_MEMORY_MIB} and {MAX_MEMORY_MIB}, not {given.memory_mb}"


def _env(config: MachineConfig) -> Iterator[str]:
    yield from env_complaints("env", config.env)


def _commands(config: MachineConfig) -> Iterator[str]:
    if len(config.processes or ()) > MAX_PROCESSES:
        yield f"processes has more than {MAX_PROCESSES} items"
    if config.init is not None:
        yield from argv_complaints("init", config.init.exec, config.init.entrypoint, config.init.cmd)
    for index, process in enumerate(config.processes or ()):
        yield from run_complaints(f"processes[{index}]", process)


def _files(config: MachineConfig) -> Iterator[str]:
    yield from files_complaints("files", config.files or ())
    images = {config.image, *(container.image for container in config.containers or ())}
    for index, file in enumerate(config.files or ()):
        if file.image_config and file.image_config not in images:
            yield f"files[{index}].image_config names no image of the machine: {file.image_config!r}"


def _metadata(config: MachineConfig) -> Iterator[str]:
    if any(not key for key in config.metadata or {}):
        yield "metadata has an empty key"
    if bytes_of(config.metadata) > MAX_METADATA_BYTES:
        yield f"metadata is larger than {MAX_METADATA_BYTES} bytes"


def _checks(config: MachineConfig) -> Iterator[str]:
    if len(config.checks or {}) > MAX_CHECKS:
        yield f"checks has more than {MAX_CHECKS} items"
    for name, check in (config.checks or {}).items():
        if name.startswith(SERVICE_CHECK):
            yield f"checks.{name}: names that begin with {SERVICE_CHECK} are those of services' checks"
        yield from (f"checks.{name}.{complaint}" for complaint in check_complaints(check))


def _dns(config: MachineConfig) -> Iterator[str]:
    if config.dns is not None:
        yield from (f"dns.{complaint}" for complaint in dns.complaints(config.dns))


def _ending(config: MachineConfig) -> Iterator[str]:
    yield from restart_complaints("restart", config.restart)
    yield from stop_complaints("stop_config", config.stop_config)


_RULES: tuple[Callable[[MachineConfig], Iterator[str]], ...] = (
    _image,
    _size,
    size_rules.memory,
    size_rules.persist,
    gpu_rules.gpus,
    kernel_rules.kernel_args,
    _env,
    _commands,
    _files,
    _metadata,
    _checks,
    _dns,
    _ending,
    mount_rules.mounts,
    service_rules.services,
    service_rules.statics,
    service_rules.metrics,
    service_rules.standbys,
    container_rules.containers,
    container_rules.volumes,
)
