"""Where the attacks take place: a part of this host with networks, mounts and processes of its own.

`run_apart` makes it, and runs the command again inside, which lays the ground there: one node or a fleet. Whatever ends
it, all of it is gone. Root only.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

from hawker.chaos.daemon import HAWKER, LIMITS, Daemon
from hawker.chaos.data_disk import DataDisk
from hawker.chaos.fleet.network_lab import LabHost, NetworkLab
from hawker.chaos.fleet.real_fleet import LabFleet
from hawker.chaos.hostile.outside import REGISTRY_PORT
from hawker.cli.exits import ExitStatus
from hawker.clock import Clock
from hawker.errors import CannotStart
from hawker.value_object import ValueObject

OUTSIDE = "11.22.33.44"
PORT = 4280
DOMAIN, ZONE_PORT = "hostile.example", 5353
"""The platform's own domain on a node alone, and where its name server is asked."""
_NODES = 3
_ATTACKERS, _BYSTANDERS, _OPERATORS = 66, 77, 88  # of the addresses of the street
_DISK_MIB = 8192
_ENDS_WITHIN_S = 180.0
_CLOUD = (
    OUTSIDE, "169.254.169.254", "169.254.170.2", "168.63.129.16", "100.100.100.200", "192.0.0.192",
)  # fmt: skip
_CLOUD_IPV6 = ("fd00:ec2::254", "fd20:ce::254")
_FLAGS = ("--cpus", "64", "--memory-mib", "65536", "--reconcile-every-s", "5", "--logs-mib", "1")
_APART = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private")
_FIRST = """set -e
ip link set lo up
mount --rbind /sys/fs/cgroup "$1"
mount -t sysfs sysfs /sys
mount --rbind "$1" /sys/fs/cgroup
umount -l "$1"
shift
"$@"
"""
"""The shell stays the first process, which takes in those whose parent has ended."""


def run_apart(arguments: Sequence[str], where: Path | None) -> int:
    """Run `hawker chaos hostile ARGUMENTS` in a part of the host of its own; its exit status. It holds the other end of
    a pipe: when that is closed, because we were told to end or were killed, it ends in order."""
    if os.geteuid() != 0:
        raise CannotStart("hawker chaos hostile needs root: it makes networks, mounts and containers of its own")
    with TemporaryDirectory(prefix="hawker-hostile-", dir=where, ignore_cleanup_errors=True) as made:
        stash = Path(made, "stash")
        stash.mkdir()
        again = (HAWKER, "chaos", "hostile", "--inside", made, *arguments)
        command = (*_APART, "sh", "-c", _FIRST, "sh", str(stash), *again)
        with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as running:
            return _awaited(running)


def _awaited(running: "subprocess.Popen[bytes]") -> int:
    assert running.stdin is not None
    told: list[int] = []

    def end(number: int, _: object) -> None:
        told.append(number)
        assert running.stdin is not None
        running.stdin.close()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        while not told:
            with _forgiven():
                return running.wait(1.0)
        try:
            running.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            running.kill()
        return ExitStatus.INTERRUPTED
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _forgiven() -> Iterator[None]:
    try:
        yield
    except subprocess.TimeoutExpired:
        return


def end_with_the_pipe() -> None:
    """Interrupt this process as Ctrl-C does once nobody holds the other end of its standard input."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        os.kill(os.getpid(), signal.SIGINT)

    Thread(target=watch, daemon=True, name="pipe").start()


class LabGround(ValueObject, frozen=True):
    """`daemons` of the nodes, the attacked one first. Strangers and the attacker, the bystander and the operator call
    from addresses of their own. `near` is a host in the network of the first node, whose address there is `itself`.
    `pages`: machines can be asked at their own addresses from here."""

    daemons: Sequence[Daemon]
    near: str
    itself: str
    region: str
    """Code of the first node's."""
    pages: bool
    attackers: str
    """The IP address that they call from."""
    bystanders: str
    """The IP address that they call from."""
    operators: str
    """The IP address that they call from."""


@contextmanager
def node_ground(directory: Path, clock: Clock, left: list[str], before_it: Sequence[str] = ()) -> Iterator[LabGround]:
    """One node, on this host, with a disk of its own; `before_it` is a command that runs it. The host beside it answers
    as clouds and registries do. At the end all of it is gone, with the directory; `left` hears what the node left."""
    own = directory / "node"
    with _removed(own), ExitStack() as stack:
        disk = DataDisk(own / "ground.img", own / "data")
        stack.callback(disk.remove)
        disk.make(_DISK_MIB)
        lab = _street(stack, own, 1)
        address = lab.address(254)
        _lead_outside(lab.bridge, lab.hosts[0])
        stack.enter_context(_servers(lab.hosts[0]))
        where = ("--listen", f"{address}:{PORT}", "--insecure-registry", f"{OUTSIDE}:{REGISTRY_PORT}")
        zone = ("--domain", DOMAIN, "--dns-zone-listen", f"{address}:{ZONE_PORT}")
        daemon = Daemon(own, clock, *where, *zone, *_FLAGS, driver="container", before_it=before_it)
        daemon.environment[LIMITS] = "true"  # an attack meets what a tenant meets
        ground = _ground(lab, (daemon,), near=lab.hosts[0].address, itself=address, region="local", pages=True)
        try:
            daemon.start()
            yield ground
        finally:
            left.extend(daemon.withdraw())


@contextmanager
def fleet_ground(directory: Path, clock: Clock, left: list[str]) -> Iterator[LabGround]:
    """Three nodes, each on a host beside this one. As `node_ground` at the end."""
    own = directory / "fleet"
    with _removed(own), ExitStack() as stack:
        lab = _street(stack, own, _NODES)
        nodes = own / "nodes"
        nodes.mkdir()
        fleet = LabFleet(lab, nodes, clock, *_FLAGS, driver="container")
        for stall in fleet.stalls:
            stall.daemon.environment[LIMITS] = "true"
        daemons, first = [stall.daemon for stall in fleet.stalls], fleet.stalls[0].host
        ground = _ground(lab, daemons, near=lab.hosts[1].address, itself=first.address, region="mad", pages=False)
        stack.callback(lambda: left.extend(fleet.left))
        with fleet:
            yield ground


@contextmanager
def _removed(directory: Path) -> Iterator[None]:
    directory.mkdir()
    try:
        yield
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _street(stack: ExitStack, directory: Path, hosts: int) -> NetworkLab:
    street = directory / "street"
    street.mkdir()
    lab = stack.enter_context(NetworkLab(street, hosts))
    for number in (_ATTACKERS, _BYSTANDERS, _OPERATORS):
        _ip("address", "add", f"{lab.address(number)}/32", "dev", lab.bridge)
    return lab


def _ground(
    lab: NetworkLab, daemons: Sequence[Daemon], *, near: str, itself: str, region: str, pages: bool
) -> LabGround:
    callers = {"attackers": _ATTACKERS, "bystanders": _BYSTANDERS, "operators": _OPERATORS}
    addresses = {who: lab.address(number) for who, number in callers.items()}
    return LabGround(daemons, near=near, itself=itself, region=region, pages=pages, **addresses)


def _lead_outside(link: str, beside: LabHost) -> None:
    """Give the other host the addresses of clouds and of the internet, and this one the way there."""
    _ip("address", "add", "fd98::1/64", "dev", link, "nodad")
    beside.run("ip", "address", "add", "fd98::2/64", "dev", "up0", "nodad")
    for address in _CLOUD:
        beside.run("ip", "address", "add", f"{address}/32", "dev", "lo")
    for address in _CLOUD_IPV6:
        beside.run("ip", "address", "add", f"{address}/128", "dev", "lo", "nodad")
        _ip("-6", "route", "add", address, "via", "fd98::2")
    _ip("route", "add", "default", "via", beside.address)


def _ip(*arguments: str) -> None:
    done = subprocess.run(("ip", *arguments), check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise CannotStart(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


@contextmanager
def _servers(beside: LabHost) -> Iterator[None]:
    command = (*beside.before_it, sys.executable, "-m", "hawker.chaos.hostile.outside")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        try:
            assert running.stdout is not None
            if running.stdout.readline() != b"ready\n":
                raise CannotStart("the servers of the attack do not start: see stderr")
            yield
        finally:
            running.kill()
