"""From flags to a machine's config. Pure but for reading the files that flags name, through `ConfigSources`.

What a config may hold is the node's to judge. Flags change what they name and leave the rest of `before` as it is.
"""

import base64
import hashlib
from collections.abc import Callable, Mapping
from typing import Literal, NoReturn, TypeVar

import click
import msgspec

from hawker.api.codec import BodyCodec
from hawker.cli.config_notation import NamedCheck, PublishedPort
from hawker.cli.notation import LocalFile, Variable, variables
from hawker.config import PUBLISH, File, Guest, Init, MachineConfig, MachineProcess, MachineRestart, StopConfig
from hawker.config.effective import PRESETS
from hawker.config.machine import Mount, Port, Service
from hawker.config.process_rules import MAX_UPLOAD_BYTES
from hawker.errors import HawkerError
from hawker.value_object import ValueObject

T = TypeVar("T")

_FILES_MAX = 700 * 1024  # bytes; in base64 and with the rest of the config, what a node takes

replace = msgspec.structs.replace


class Flags(ValueObject, frozen=True, kw_only=True):
    """What was given; None, empty and False mean that it was not."""

    config: str | None = None
    """A file with a whole config as JSON; all else changes it."""
    env: tuple[Variable, ...] = ()
    env_file: tuple[str, ...] = ()
    """Files of NAME=VALUE lines; what is in `env` goes before them."""
    unset_env: tuple[str, ...] = ()
    """Names of variables that are taken out."""
    cpus: int | None = None
    """1 or more."""
    cpu_kind: Literal["shared", "performance"] | None = None
    memory: int | None = None
    """MiB."""
    vm_size: str | None = None
    """A size by name, `shared-cpu-2x` say; other flags change it."""
    restart: MachineRestart | None = None
    rm: bool | None = None
    """The machine is destroyed when it ends."""
    entrypoint: tuple[str, ...] | None = None
    """In place of the image's."""
    user: str | None = None
    """A name or number of the image, in place of its own."""
    file: tuple[LocalFile, ...] = ()
    volume: Mount | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    """Keys and values that are added."""
    check: tuple[NamedCheck, ...] = ()
    publish: tuple[PublishedPort, ...] = ()
    stop_signal: str | None = None
    """What a stop sends first."""
    stop_timeout: str | None = None
    """How long a stop waits before the kill, with its unit."""
    schedule: str | None = None
    """`hourly`, `daily`, `weekly` or `monthly`."""


class ConfigSources(ValueObject, frozen=True):
    """Where flags take contents from: the caller's environment and files."""

    environ: Mapping[str, str]
    read: Callable[[str], bytes]  # a little more than the most that a file may have, or all of it


def configured(
    before: MachineConfig,
    flags: Flags,
    sources: ConfigSources,
    *,
    image: str | None = None,
    command: tuple[str, ...] = (),
) -> MachineConfig:
    """`before` with what the flags say. Raises `click.BadParameter` naming the option."""
    config = from_file(flags.config, sources) if flags.config is not None else before
    return replace(
        config,
        image=image or config.image,
        env=_env(config.env, flags, sources),
        init=_init(config.init, flags.entrypoint, command),
        size=flags.vm_size or config.size,
        guest=_guest(config, flags),
        metadata=_merged(config.metadata, {**_publish_at(flags.publish), **dict(flags.metadata)}),
        services=_services(config.services, flags.publish),
        mounts=config.mounts if flags.volume is None else (flags.volume,),
        files=_files(config.files, flags.file, sources),
        processes=_processes(config.processes, flags.user),
        checks=_merged(config.checks, {named.name: named.check for named in flags.check}),
        restart=flags.restart or config.restart,
        stop_config=_stop(config.stop_config, flags),
        schedule=flags.schedule or config.schedule,
        auto_destroy=config.auto_destroy if flags.rm is None else flags.rm,
    )


def from_file(name: str, sources: ConfigSources) -> MachineConfig:
    """A config as JSON, alone or as the `config` of a whole order. A field that is not known is an error."""
    data = _content(name, "--config", sources)
    try:
        whole = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        return BodyCodec(MachineConfig, strict=True).decode(bytes(whole.get("config") or data))
    except (msgspec.DecodeError, HawkerError) as error:
        raise click.BadParameter(f"{name}: {error}", param_hint="--config") from error


def _merged(before: dict[str, T] | None, added: dict[str, T]) -> dict[str, T] | None:
    return {**(before or {}), **added} if added else before


def _publish_at(ports: tuple[PublishedPort, ...]) -> dict[str, str]:
    """The metadata that says where. Raises `click.BadParameter` when that is not one place."""
    addresses = {port.address for port in ports}
    if len(addresses) > 1:
        raise click.BadParameter("all ports of a machine are published at the same address", param_hint="--publish")
    return {PUBLISH: addresses.pop()} if addresses else {}


def _services(before: tuple[Service, ...] | None, ports: tuple[PublishedPort, ...]) -> tuple[Service, ...] | None:
    """A port leads to the service of the same protocol and internal port, if there is one."""
    if not ports:
        return before
    services = {(each.protocol or "tcp", each.internal_port): each for each in before or ()}
    for port in ports:
        key = ("udp" if port.udp else "tcp", port.internal)
        found = services.get(key) or Service(protocol=key[0], internal_port=port.internal)
        others = [each for each in found.ports or () if each.port != port.port]
        services[key] = replace(found, ports=(*others, Port(port=port.port, handlers=port.handlers or None)))
    return tuple(services.values())


def _env(before: dict[str, str] | None, flags: Flags, sources: ConfigSources) -> dict[str, str] | None:
    given = (*(item for name in flags.env_file for item in _env_file(name, sources)), *flags.env)
    added = {item.name: value for item in given if (value := _value(item, sources)) is not None}
    env = _merged(before, added)
    if not flags.unset_env:
        return env
    return {name: value for name, value in (env or {}).items() if name not in flags.unset_env}


def _env_file(name: str, sources: ConfigSources) -> tuple[Variable, ...]:
    try:
        return variables(_content(name, "--env-file", sources).decode())
    except ValueError as error:
        raise click.BadParameter(f"{name}: {error}", param_hint="--env-file") from error


def _value(item: Variable, sources: ConfigSources) -> str | None:
    """A variable that is to be taken over and is not set here is not set there."""
    return sources.environ.get(item.name) if item.value is None else item.value


def _init(before: Init | None, entrypoint: tuple[str, ...] | None, command: tuple[str, ...]) -> Init | None:
    if entrypoint is None and not command:
        return before
    init = before or Init()
    # an `exec` would win over what was asked for here
    init = replace(init, exec=None, entrypoint=init.entrypoint if entrypoint is None else entrypoint)
    return replace(init, cmd=command) if command else init


def _guest(config: MachineConfig, flags: Flags) -> Guest | None:
    """A preset stands for itself until other flags change it."""
    asked = Guest(cpus=flags.cpus, cpu_kind=flags.cpu_kind, memory_mb=flags.memory)
    base = config.guest
    if flags.vm_size is not None:
        if asked == Guest():
            return None
        base = _preset(flags.vm_size)
    elif base is None and config.size in PRESETS and asked != Guest():
        base = _preset(config.size or "")
    if asked == Guest():
        return base
    guest = base or Guest()
    return replace(
        guest,
        cpus=guest.cpus if asked.cpus is None else asked.cpus,
        cpu_kind=asked.cpu_kind or guest.cpu_kind,
        memory_mb=guest.memory_mb if asked.memory_mb is None else asked.memory_mb,
    )


def _preset(name: str) -> Guest:
    size = PRESETS[name]
    kind: Literal["shared", "performance"] = "performance" if size.cpu_kind == "performance" else "shared"
    return Guest(cpus=size.cpus, cpu_kind=kind, memory_mb=size.memory_mb)


def _files(
    before: tuple[File, ...] | None, given: tuple[LocalFile, ...], sources: ConfigSources
) -> tuple[File, ...] | None:
    """A path is there once: the last one given for it. What has no room in the config, which is kept in the machine's
    record, is named there by its digest, and uploaded before the order (`uploads`)."""
    if not given:
        return before
    files = {file.guest_path: file for file in before or ()}
    total = 0
    for item in given:
        data = _content(item.local, "--file", sources)
        if len(data) > MAX_UPLOAD_BYTES:
            _refuse_size(item)
        if total + len(data) <= _FILES_MAX:
            total += len(data)
            files[item.guest_path] = File(guest_path=item.guest_path, raw_value=base64.b64encode(data).decode())
        else:
            digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
            files[item.guest_path] = File(guest_path=item.guest_path, digest=digest, size=len(data))
    return tuple(files.values())


def _refuse_size(item: LocalFile) -> NoReturn:
    text = (
        f"{item.local} is larger than {MAX_UPLOAD_BYTES >> 20} MiB, the most that a file may have; put it into the"
        " image, or on a volume with `hawker cp`"
    )
    raise click.BadParameter(text, param_hint="--file")


def _processes(before: tuple[MachineProcess, ...] | None, user: str | None) -> tuple[MachineProcess, ...] | None:
    if user is None:
        return before
    return tuple(replace(process, user=user) for process in before or (MachineProcess(),))


def _stop(before: StopConfig | None, flags: Flags) -> StopConfig | None:
    if flags.stop_signal is None and flags.stop_timeout is None:
        return before
    stop = before or StopConfig()
    return replace(stop, signal=flags.stop_signal or stop.signal, timeout=flags.stop_timeout or stop.timeout)


def _content(name: str, option: str, sources: ConfigSources) -> bytes:
    try:
        return sources.read(name)
    except OSError as error:
        raise click.BadParameter(f"cannot read {name}: {error.strerror}", param_hint=option) from error
