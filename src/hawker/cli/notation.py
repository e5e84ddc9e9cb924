"""How people write values on a command line: sizes, pairs, restart policies, checks, files. Pure text to values.

Every function raises `ValueError` with a text that says what was expected; `Written` shows that as the option's error.
"""

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Literal, TypeVar

import click

from hawker.config import MachineCheck, MachineRestart
from hawker.config.duration import format_duration, parse_seconds
from hawker.config.machine import Mount
from hawker.ids import is_volume_id

T = TypeVar("T")

E = TypeVar("E", bound=StrEnum)

_MEMORY = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_MIB_PER_UNIT = {"": 1.0, "k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0 * 1024}
_CHECK_TIMES = frozenset({"interval", "timeout", "grace"})


class Written(click.ParamType[T], Generic[T]):
    """An option's value, read by one of the functions below."""

    def __init__(self, read: Callable[[str], T], name: str) -> None:
        self._read = read
        self.name = name

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> T:
        try:
            return self._read(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class OneOf(click.Choice[str], Generic[E]):
    """An option that takes the values of an enum, and passes on its members."""

    def __init__(self, kind: type[E]) -> None:
        super().__init__([member.value for member in kind])
        self._kind = kind

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> E:
        return self._kind(super().convert(value, param, ctx))


def memory_mib(text: str) -> int:
    """ "512" and "512m" are MiB, "1g" and "1.5GiB" what one expects."""
    match = _MEMORY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not an amount of memory such as 512, 512m or 1g")
    return max(1, round(float(match[1]) * _MIB_PER_UNIT[match[2].lower()])) if float(match[1]) else 0


def pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not key or not sign:
        raise ValueError(f"{text!r} is not of the form KEY=VALUE")
    return key, value


@dataclass(frozen=True, slots=True)
class Variable:
    """Of the environment. Without a value it is taken over from the caller's own environment."""

    name: str
    value: str | None = None


def variable(text: str) -> Variable:
    name, sign, value = text.partition("=")
    if not name:
        raise ValueError(f"{text!r} is not of the form NAME=VALUE or NAME")
    return Variable(name, value if sign else None)


def variables(text: str) -> tuple[Variable, ...]:
    """A file of them: one a line, empty lines and lines that begin with # left out."""
    lines = (line.strip() for line in text.splitlines())
    return tuple(variable(line) for line in lines if line and not line.startswith("#"))


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file on this side and where it goes in the machine."""

    guest_path: str
    local: str


def local_file(text: str) -> LocalFile:
    guest_path, sign, local = text.partition("=")
    if not sign or not local or not guest_path.startswith("/"):
        raise ValueError(f"{text!r} is not of the form /path/in/machine=LOCAL_FILE")
    return LocalFile(guest_path, local)


def mount(text: str) -> Mount:
    """ "data:/var/lib/data", "vol_0123456789abcdef:/data": a name gets a free volume of that name."""
    volume, sign, path = text.partition(":")
    if not volume or not sign or not path.startswith("/"):
        raise ValueError(f"{text!r} is not of the form VOLUME:/path/in/machine")
    return Mount(volume=volume, path=path) if is_volume_id(volume) else Mount(name=volume, path=path)


def restart(text: str) -> MachineRestart:
    policy, sign, retries = text.partition(":")
    known: dict[str, Literal["no", "always", "on-failure"]] = {
        "no": "no",
        "never": "no",
        "always": "always",
        "on-failure": "on-failure",
    }
    if policy not in known or (sign and not retries.isdecimal()):
        raise ValueError(f"{text!r} is none of no, always, on-failure and on-failure:RETRIES")
    return MachineRestart(policy=known[policy], max_retries=int(retries) if sign else None)


@dataclass(frozen=True, slots=True)
class NamedCheck:
    name: str
    check: MachineCheck


def check(text: str) -> NamedCheck:
    """ "tcp:5432", "http:8080/ready", "web=http:8080/,interval=5s,timeout=2s,grace=1s"."""
    target, *times = text.split(",")
    match = re.fullmatch(r"(?:([\w.-]+)=)?(tcp|http|https):(\d{1,5})(/.*)?", target)
    if match is None or (match[2] == "tcp" and match[4]):
        raise ValueError(f"{text!r} is not a check such as tcp:5432 or http:8080/ready")
    kind, port = match[2], int(match[3])
    given = {key: duration(value) for key, value in map(pair, times)}
    if unknown := given.keys() - _CHECK_TIMES:
        raise ValueError(f"{min(unknown)!r} is none of interval, timeout and grace")
    return NamedCheck(
        name=match[1] or f"{kind}-{port}",
        check=MachineCheck(
            type="tcp" if kind == "tcp" else "http",
            port=port,
            path=match[4] or (None if kind == "tcp" else "/"),
            protocol="https" if kind == "https" else None,
            interval=given.get("interval"),
            timeout=given.get("timeout"),
            grace_period=given.get("grace"),
        ),
    )


def words(text: str) -> tuple[str, ...]:
    """As a shell splits them."""
    return tuple(shlex.split(text))


def seconds(text: str) -> float:
    return parse_seconds(text)


def duration(text: str) -> str:
    """A Go duration from one, or from a plain number of seconds."""
    return format_duration(round(parse_seconds(text) * 1e9))
