"""Hosts beside each other on one machine: each has a network and mounts of its own, all are at one bridge.

A host lives as long as its first process, which ends with us: nothing of a street outlives whoever laid it. Root only.
"""

import errno
import os
import signal
import socket
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Self

from hawker.errors import Unavailable

ENDS_WITHIN_S = 60.0
_LOOKS, _LOOK_AGAIN_S = 500, 0.02
_PROC = Path("/proc")
_TABLE = "street"
_NUMBERS = range(8, 255)  # of 10.213.N.0/24; those below are given to machines
_ASKED = 0
"""The number of the bridge of a network whose addresses were asked for."""
_CLAIMED_WITHIN_S, _CLAIM_AGAIN_S = 600.0, 1.0
_FIRST = """set -e
cut -d ' ' -f 2 /proc/self/mounts | while read -r mounted; do
    case "$1" in "${mounted%/}"/*) continue ;; esac
    case "$mounted" in
        */machines/*/rootfs | */machines/*/layers/* | */machines/*/containers/* | */machines/*/volumes/* | \
        */mounts/* | */netns/* | */volumes/vol_*/mounted | */volumes/vol_*/growing) umount -l "$mounted" 2>&- || : ;;
    esac
done
ip link set lo up
mount --rbind /sys/fs/cgroup "$1"
mount -t sysfs sysfs /sys
mount --rbind "$1" /sys/fs/cgroup
umount -l "$1"
echo ready
exec cat
"""
"""A host's own /sys shows its own links; the control groups are everybody's. What nodes beside it have mounted it lets
go of: its copies would keep their loop devices, and the room of their files, when they no longer have it."""


class LabHost:
    """One network namespace, with what is mounted in it. `number` is the last part of its address."""

    def __init__(self, lab: "NetworkLab", number: int) -> None:
        self.number = number
        self._lab = lab
        self._first: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return self._lab.address(self.number)

    @property
    def link(self) -> str:
        """The name, on this machine, of its link's end at the bridge."""
        return f"{self._lab.bridge}-{self.number}"

    @property
    def before_it(self) -> tuple[str, ...]:
        """What to put before a command, so that it runs on this host."""
        assert self._first is not None, "the host has power"
        return ("nsenter", "--target", str(self._first.pid), "--mount", "--net", "--")

    @property
    def has_power(self) -> bool:
        return self._first is not None

    def power_on(self) -> None:
        stash = self._lab.directory / f"stash-{self.number}"
        stash.mkdir(exist_ok=True)
        begin = ("unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", _FIRST, "sh", str(stash))
        self._first = subprocess.Popen(begin, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._first.stdout is not None
        if self._first.stdout.readline() != b"ready\n":
            raise Unavailable(f"host {self.number} cannot be made: see what its commands say on stderr")
        add = ("link", "add", self.link, "type", "veth", "peer", "name", "up0", "netns", str(self._first.pid))
        _ip(*add)
        _ip("link", "set", self.link, "master", self._lab.bridge, "up")
        self.run("ip", "address", "add", f"{self.address}/24", "dev", "up0")
        self.run("ip", "link", "set", "up0", "up")

    def power_off(self) -> None:
        """Its network, its mounts and whatever runs in its network are gone. What runs in a network of its own, as
        machines do, is the caller's to end, before this."""
        if self._first is None:
            return
        first, self._first = self._first, None
        subprocess.run(("ip", "link", "delete", self.link), check=False, capture_output=True)
        for _ in range(_LOOKS):
            for pid in (others := _beside(first.pid)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not others:
                break
            Event().wait(_LOOK_AGAIN_S)  # who is about to die may begin another one
        first.kill()
        first.communicate(timeout=ENDS_WITHIN_S)

    def end_link(self, name: str) -> None:
        """Delete a device of its own, if it is there: a program that has made it ends with it."""
        subprocess.run((*self.before_it, "ip", "link", "delete", name), check=False, capture_output=True)

    def run(self, *command: str) -> str:
        return _out((*self.before_it, *command))

    def drop_from(self, others: Iterable["LabHost"], *, percent: int = 100, everybody: bool = False) -> None:
        """Lose so much of what these hosts, or all, send to this one; nothing else is lost any more."""
        rules = [f"add table ip {_TABLE}", f"delete table ip {_TABLE}", f"add table ip {_TABLE}"]
        rules.append(f"add chain ip {_TABLE} arriving {{ type filter hook input priority -300; }}")
        chance = "" if percent >= 100 else f"numgen random mod 100 < {percent} "
        rules += [f"add rule ip {_TABLE} arriving ip saddr {other.address} {chance}drop" for other in others]
        if everybody:
            rules.append(f"add rule ip {_TABLE} arriving iifname != lo {chance}drop")
        subprocess.run((*self.before_it, "nft", "-f", "-"), input="\n".join(rules).encode(), check=True)


class NetworkLab:
    """`directory` is empty and its own. `network` is the beginning of the hosts' addresses, one that no other lab of
    this machine has where none is given. Bridge and addresses are known within the context; leaving it takes every
    host's power and the bridge away. A network that another process has is waited for."""

    def __init__(self, directory: Path, hosts: int, *, network: str = "") -> None:
        self.directory = directory
        self.hosts = tuple(LabHost(self, each) for each in range(1, hosts + 1))
        self._asked = network
        self._claim: tuple[int, socket.socket] | None = None

    @property
    def bridge(self) -> str:
        return f"hwst{self._number}"

    @property
    def _number(self) -> int:
        assert self._claim is not None, "the context has been entered"
        return self._claim[0]

    def address(self, number: int) -> str:
        return f"{self._asked or f'10.213.{self._number}'}.{number}"

    def __enter__(self) -> Self:
        self._claim = _claimed((_ASKED,) if self._asked else _NUMBERS)
        self._clear()
        try:
            _ip("link", "add", self.bridge, "type", "bridge")
            _ip("address", "add", f"{self.address(254)}/24", "dev", self.bridge)
            _ip("link", "set", self.bridge, "up")
            for host in self.hosts:
                host.power_on()
        except BaseException:
            self._close()
            raise
        return self

    def _clear(self) -> None:
        """Take away the bridge of a street whose layer was killed, and the links of hosts that a program still keeps:
        its number is ours now."""
        for _, name in socket.if_nameindex():
            if name == self.bridge or name.startswith(f"{self.bridge}-"):
                subprocess.run(("ip", "link", "delete", name), check=False, capture_output=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def part(self, *sides: Sequence[LabHost]) -> None:
        """No host hears one of another side. One that is on no side hears all, and is heard."""
        for side in sides:
            others = [host for other in sides if other is not side for host in other]
            for host in side:
                host.drop_from(others)

    def heal(self) -> None:
        for host in self.hosts:
            host.drop_from(())

    def _close(self) -> None:
        assert self._claim is not None
        with self._claim[1]:
            for host in self.hosts:
                host.power_off()
            self._clear()
        self._claim = None


def _claimed(numbers: Iterable[int]) -> tuple[int, socket.socket]:
    """One of these that no other living process has. It is ours until the socket is closed, or our death."""
    for _ in range(int(_CLAIMED_WITHIN_S / _CLAIM_AGAIN_S)):
        for number in numbers:
            claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                claim.bind(f"\0hawker-lab-{number}")
            except OSError as error:
                claim.close()
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return number, claim
        Event().wait(_CLAIM_AGAIN_S)
    raise Unavailable("every network for a lab is another process's: wait until it ends")


def _beside(first: int) -> list[int]:
    """The other processes of its network namespace."""
    network, found = (_PROC / str(first) / "ns" / "net").readlink(), list[int]()
    for folder in _PROC.iterdir():
        with suppress(OSError):
            if folder.name.isdecimal() and int(folder.name) != first and (folder / "ns" / "net").readlink() == network:
                found.append(int(folder.name))
    return found


def _ip(*arguments: str) -> None:
    _out(("ip", *arguments))


def _out(command: Sequence[str]) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
