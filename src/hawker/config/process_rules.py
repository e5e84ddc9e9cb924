"""What must hold of anything that runs, be it the machine, one of its processes or a container: its image, commands,
variables, files, and what follows its end. Pure; each rule yields complaints that open with the field's path."""

import base64
import binascii
import posixpath
import re
import signal
from collections.abc import Iterable, Iterator
from typing import Protocol

from hawker.config.duration import duration_complaints
from hawker.config.machine import EnvFrom, File, MachineConfig, MachineRestart, MachineSecret, StopConfig

_NAMES = {entry.name: int(entry) for entry in signal.Signals}

LONGEST_STOP_S = 300.0
"""The most time that a machine may be given to end after a signal."""

SIGNAL_NAMES, SIGNAL_NUMBERS = tuple(_NAMES), tuple(sorted(set(_NAMES.values())))


def signal_number(value: str | int) -> int:
    """The number of the signal "SIGTERM", "TERM", "term", 15 or "15". Raises `ValueError` when there is no such
    signal."""
    if isinstance(value, str) and not value.isascii():
        raise ValueError(f"{value!r} is not a signal")
    if isinstance(value, int) or value.isdecimal():
        return _checked(int(value))
    name = value.upper()
    number = _NAMES.get(name) or _NAMES.get(f"SIG{name}")
    if number is None:
        raise ValueError(f"{value!r} is not a signal")
    return number


def signal_name(value: str | int) -> str:
    """The full name, such as "SIGTERM". Raises `ValueError`."""
    return signal.Signals(signal_number(value)).name


def _checked(number: int) -> int:
    if number not in _NAMES.values():
        raise ValueError(f"{number} is not a signal")
    return number


# Which secrets a config names. Pure.


def in_files(config: MachineConfig) -> Iterator[tuple[str, str]]:
    """Path in the config and name of each secret whose base64 text is the content of a file."""
    yield from _in_files("", config.files or ())
    for number, container in enumerate(config.containers or ()):
        yield from _in_files(f"containers[{number}].", container.files or ())


def in_processes(config: MachineConfig) -> Iterator[tuple[str, str]]:
    """Path in the config and name of each secret that processes and containers ask for by name."""
    for index, process in enumerate(config.processes or ()):
        yield from _asked(f"processes[{index}]", process.secrets or ())
    for index, container in enumerate(config.containers or ()):
        yield from _asked(f"containers[{index}]", container.secrets or ())


def _in_files(path: str, files: Iterable[File]) -> Iterator[tuple[str, str]]:
    for index, file in enumerate(files):
        if file.secret_name:
            yield f"{path}files[{index}].secret_name", file.secret_name


def _asked(path: str, secrets: Iterable[MachineSecret]) -> Iterator[tuple[str, str]]:
    for place, secret in enumerate(secrets):
        yield f"{path}.secrets[{place}]", secret.name or secret.env_var or ""


# Signals by the names and numbers that clients send.

MAX_IMAGE_CHARS = 1024
MAX_ENV, MAX_ENV_BYTES = 2000, 128 * 1024
MAX_ARGV_BYTES = 128 * 1024
MAX_FILES, MAX_FILES_BYTES = 256, 1024 * 1024
MAX_CONTENTS_BYTES = 4 << 20  # of files, wherever their content is from, that are not uploaded: what a pilot is given
MAX_UPLOAD_BYTES = 256 << 20  # of a file that is uploaded beside the config
MAX_UPLOADS_BYTES = 1 << 30  # of all such files of a machine
_DIGEST = re.compile("sha256:[0-9a-f]{64}")
MAX_STOP_TIMEOUT_S = 300.0
MAX_RETRIES = 1_000_000


class Runs(Protocol):
    """A process or a container, as far as they are alike."""

    @property
    def exec(self) -> tuple[str, ...] | None: ...
    @property
    def entrypoint(self) -> tuple[str, ...] | None: ...
    @property
    def cmd(self) -> tuple[str, ...] | None: ...
    @property
    def user(self) -> str | None: ...
    @property
    def env(self) -> dict[str, str] | None: ...
    @property
    def secrets(self) -> tuple[MachineSecret, ...] | None: ...
    @property
    def env_from(self) -> tuple[EnvFrom, ...] | None: ...


def image_complaints(path: str, image: str | None) -> Iterator[str]:
    if not image:
        yield f"{path} is required"
    elif len(image) > MAX_IMAGE_CHARS:
        yield f"{path} is longer than {MAX_IMAGE_CHARS} characters"
    elif not image.isprintable() or " " in image:
        yield f"{path} has a space or a control character in it"


def run_complaints(path: str, runs: Runs) -> Iterator[str]:
    """Commands, user and variables."""
    yield from argv_complaints(path, runs.exec, runs.entrypoint, runs.cmd)
    if "\0" in (runs.user or ""):
        yield f"{path}.user has a zero byte in it"
    yield from env_complaints(f"{path}.env", runs.env)
    for place, secret in enumerate(runs.secrets or ()):
        if not secret.env_var:
            yield f"{path}.secrets[{place}] needs an env_var"
        else:
            yield from env_complaints(f"{path}.secrets[{place}].env_var", {secret.env_var: ""})
    for place, source in enumerate(runs.env_from or ()):
        if not source.env_var or not source.field_ref:
            yield f"{path}.env_from[{place}] needs an env_var and a field_ref"
        else:
            yield from env_complaints(f"{path}.env_from[{place}].env_var", {source.env_var: ""})


def env_complaints(path: str, env: dict[str, str] | None) -> Iterator[str]:
    """The complaints about variables. What is too large is looked at no further: the event loop waits meanwhile."""
    if bytes_of(env) > MAX_ENV_BYTES:
        yield f"{path} is larger than {MAX_ENV_BYTES} bytes"
        return
    if len(env or {}) > MAX_ENV:
        yield f"{path} has more than {MAX_ENV} variables"
        return
    for key, value in (env or {}).items():
        if not key or "=" in key or "\0" in key:
            yield f"{path}: {key!r} cannot be the name of a variable"
        if "\0" in value:
            yield f"{path}.{key} has a zero byte in it"


def argv_complaints(path: str, *commands: tuple[str, ...] | None) -> Iterator[str]:
    words = "".join("".join(command or ()) for command in commands)
    if "\0" in words:
        yield f"{path} has a zero byte in a command"
    if len(words.encode()) > MAX_ARGV_BYTES:
        yield f"{path} has commands larger than {MAX_ARGV_BYTES} bytes"


def files_complaints(path: str, files: tuple[File, ...]) -> Iterator[str]:
    if len(files) > MAX_FILES:
        yield f"{path} has more than {MAX_FILES} items"
    if raw_bytes(files) > MAX_FILES_BYTES:
        yield f"{path} are larger than {MAX_FILES_BYTES} bytes together"
    if sum(file.size or 0 for file in files) > MAX_UPLOADS_BYTES:
        yield f"{path} that were uploaded are larger than {MAX_UPLOADS_BYTES} bytes together"
    for index, file in enumerate(files):
        yield from (f"{path}[{index}].{complaint}" for complaint in _file(file))


def raw_bytes(files: Iterable[File]) -> int:
    """The bytes of the contents that are given in the config itself, once they are decoded."""
    return sum(len(file.raw_value or "") for file in files) * 3 // 4


def _file(file: File) -> Iterator[str]:
    yield from path_complaints("guest_path", file.guest_path or "")
    if file.mode is not None and not 0 <= file.mode <= 0o7777:
        yield f"mode must be between 0 and {0o7777} (decimal), not {file.mode}"
    try:
        base64.b64decode(file.raw_value or "", validate=True)
    except (binascii.Error, ValueError):
        yield "raw_value is not base64"
    yield from _upload(file)
    given = [name for name in ("raw_value", "secret_name", "image_config", "digest") if getattr(file, name)]
    if len(given) > 1:
        yield f"{' and '.join(given)} exclude each other"


def _upload(file: File) -> Iterator[str]:
    """What the config itself has no content of."""
    if file.digest is None:
        if file.size is not None:
            yield "size belongs to a digest"
    elif not _DIGEST.fullmatch(file.digest):
        yield f"digest must be sha256: and 64 lowercase hex characters, not {file.digest!r:.100}"
    elif not 1 <= (file.size or 0) <= MAX_UPLOAD_BYTES:
        yield f"size must be between 1 and {MAX_UPLOAD_BYTES} bytes, not {file.size}"


def path_complaints(field: str, path: str) -> Iterator[str]:
    """A path of something inside: not the root itself. Two slashes in front, which `normpath` keeps, are taken: there
    are machines with such a path, and where it leads is seen when they are launched."""
    if not path.startswith("/") or path.endswith("/") or "\0" in path or posixpath.normpath(path) != path:
        yield f"{field} must be an absolute path without . and .., not {path!r}"


def restart_complaints(path: str, restart: MachineRestart | None) -> Iterator[str]:
    if restart and restart.policy == "spot-price":
        yield f"{path}.policy: spot-price is not served by this node yet: there is no spot price"
    if restart and not 0 <= (restart.max_retries or 0) <= MAX_RETRIES:
        yield f"{path}.max_retries must be between 0 and {MAX_RETRIES}, not {restart.max_retries}"


def stop_complaints(path: str, stop: StopConfig | None) -> Iterator[str]:
    if stop is None:
        return
    yield from duration_complaints(f"{path}.timeout", stop.timeout, 0.0, MAX_STOP_TIMEOUT_S)
    try:
        signal_number(stop.signal or "SIGINT")
    except ValueError as error:
        yield f"{path}.signal: {error}"


def bytes_of(pairs: dict[str, str] | None) -> int:
    return len("".join(pairs).encode()) + len("".join(pairs.values()).encode()) if pairs else 0
