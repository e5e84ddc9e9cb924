"""How people write parts of a machine's config: mounts, restart policies, checks, durations. Pure text to values, with
the errors of `notation`.
"""

import re
from ipaddress import ip_address
from typing import Literal

from hawker.cli.notation import pair
from hawker.config import MachineCheck, MachineRestart
from hawker.config.duration import format_duration, parse_seconds
from hawker.config.machine import Mount
from hawker.ids import is_volume_id
from hawker.value_object import ValueObject

_CHECK_TIMES = frozenset({"interval", "timeout", "grace"})


def mount(text: str) -> Mount:
    """ "data:/var/lib/data", "vol_0123456789abcdef:/data": a name gets a free volume of that name."""
    volume, sign, path = text.partition(":")
    if sign and volume.startswith(("/", ".", "~")):
        raise ValueError(f"{volume!r} is a path: only volumes can be mounted; `hawker cp` copies files into a machine")
    if path.rpartition(":")[2] in ("ro", "rw", "z", "Z"):
        raise ValueError(f"{text!r}: a volume is mounted for reading and writing; leave out :{path.rpartition(':')[2]}")
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


class NamedCheck(ValueObject, frozen=True):
    name: str
    """Unique in a config."""
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


class PublishedPort(ValueObject, frozen=True):
    """A port of the host that leads to one of the machine. `address` is `*` for all that the host publishes at."""

    address: str
    port: int
    """1 to 65535, at the host."""
    internal: int
    """1 to 65535, in the machine."""
    handlers: tuple[str, ...] = ()
    """`tls`, `http` and so on; none for a plain connection."""
    udp: bool = False
    """Datagrams, and no connections."""


def published(text: str) -> PublishedPort:
    """ "8080:80", "127.0.0.1:8080:80", "[::1]:8080:80", "443:80/tls+http", "53:53/udp"; "8080" alone is 8080:8080."""
    address = r"(?:(\[[0-9a-fA-F:]+\]|[\d.]+|\*):(?=\d+:))?"
    match = re.fullmatch(address + r"(\d{1,5})(?::(\d{1,5}))?(?:/([a-z_+]+))?", text)
    if match is None:
        raise ValueError(f"{text!r} is not a port such as 8080:80, 127.0.0.1:8080:80 or 8080:80/http")
    place, port = (match[1] or "*").strip("[]"), int(match[2])
    if place != "*":
        ip_address(place)
    handlers = tuple(each for each in (match[4] or "").split("+") if each and each != "tcp")
    udp = "udp" in handlers
    if udp and handlers != ("udp",):
        raise ValueError(f"{text!r}: handlers are for TCP, a port of UDP has none")
    return PublishedPort(place, port, int(match[3] or port), () if udp else handlers, udp)


def duration(text: str) -> str:
    """A Go duration from one, or from a plain number of seconds."""
    return format_duration(round(parse_seconds(text) * 1e9))
