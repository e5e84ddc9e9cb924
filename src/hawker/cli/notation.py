"""How people write values on a command line: sizes, pairs, times, files. Pure text to values; `config_notation` has
those of a machine's config. Light, since a list of machines imports it.

Every function raises `ValueError` with a text that says what was expected; `Written` shows that as the option's error.
"""

import re
import shlex
from collections.abc import Callable, Iterable
from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar

import click

from hawker.cli.lazy import found
from hawker.clock import SystemClock
from hawker.value_object import ValueObject

T = TypeVar("T")

E = TypeVar("E", bound=StrEnum)

_MEMORY = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_MIB_PER_UNIT = {"": 1.0, "k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0 * 1024}


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
    """An option that takes the values of an enum, or of some of its members, and passes on members."""

    def __init__(self, kind: type[E], members: Iterable[E] | None = None) -> None:
        super().__init__([member.value for member in (kind if members is None else members)])
        self._kind = kind

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> E:
        return self._kind(super().convert(value, param, ctx))


def memory_mib(text: str) -> int:
    """ "512" and "512m" are MiB, "1g" and "1.5GiB" what one expects."""
    match = _MEMORY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not an amount of memory such as 512, 512m or 1g")
    return max(1, round(float(match[1]) * _MIB_PER_UNIT[match[2].lower()])) if float(match[1]) else 0


def whole_cpus(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"{text!r} is not a number of whole cpus; shared ones (--cpu-kind) are shared by machines")
    return int(text)


def pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not key or not sign:
        raise ValueError(f"{text!r} is not of the form KEY=VALUE")
    return key, value


def header(text: str) -> tuple[str, str]:
    """As curl has it."""
    name, colon, value = text.partition(":")
    if not name.strip() or not colon:
        raise ValueError(f"{text!r} is not of the form NAME: VALUE")
    return name.strip(), value.strip()


def moment(text: str) -> float:
    """Unix seconds of a moment that is given as a length of time before now, or as a date and time."""
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone().timestamp()
    except ValueError:
        return SystemClock().now() - _ago_s(text)


def _ago_s(text: str) -> float:
    try:
        ago_s: float = found("hawker.config.duration", "parse_seconds")(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither a length of time such as 90, 10m or 2h nor a time such as 2026-01-02T03:04:05"
        ) from None
    return ago_s


class Variable(ValueObject, frozen=True):
    """Of the environment. Without a value it is taken over from the caller's own environment."""

    name: str
    """Without `=`."""
    value: str | None = None
    """Any text, also an empty one."""


def variable(text: str) -> Variable:
    name, sign, value = text.partition("=")
    if not name:
        raise ValueError(f"{text!r} is not of the form NAME=VALUE or NAME")
    return Variable(name, value if sign else None)


def variables(text: str) -> tuple[Variable, ...]:
    """A file of them, read as docker reads it: one a line, empty lines and lines that begin with # left out, quotes and
    blanks at a value's end kept."""
    lines = (line.lstrip() for line in text.removeprefix("\ufeff").splitlines())
    return tuple(_plain_variable(line) for line in lines if line and not line.startswith("#"))


def _plain_variable(line: str) -> Variable:
    found = variable(line if "=" in line else line.rstrip())
    if any(map(str.isspace, found.name)):
        export = "; `export` is for a shell, leave it out" if found.name.startswith("export ") else ""
        raise ValueError(f"variable {found.name!r} has a blank in its name{export}")
    return found


class LocalFile(ValueObject, frozen=True):
    """A file on this side and where it goes in the machine."""

    guest_path: str
    """Absolute."""
    local: str
    """A path of this computer."""


def local_file(text: str) -> LocalFile:
    guest_path, sign, local = text.partition("=")
    if not sign or not local or not guest_path.startswith("/"):
        raise ValueError(f"{text!r} is not of the form /path/in/machine=LOCAL_FILE")
    return LocalFile(guest_path, local)


def words(text: str) -> tuple[str, ...]:
    """As a shell splits them."""
    return tuple(shlex.split(text))


def seconds(text: str) -> float:
    """Plain, or as a duration."""
    parsed: float = found("hawker.config.duration", "parse_seconds")(text)
    return parsed
