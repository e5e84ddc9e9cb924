"""What must hold of the containers of a machine and of the volumes they share. Pure; complaints open with the path."""

import re
from collections.abc import Iterator, Mapping

from hawker.config.effective import LONGEST_CHECK_S, guest
from hawker.config.machine import Container, ContainerHealthcheck, HttpHealthcheck, MachineConfig
from hawker.config.process_rules import (
    MAX_FILES_BYTES,
    argv_complaints,
    files_complaints,
    image_complaints,
    path_complaints,
    raw_bytes,
    restart_complaints,
    run_complaints,
    stop_complaints,
)
from hawker.config.service_rules import header_complaints, header_safe, port_complaints

MAX_CONTAINERS, MAX_VOLUMES, MAX_MOUNTS, MAX_HEALTHCHECKS = 16, 16, 16, 16
MAX_VOLUME_MB = 1024 * 1024
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,15}")
_KERNELS_OWN = ("/proc", "/sys", "/dev")


def containers(config: MachineConfig) -> Iterator[str]:
    given = config.containers or ()
    if not given:
        if config.volumes:
            yield "volumes are shared by containers, and there are none"
        return
    yield from _apart(config)
    if len(given) > MAX_CONTAINERS:
        yield f"containers has more than {MAX_CONTAINERS} items"
    yield from _names("containers", [each.name for each in given])
    by_name = {each.name or "": each for each in given}
    volumes = {each.name or "" for each in config.volumes or ()}
    for index, each in enumerate(given):
        yield from _container(f"containers[{index}]", config, each, by_name, volumes)
    if raw_bytes(file for each in given for file in each.files or ()) > MAX_FILES_BYTES:
        yield f"containers: their files are larger than {MAX_FILES_BYTES} bytes together"
    yield from _cycle(by_name)


def volumes(config: MachineConfig) -> Iterator[str]:
    given = config.volumes or ()
    if len(given) > MAX_VOLUMES:
        yield f"volumes has more than {MAX_VOLUMES} items"
    yield from _names("volumes", [each.name for each in given])
    memory_mib = guest(config).memory_mb
    for index, each in enumerate(given):
        if each.temp_dir is None:
            yield f"volumes[{index}].temp_dir is required"
            continue
        in_memory = each.temp_dir.storage_type == "memory"
        most = memory_mib if in_memory else MAX_VOLUME_MB
        if each.temp_dir.size_mb is None or not 1 <= each.temp_dir.size_mb <= most:
            why = ", which is the machine's memory" if in_memory else ""
            yield f"volumes[{index}].temp_dir.size_mb must be between 1 and {most}{why}, not {each.temp_dir.size_mb}"


def _apart(config: MachineConfig) -> Iterator[str]:
    """What belongs to the one root filesystem that a machine with containers does not have."""
    init = config.init
    if config.processes:
        yield "processes: a machine with containers has no processes of its own"
    if init and (init.exec or init.entrypoint or init.cmd or init.tty or init.stdin):
        yield "init: a machine with containers runs no command of its own, each container has its own"
    if config.files:
        yield "files: name them in containers[].files; each container has its own root filesystem"
    if config.mounts:
        yield "mounts are not served in a machine with containers yet: use volumes[] and containers[].mounts"


def _names(path: str, names: list[str | None]) -> Iterator[str]:
    for index, name in enumerate(names):
        if not _NAME.fullmatch(name or ""):
            yield (
                f"{path}[{index}].name must be 1 to 16 lowercase letters, digits or dashes, no dash first, "
                f"not {name!r:.80}"
            )
        elif name in names[:index]:
            yield f"{path}[{index}].name: {name!r} is taken by another one"


def _container(
    path: str, config: MachineConfig, given: Container, by_name: Mapping[str, Container], volumes: set[str]
) -> Iterator[str]:
    yield from image_complaints(f"{path}.image", given.image or config.image)
    yield from run_complaints(path, given)
    yield from files_complaints(f"{path}.files", given.files or ())
    yield from restart_complaints(f"{path}.restart", given.restart)
    yield from stop_complaints(f"{path}.stop", given.stop)
    yield from _needs(path, given, by_name)
    yield from _mounts(path, given, volumes)
    checks = given.healthchecks or ()
    if len(checks) > MAX_HEALTHCHECKS:
        yield f"{path}.healthchecks has more than {MAX_HEALTHCHECKS} items"
    names = [each.name for each in checks if each.name]
    if len(set(names)) < len(names):
        yield f"{path}.healthchecks: two of them have the same name"
    for index, check in enumerate(checks):
        yield from (f"{path}.healthchecks[{index}].{complaint}" for complaint in _healthcheck(check))


def _needs(path: str, given: Container, by_name: Mapping[str, Container]) -> Iterator[str]:
    for index, need in enumerate(given.depends_on or ()):
        where, other = f"{path}.depends_on[{index}]", by_name.get(need.name or "")
        if other is None:
            yield f"{where}.name: there is no container {need.name!r:.80}"
        elif need.condition == "healthy" and not other.healthchecks:
            yield f"{where}.condition: {need.name} has no healthchecks, so nothing says when it is healthy"
        elif need.condition == "exited_successfully" and other.restart and other.restart.policy == "always":
            yield f"{where}.condition: {need.name} is started again whenever it exits; give it another restart.policy"


def _cycle(by_name: Mapping[str, Container]) -> Iterator[str]:
    """Take away what waits for nothing that is left; what then remains waits for itself."""
    left = {name: {need.name or "" for need in each.depends_on or ()} for name, each in by_name.items()}
    while free := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in free:
            del left[name]
    if left:
        yield f"containers: {', '.join(sorted(left))} depend on each other in a circle"


def _mounts(path: str, given: Container, volumes: set[str]) -> Iterator[str]:
    mounts = given.mounts or ()
    if len(mounts) > MAX_MOUNTS:
        yield f"{path}.mounts has more than {MAX_MOUNTS} items"
    for index, mount in enumerate(mounts):
        where, target = f"{path}.mounts[{index}]", mount.path or ""
        if mount.name not in volumes:
            yield f"{where}.name: there is no volume {mount.name!r:.80} in config.volumes"
        yield from (f"{where}.{complaint}" for complaint in path_complaints("path", target))
        if any(target == own or target.startswith(f"{own}/") for own in _KERNELS_OWN):
            yield f"{where}.path: {target!r:.80} is the kernel's own"
        if target in [other.path for other in mounts[:index]]:
            yield f"{where}.path: {target!r:.80} is taken by another mount"


def _healthcheck(check: ContainerHealthcheck) -> Iterator[str]:
    if check.name is not None and not (1 <= len(check.name) <= 64 and check.name.isprintable()):
        yield "name must be 1 to 64 printable characters"
    kinds = [each for each in (check.http, check.tcp, check.exec) if each is not None]
    if len(kinds) != 1:
        yield "needs exactly one of http, tcp and exec"
    yield from _within("interval", check.interval, 1, 86_400)
    yield from _within("timeout", check.timeout, 1, int(LONGEST_CHECK_S))
    yield from _within("grace_period", check.grace_period, 0, 86_400)
    yield from _within("success_threshold", check.success_threshold, 1, 100)
    yield from _within("failure_threshold", check.failure_threshold, 1, 100)
    if check.http is not None:
        yield from (f"http.{complaint}" for complaint in _http(check.http))
    if check.tcp is not None:
        yield from (f"tcp.{complaint}" for complaint in port_complaints("port", check.tcp.port))
    if check.exec is not None:
        if not check.exec.command:
            yield "exec.command is empty"
        yield from argv_complaints("exec.command", check.exec.command)


def _within(field: str, value: int | None, least: int, most: int) -> Iterator[str]:
    """Zero asks for the default, as an absent value does."""
    if value and not least <= value <= most:
        yield f"{field} must be between {least} and {most}, not {value}"


def _http(check: HttpHealthcheck) -> Iterator[str]:
    yield from port_complaints("port", check.port)
    if not (check.method or "GET").isalpha():
        yield f"method is not an HTTP method: {check.method!r}"
    if check.path and (not check.path.startswith("/") or not header_safe(check.path)):
        yield f"path must begin with / and have no control characters, not {check.path!r}"
    if check.tls_server_name and not header_safe(check.tls_server_name):
        yield "tls_server_name has a control character in it"
    yield from header_complaints(check.headers or ())
