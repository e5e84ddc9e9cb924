"""What a config must satisfy beyond its shape. Pure: each rule yields complaints that open with the field's path."""

import base64
import binascii
import posixpath
from collections.abc import Callable, Iterator
from typing import Protocol

from hawker.config import dns
from hawker.config.check import MachineCheck
from hawker.config.duration import parse_duration
from hawker.config.effective import PRESETS, guest
from hawker.config.machine import MachineConfig
from hawker.config.process import File
from hawker.config.served import not_served
from hawker.config.signals import signal_number
from hawker.errors import Unprocessable

MAX_CPUS = 1024
MIN_MEMORY_MIB, MAX_MEMORY_MIB = 32, 16 * 1024 * 1024
MAX_IMAGE_CHARS = 1024
MAX_ENV_BYTES = 128 * 1024
MAX_ARGV_BYTES = 128 * 1024
MAX_METADATA_BYTES = 64 * 1024
MAX_FILES, MAX_FILES_BYTES = 256, 1024 * 1024
MAX_PROCESSES, MAX_CHECKS = 16, 64
MAX_STOP_TIMEOUT_S = 300.0
MAX_RETRIES = 1_000_000


class Served(Protocol):
    """What the driver that will run the machine can do (`runtime.driver.Features` is one)."""

    @property
    def rootfs(self) -> bool: ...


def validate(config: MachineConfig, served: Served) -> None:
    """Raise `Unprocessable` with the first complaint: a value out of range, or a field that is not served yet."""
    for path, reason in not_served(config):
        raise Unprocessable(f"config.{path} is not served by this node yet: {reason}")
    if config.files and not served.rootfs:
        raise Unprocessable("config.files is not served by this node's driver: its machines have no filesystem")
    if dns.asks_inside(config.dns) and not served.rootfs:
        raise Unprocessable("config.dns is not served by this node's driver: its machines use the host's resolver")
    for rule in _RULES:
        for complaint in rule(config):
            raise Unprocessable(f"config.{complaint}")


def validate_metadata(metadata: dict[str, str]) -> None:
    """The rule for metadata alone, for the calls that change nothing else. Raises `Unprocessable`."""
    for complaint in _metadata(MachineConfig(metadata=metadata)):
        raise Unprocessable(complaint)


def _image(config: MachineConfig) -> Iterator[str]:
    if not config.image:
        yield "image is required"
    elif len(config.image) > MAX_IMAGE_CHARS:
        yield f"image is longer than {MAX_IMAGE_CHARS} characters"
    elif not config.image.isprintable() or " " in config.image:
        yield "image has a space or a control character in it"


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
    yield from _environment("env", config.env)
    for index, process in enumerate(config.processes or ()):
        yield from _environment(f"processes[{index}].env", process.env)
        for place, secret in enumerate(process.secrets or ()):
            if not secret.env_var:
                yield f"processes[{index}].secrets[{place}] needs an env_var"
            else:
                yield from _environment(f"processes[{index}].secrets[{place}].env_var", {secret.env_var: ""})
        for place, source in enumerate(process.env_from or ()):
            if not source.env_var or not source.field_ref:
                yield f"processes[{index}].env_from[{place}] needs an env_var and a field_ref"
            else:
                yield from _environment(f"processes[{index}].env_from[{place}].env_var", {source.env_var: ""})


def _environment(path: str, env: dict[str, str] | None) -> Iterator[str]:
    for key, value in (env or {}).items():
        if not key or "=" in key or "\0" in key:
            yield f"{path}: {key!r} cannot be the name of a variable"
        if "\0" in value:
            yield f"{path}.{key} has a zero byte in it"
    if _bytes(env) > MAX_ENV_BYTES:
        yield f"{path} is larger than {MAX_ENV_BYTES} bytes"


def _commands(config: MachineConfig) -> Iterator[str]:
    if len(config.processes or ()) > MAX_PROCESSES:
        yield f"processes has more than {MAX_PROCESSES} items"
    if config.init is not None:
        yield from _argv("init", config.init.exec, config.init.entrypoint, config.init.cmd)
    for index, process in enumerate(config.processes or ()):
        yield from _argv(f"processes[{index}]", process.exec, process.entrypoint, process.cmd)
        if "\0" in (process.user or ""):
            yield f"processes[{index}].user has a zero byte in it"


def _argv(path: str, *commands: tuple[str, ...] | None) -> Iterator[str]:
    words = [word for command in commands for word in command or ()]
    if any("\0" in word for word in words):
        yield f"{path} has a zero byte in a command"
    if sum(len(word.encode()) for word in words) > MAX_ARGV_BYTES:
        yield f"{path} has commands larger than {MAX_ARGV_BYTES} bytes"


def _files(config: MachineConfig) -> Iterator[str]:
    files = config.files or ()
    if len(files) > MAX_FILES:
        yield f"files has more than {MAX_FILES} items"
    if sum(len(file.raw_value or "") for file in files) * 3 // 4 > MAX_FILES_BYTES:
        yield f"files are larger than {MAX_FILES_BYTES} bytes together"
    for index, file in enumerate(files):
        yield from (f"files[{index}].{complaint}" for complaint in _file(file))


def _file(file: File) -> Iterator[str]:
    path = file.guest_path or ""
    if not path.startswith("/") or path.endswith("/") or "\0" in path or posixpath.normpath(path) != path:
        yield f"guest_path must be an absolute path without . and .., not {path!r}"
    if file.mode is not None and not 0 <= file.mode <= 0o7777:
        yield f"mode must be between 0 and {0o7777} (decimal), not {file.mode}"
    try:
        base64.b64decode(file.raw_value or "", validate=True)
    except (binascii.Error, ValueError):
        yield "raw_value is not base64"
    if file.raw_value and file.secret_name:
        yield "raw_value and secret_name exclude each other"


def _metadata(config: MachineConfig) -> Iterator[str]:
    if any(not key for key in config.metadata or {}):
        yield "metadata has an empty key"
    if _bytes(config.metadata) > MAX_METADATA_BYTES:
        yield f"metadata is larger than {MAX_METADATA_BYTES} bytes"


def _checks(config: MachineConfig) -> Iterator[str]:
    if len(config.checks or {}) > MAX_CHECKS:
        yield f"checks has more than {MAX_CHECKS} items"
    for name, check in (config.checks or {}).items():
        yield from (f"checks.{name}.{complaint}" for complaint in _check(check))


def _check(check: MachineCheck) -> Iterator[str]:
    if check.type is None:
        yield "type is required: tcp or http"
    if check.port is None or not 1 <= check.port <= 65535:
        yield f"port must be between 1 and 65535, not {check.port}"
    yield from _duration("interval", check.interval, 1.0, 86_400.0)
    yield from _duration("timeout", check.timeout, 0.001, 300.0)
    yield from _duration("grace_period", check.grace_period, 0.0, 86_400.0)
    if not (check.method or "GET").isalpha():
        yield f"method is not an HTTP method: {check.method!r}"
    if check.path and (not check.path.startswith("/") or not _header_safe(check.path)):
        yield f"path must begin with / and have no control characters, not {check.path!r}"
    for header in check.headers or ():
        if not header.name or not all(_header_safe(text) for text in (header.name, *(header.values or ()))):
            yield "headers: a header needs a name, and no control characters"


def _header_safe(text: str) -> bool:
    return text.isprintable()


def _dns(config: MachineConfig) -> Iterator[str]:
    if config.dns is not None:
        yield from (f"dns.{complaint}" for complaint in dns.complaints(config.dns))


def _ending(config: MachineConfig) -> Iterator[str]:
    restart, stop = config.restart, config.stop_config
    if restart and restart.policy == "spot-price":
        yield "restart.policy: spot-price is not served by this node yet: there is no spot price"
    if restart and not 0 <= (restart.max_retries or 0) <= MAX_RETRIES:
        yield f"restart.max_retries must be between 0 and {MAX_RETRIES}, not {restart.max_retries}"
    if stop is None:
        return
    yield from _duration("stop_config.timeout", stop.timeout, 0.0, MAX_STOP_TIMEOUT_S)
    try:
        signal_number(stop.signal or "SIGINT")
    except ValueError as error:
        yield f"stop_config.signal: {error}"


def _duration(path: str, value: str | int | None, least_s: float, most_s: float) -> Iterator[str]:
    if not value:
        return
    try:
        seconds = parse_duration(str(value))
    except ValueError as error:
        yield f"{path}: {error}"
        return
    if not least_s <= seconds <= most_s:
        yield f"{path} must be between {least_s:g} s and {most_s:g} s, not {value}"


def _bytes(pairs: dict[str, str] | None) -> int:
    return sum(len(key.encode()) + len(value.encode()) for key, value in (pairs or {}).items())


_RULES: tuple[Callable[[MachineConfig], Iterator[str]], ...] = (
    _image,
    _size,
    _env,
    _commands,
    _files,
    _metadata,
    _checks,
    _dns,
    _ending,
)
