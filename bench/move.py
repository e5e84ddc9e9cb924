"""How long a machine is away when it moves with its volume, warm and cold in one run, between two daemons of this host;
and what its writes cost before, meanwhile and after: a program in the machine that writes 4 KiB over and over, each
synced before the next (O_DSYNC), or, with `--writes direct`, past its page cache and a thousand times a second at most,
as a prototype was measured (O_DIRECT). Files that the moves put aside are removed, so the disk has two copies at once.

    python bench/move.py [MIB STORED] [GB OF THE VOLUME] [ROUNDS] [--driver container|qemu] [--modes cold,warm]
                         [--writes synced|direct] [--small FILES]

With `--small` there are that many files of 4 KiB, too, each with the hole that a removed one has left beside it.
"""

import argparse
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, time

import anyio

from hawker.api.contract.machine import Machine
from hawker.api.contract.move import GET_MOVE, MOVE_MACHINE, Move, MoveParams, MoveRequest
from hawker.chaos.guests import bring_kernels
from hawker.errors import HawkerError
from hawker.value_object import ValueObject
from tests.e2e.images import toolbox, write_layout
from tests.e2e.shop import Shop
from tests.e2e.test_fleet_join import Host
from tests.e2e.test_volumes import make
from tests.e2e.two_hosts import met, two_hosts
from tests.fixtures.parts import ImageParts
from tests.kernel import kernels
from tests.rootfs import host_programs
from tests.waiting import eventually

WITHIN_S = 1800.0
QUIET_S = 10.0
"""So long the machine writes before each move, and after it."""

ROOM_MIB = 4096
"""Of the disk, beside two copies of what is stored: what the nodes leave free, their images and logs."""

_CALLS = {"x86_64": (228, 9, 18, 0x4000), "aarch64": (113, 222, 68, 0x10000)}
"""By machine: clock_gettime, mmap, pwrite64, and O_DIRECT."""

_SYNC = {"x86_64": 162, "aarch64": 81}
_SMALL = """my ($files, $sync) = @ARGV; sub file { sprintf('/data/small/%d/%d', $_[0] / 1000, $_[0]) }
mkdir '/data/small'; for my $n (0 .. 2 * $files - 1) { mkdir "/data/small/" . int($n / 1000) unless $n % 1000;
open(my $file, '>', file($n)) or die; print $file 'x' x 4096; close $file } syscall($sync);
unlink file(2 * $_) for 0 .. $files - 1; syscall($sync)"""

_BEGIN = """use Fcntl; my ($clock, $mmap, $pwrite, $direct) = (%d, %d, %d, %d);
sub now { syscall($clock, 0, my $t = pack('qq', 0, 0)); my ($s, $n) = unpack('qq', $t); $s + $n / 1e9 }"""
_WRITES = """sysopen(my $probe, '/data/probe', O_RDWR | O_CREAT | $how) or die;
open(my $times, '>>', '/data/times') or die; my $page = syscall($mmap, 0, 4096, 3, 0x22, -1, 0);
for (;;) { my $at = now(); syscall($pwrite, fileno($probe), $page, 4096, 0) == 4096 or die;
syswrite($times, sprintf("%.6f %.3f\\n", $at, 1e3 * (now() - $at))); select(undef, undef, undef, $pause) if $pause }"""
_HOW = {"synced": "my ($how, $pause) = (O_DSYNC, 0);", "direct": "my ($how, $pause) = ($direct, 0.001);"}
_FIGURES = """my ($since, $until) = @ARGV; open(my $times, '<', '/data/times') or die; my (@took, $last); my $gap = 0;
while (<$times>) { /^([\\d.]+) ([\\d.]+)$/ and $1 >= $since or next; last if $1 >= $until; my ($at, $ms) = ($1, $2);
$gap = $at - $last if defined $last and $at - $last > $gap; $last = $at; push @took, $ms }
@took = sort { $a <=> $b } @took;
printf "%d %s %s %s", scalar @took, $took[@took / 2] // 0, $took[@took * 0.99] // 0, $gap"""


class Writes(ValueObject, frozen=True):
    """Those that began within `of_s` seconds; `gap_s` is the longest time between the beginnings of two."""

    count: int
    p50_ms: float
    p99_ms: float
    gap_s: float
    of_s: float

    @property
    def per_second(self) -> float:
        return self.count / self.of_s

    def __str__(self) -> str:
        return f"p50 {self.p50_ms:.2f} ms, p99 {self.p99_ms:.2f} ms, {self.per_second:.0f} a second"


def image_with_perl(place: Path) -> ImageParts:
    """Debian's own Perl, without a library: what writes and counts in the machine begins no other process for it."""
    perl = shutil.which("perl")
    assert perl is not None, "it is essential in Debian"
    root = host_programs(place)
    said = subprocess.run(["ldd", perl], capture_output=True, text=True, check=True).stdout
    base = Path(f"/usr/lib/{platform.machine()}-linux-gnu/perl-base")
    libraries = [Path(word) for word in said.split() if word.startswith("/")]
    for source, target in [(Path(perl), root / "bin/perl"), *((each, root / str(each)[1:]) for each in libraries)]:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    shutil.copytree(base, root / str(base)[1:])
    return toolbox(place)


def perl(script: str) -> list[str]:
    return ["/bin/perl", "-e", f"{_BEGIN % _CALLS[platform.machine()]} {script}"]


async def started(shop: Shop, image: str, given: argparse.Namespace) -> Machine:
    volume = await make(shop, region="mad", size_gb=given.gb)
    config = {
        "image": image,
        "guest": {"memory_mb": 256},
        "mounts": [{"volume": volume.id, "path": "/data"}],
        "init": {"exec": perl(_HOW[given.writes] + _WRITES)},
        "stop_config": {"signal": "SIGKILL", "timeout": 1},
    }

    async def ran() -> Machine | None:
        try:
            return await shop.run(config, name="writes")
        except HawkerError:
            return None

    machine = await eventually(ran, WITHIN_S)
    assert machine is not None
    for _ in range(given.mib // 64):
        await shop.shell(machine.id, "dd if=/dev/urandom of=/data/big bs=1M count=64 oflag=append conv=notrunc")
    if given.small:
        await shop.said(machine.id, *perl(_SMALL), str(given.small), str(_SYNC[platform.machine()]))
    return machine


async def moved(shop: Shop, machine: Machine, to: str, mode: str) -> tuple[Move, float]:
    """And the seconds from the order to its end."""
    began = monotonic()

    async def ordered() -> Move | None:
        try:
            return await shop.client.call(
                MOVE_MACHINE, params=shop.params(machine.id), body=MoveRequest(to=to, mode=mode)
            )
        except HawkerError:
            return None

    made = await eventually(ordered, WITHIN_S)
    assert made is not None

    async def over() -> Move | None:
        try:
            move = await shop.client.call(GET_MOVE, params=MoveParams(move_id=made.id))
        except HawkerError:
            return None
        return move if move.state in ("done", "aborted") else None

    move = await eventually(over, WITHIN_S)
    assert move is not None and move.state == "done", move
    await shop.wait(machine.id, "started")
    return move, monotonic() - began


async def writes(shop: Shop, machine: Machine, since: float, until: float) -> Writes:
    """Those that began between these moments: Unix seconds."""
    text = await shop.said(machine.id, *perl(_FIGURES), str(since), str(until))
    count, p50_ms, p99_ms, gap_s = text.split()
    return Writes(int(count), float(p50_ms), float(p99_ms), float(gap_s), until - since)


async def measure(hosts: Sequence[Host], image: str, given: argparse.Namespace) -> None:
    await met(hosts)
    async with hosts[0].node.client() as client:
        shop = Shop(client, "bench")

        async def opened() -> bool:
            try:
                return bool(await shop.open())
            except HawkerError:
                return False

        await eventually(opened, WITHIN_S)
        machine = await started(shop, image, given)
        for _ in range(given.rounds):
            for mode in given.modes.split(","):
                await measure_one(hosts, shop, machine, mode, given)


async def measure_one(
    hosts: Sequence[Host], shop: Shop, machine: Machine, mode: str, given: argparse.Namespace
) -> None:
    assert machine.config is not None and machine.config.mounts
    volume = str(machine.config.mounts[0].volume)
    here = 0 if (hosts[0].node.data_dir / "volumes" / volume / "disk").exists() else 1
    await anyio.sleep(QUIET_S)
    now = time()
    before = await writes(shop, machine, now - QUIET_S, now)
    move, took = await moved(shop, machine, hosts[1 - here].node.node_id, mode)
    began, ended = move.created_at.timestamp(), time()
    await anyio.sleep(QUIET_S)
    print(
        f"{given.driver}, {move.mode}: {move.stored_bytes >> 20} MiB stored of {given.gb} GB, away {move.away_ms} ms,"
        f" {move.rate >> 20} MiB/s, {took:.1f} s in all, {move.copied_bytes >> 20} MiB copied"
    )
    print(f"  writes before: {before}")
    if mode == "warm":
        during = await writes(shop, machine, began, ended - (move.away_ms or 0) / 1000)
        print(f"  during the copy: {during}, {during.per_second / before.per_second:.2f} of before")
    across = await writes(shop, machine, began, ended + QUIET_S)
    print(f"  after: {await writes(shop, machine, ended, ended + QUIET_S)}")
    print(f"  no write began for {across.gap_s:.2f} s")
    for host in hosts:  # nothing is taken back here
        for kept in (host.node.data_dir / "volumes/.retired").glob("*"):
            kept.unlink()


def main(given: argparse.Namespace) -> None:
    with TemporaryDirectory(prefix="hawker-bench-") as place:
        free_mib = shutil.disk_usage(place).free >> 20
        if free_mib < 2 * given.mib + ROOM_MIB:
            raise SystemExit(f"{2 * given.mib + ROOM_MIB} MiB of {place} are needed, and {free_mib} are free")
        image = write_layout(Path(place) / "layout", image_with_perl(Path(place) / "programs"))
        room = ("--disk-mib", str(4 * given.gb * 1024), "--driver", given.driver)  # most of a volume is not stored

        def prepare(host: Host) -> None:
            if given.driver == "qemu":
                bring_kernels(host.node.place, kernels())

        with two_hosts(Path(place), (room, room), prepare) as hosts:
            anyio.run(measure, hosts, image, given)


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("mib", type=int, nargs="?", default=1024)
    options.add_argument("gb", type=int, nargs="?", default=10)
    options.add_argument("rounds", type=int, nargs="?", default=2)
    options.add_argument("--driver", choices=("container", "qemu"), default="container")
    options.add_argument("--modes", default="cold,warm")
    options.add_argument("--writes", choices=tuple(_HOW), default="synced")
    options.add_argument("--small", type=int, default=0, metavar="FILES")
    main(options.parse_args())
