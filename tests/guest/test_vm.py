"""The pilot as process 1 of a kernel of its own: real boots, emulated, so each test looks at all that one shows."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.clock import SystemClock
from hawker.runtime.driver import ProcessPhase
from hawker.runtime.pilot import frames, messages
from hawker.runtime.pilot.frames import FrameKind, PayloadReader
from hawker.runtime.spec import Ends, GuestLink, ProcessSpec, VolumeDisk
from tests.guest import vm
from tests.guest.vm import Machine, VmPilot, fresh_disks, machine, make_erofs, make_ext4, make_tree, vm_spec
from tests.waiting import wait_for

LINK = GuestLink(mac=vm.MAC, addresses=("fdaa::3/64", "10.1.2.3/24"), gateways=("fdaa::1",), mtu=1400)
OLD_NS = 1_000_000_000 * 10**9  # in 2001


LONG = pytest.mark.long(reason="boots a kernel under emulation; a machine's life is the short form")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """As EROFS; beside it the same as ext4."""
    vm.require_tools()
    place = tmp_path_factory.mktemp("image")
    make_tree(place / "tree")
    make_erofs(place / "tree", place / "erofs")
    make_ext4(place / "ext4", 48 * vm.MIB, place / "tree")
    yield place / "erofs"


@pytest.fixture
def files(tmp_path: Path, image: Path) -> Path:
    fresh_disks(tmp_path, image)
    return tmp_path


def answer(pilot: VmPilot, kind: FrameKind, payload: bytes, channel: int = 50) -> list[int] | str:
    """Numbers, or the reason of DONE or REFUSED."""
    pilot.send(kind, channel, payload)
    while (frame := pilot.next()).channel != channel:
        pass
    reader = PayloadReader(frame.payload)
    if frame.kind in (FrameKind.DONE, FrameKind.REFUSED):
        return reader.string()
    numbers = []
    while reader.more:
        numbers.append(reader.number(8))
    return numbers


def numbers(pilot: VmPilot, kind: FrameKind, payload: bytes = b"") -> list[int]:
    told = answer(pilot, kind, payload)
    assert isinstance(told, list), told
    return told


def freeze(pilot: VmPilot, timeout_ms: int, target: str = "/data") -> list[int] | str:
    return answer(pilot, FrameKind.FREEZE, frames.string(target) + frames.number(timeout_ms, 4))


def is_clean(disk: Path) -> bool:
    """Nothing is left to be replayed or mended."""
    about = subprocess.run(["dumpe2fs", "-h", disk], capture_output=True, text=True, check=True).stdout
    checked = subprocess.run(["e2fsck", "-fn", disk], capture_output=True, check=False)
    return checked.returncode == 0 and "needs_recovery" not in about


def test_a_machine_through_its_life(files: Path) -> None:
    failing = ProcessSpec(argv=("/" + "x" * 200,), env={}, held=True)
    loud = ProcessSpec(argv=("/bin/sh", "-c", "cat /bin/ls /bin/dd /bin/ls; echo last"), env={}, held=True)
    began = SystemClock().now()
    with machine(files) as booted:
        wire = booted.wire(1)
        wire.sendall(os.urandom(200_000) + b"\xfe\x01half")
        first = booted.pilot(booted.wire())
        first.run(vm_spec("echo begun; exec sleep 100000", failing, loud, link=LINK, ends=Ends.TOLD))
        first.take(FrameKind.READY)
        its_world_is_as_it_was_told(first)
        its_network_is_as_it_was_told(first)
        its_start_is_recorded(first, began)
        second = booted.pilot(wire, b"nonce  2")
        second.greet()
        its_clock_and_memory_are_told(second)
        its_volume_is_held_still(booted, wire, first, second)
        its_volume_grows_with_its_disk(booted, first)
        a_flood_on_a_port_harms_nobody(booted, wire, first)
        a_port_that_nobody_holds_costs_nothing(booted, first)
        its_ring_goes_round(first)
        its_journal_keeps_the_latest_runs(first)
        first.stream.sendall(messages.stop_request(15, 10.0))
        told = first.exit()
        assert booted.status() == 0
    assert told.exit_code == 143
    assert first.story().final_exit == told
    assert is_clean(files / "layer") and is_clean(files / "volume")


def its_world_is_as_it_was_told(pilot: VmPilot) -> None:
    mounts = {line.split()[1]: line.split()[2] for line in pilot.shell("cat /proc/mounts").splitlines()[:-1]}
    assert mounts == {
        "/": "overlay",
        "/proc": "proc",
        "/sys": "sysfs",
        "/dev": "devtmpfs",
        "/dev/pts": "devpts",
        "/dev/shm": "tmpfs",
        "/dev/mqueue": "mqueue",
        "/sys/fs/cgroup": "cgroup2",
        "/data": "ext4",
    }
    assert pilot.shell("cat /etc/greeting /proc/sys/kernel/hostname") == "hello\nbox\n0\n"
    assert "No such file" in pilot.shell("ls /modules")
    assert pilot.shell("stat -c %a:%U /") == "755:root\n0\n"
    assert pilot.shell("cat /proc/1/oom_score_adj /proc/self/oom_score_adj") == "-1000\n0\n0\n"
    assert pilot.shell("cat /sys/kernel/mm/lru_gen/enabled /sys/kernel/mm/lru_gen/min_ttl_ms") == "0x0007\n1000\n0\n"
    assert pilot.shell("ulimit -n", user="user") == "65536\n0\n"
    assert "CapEff:\t000001ffffffffff" in pilot.shell("cat /proc/self/status")
    assert "CapEff:\t0000000000000000" in pilot.shell("cat /proc/self/status", user="user")
    assert pilot.shell("id -u; touch /dev/shm/mine", user="user") == "1000\n0\n"
    assert pilot.shell("unshare -U id -u", user="user") == "65534\n0\n"
    assert pilot.shell("stat -c %a /data; echo kept > /data/file; sync", user="user") == "777\n0\n", "as in the image"


def its_network_is_as_it_was_told(pilot: VmPilot) -> None:
    addresses = [line.split() for line in pilot.shell("cat /proc/net/if_inet6").splitlines()[:-1]]
    found = {(words[-1], words[0], words[4]) for words in addresses}
    assert ("lo", "0" * 31 + "1", "80") in found
    assert ("eth0", "fdaa" + "0" * 27 + "3", "82") in found  # no duplicate address detection, and permanent
    routes = [line.split() for line in pilot.shell("cat /proc/net/ipv6_route").splitlines()[:-1]]
    assert any(words[1] == "00" and words[4].startswith("fdaa") and words[-1] == "eth0" for words in routes)
    assert pilot.shell("cat /sys/class/net/eth0/mtu /proc/sys/net/ipv6/conf/eth0/accept_ra") == "1400\n0\n0\n"
    assert pilot.shell("cat /proc/sys/net/ipv4/ping_group_range") == "0\t2147483647\n0\n"
    assert "10.1.2.3" in pilot.shell("cat /proc/net/fib_trie")


def its_start_is_recorded(pilot: VmPilot, began: float) -> None:
    story = pilot.story()
    assert (story.instance_id, story.pilot_pid) == ("instance-1", 1)
    assert story.ready_at is not None and began - 60 < story.ready_at < SystemClock().now() + 60
    stages = story.stages
    assert stages is not None
    assert 0 < stages.pilot_s < stages.devices_s < stages.streams_s < stages.spec_s
    assert stages.spec_s < stages.network_s < stages.root_s < stages.executed_s
    assert 0 <= stages.own_s < stages.executed_s - stages.pilot_s


def its_clock_and_memory_are_told(pilot: VmPilot) -> None:
    assert answer(pilot, FrameKind.CLOCK, frames.number(OLD_NS, 8)) == ""
    assert pilot.shell("date -u +%Y") == "2001\n0\n"
    assert answer(pilot, FrameKind.CLOCK, frames.number(round(SystemClock().now() * 1e9), 8)) == ""
    total, available, free, swap, swap_free = numbers(pilot, FrameKind.MEMORY)
    assert 100 * vm.MIB < total < 192 * vm.MIB and 0 < free < available < total
    assert (swap, swap_free) == (0, 0)
    size, blocks, free_blocks, available_blocks = numbers(pilot, FrameKind.USAGE, frames.string("/"))
    assert 40 * vm.MIB < size * blocks < 64 * vm.MIB and available_blocks < free_blocks < blocks
    for kind in (FrameKind.THAW, FrameKind.GROW, FrameKind.USAGE):
        assert answer(pilot, kind, frames.string("/etc")) == "no disk is mounted at /etc"


def its_volume_is_held_still(booted: Machine, wire: socket.socket, first: VmPilot, second: VmPilot) -> None:
    """Until it is let go; until its time is up; until whoever asked is gone."""
    assert freeze(second, 60_000) == ""
    assert "busy" in str(freeze(second, 60_000))
    first.begin_shell("touch /data/one", channel=60)
    assert second.shell("ls /data") == "file\nlost+found\n0\n"
    assert answer(second, FrameKind.THAW, frames.string("/data")) == ""
    assert first.take(FrameKind.EXIT).channel == 60
    assert any(freeze(second, lasts_ms) == "" for lasts_ms in (300, 3_000, 30_000)), "a busy host takes up the first"
    assert first.shell("touch /data/two") == "0\n"
    assert freeze(second, 60_000) == ""
    third = booted.pilot(wire, b"nonce  3")
    third.greet()
    assert third.shell("touch /data/three; ls /data") == "file\nlost+found\none\nthree\ntwo\n0\n"


def its_volume_grows_with_its_disk(booted: Machine, pilot: VmPilot) -> None:
    data = frames.string("/data")
    size, before, _, _ = numbers(pilot, FrameKind.USAGE, data)
    assert answer(pilot, FrameKind.GROW, data) == ""
    assert numbers(pilot, FrameKind.USAGE, data)[1] == before
    booted.order("block_resize", device="volume", size=64 * vm.MIB)
    assert answer(pilot, FrameKind.GROW, data) == ""
    _, after, _, _ = numbers(pilot, FrameKind.USAGE, data)
    assert size * before < 32 * vm.MIB < 48 * vm.MIB < size * after


def a_flood_on_a_port_harms_nobody(booted: Machine, wire: socket.socket, pilot: VmPilot) -> None:
    wire.sendall(os.urandom(4 * vm.MIB))
    assert pilot.shell("echo still here") == "still here\n0\n"
    assert booted.pilot(wire, b"nonce  4").greet().instance_id == "instance-1"
    wire.close()


def a_port_that_nobody_holds_costs_nothing(booted: Machine, pilot: VmPilot) -> None:
    def ticks() -> int:
        words = pilot.shell("cat /proc/1/stat").split()
        return int(words[13]) + int(words[14])

    def rests() -> bool:
        """It has less than 50 of the 100 in a second. A busy host may keep the guest waiting just while it works, and
        the guest counts that too; an end that is polled for costs every second."""
        before = ticks()
        pilot.shell("sleep 1")
        return ticks() - before < 50

    wait_for(rests)
    with booted.wire(1) as wire:
        assert booted.pilot(wire, b"nonce  5").greet().instance_id == "instance-1"


def its_ring_goes_round(pilot: VmPilot) -> None:
    pilot.watch()
    pilot.stream.sendall(messages.run_request(71, 2, 1))
    pilot.until(2, ProcessPhase.EXITED)
    wait_for(lambda: pilot.output()[-1].data.endswith(b"last\n"))
    written = pilot.output()
    assert vm.SEGMENT_BYTES / 2 < sum(len(chunk.data) for chunk in written) < 2 * vm.SEGMENT_BYTES
    positions = [chunk.position for chunk in written]
    assert positions == list(range(positions[0], positions[0] + len(positions))) and positions[0] > 0


def its_journal_keeps_the_latest_runs(pilot: VmPilot) -> None:
    """Each has a long reason, so that they fill the journal more than once."""
    runs = 260
    for run in range(1, runs + 1):
        pilot.stream.sendall(messages.run_request(70, 1, run))
        assert pilot.until(1, ProcessPhase.EXITED, run).run == run
    kept = pilot.story().runs
    assert (kept[1].run, kept[0].state, kept[2].state) == (runs, ProcessPhase.RUNNING, ProcessPhase.EXITED)
    latest = kept[1].last_exit
    assert latest is not None and latest.exit_code in (126, 127) and latest.reason.startswith("exec /xxx")


@LONG
def test_memory_that_runs_out_is_to_blame(files: Path) -> None:
    with machine(files, memory_mib=128) as booted:
        pilot = booted.pilot(booted.wire())
        pilot.run(vm_spec("head -c 300M /dev/zero | tail -c 300M"))
        told = pilot.exit()
        assert booted.status() == 0
    assert told.oom_killed and told.exit_code != 0
    assert pilot.story().final_exit == told


def test_a_panic_is_an_end_without_a_word(files: Path, image: Path) -> None:
    """On an image that is ext4, to boot one of these too. Its volume has a file, and so keeps its owner and mode."""
    (files / "image").unlink()
    (files / "image").symlink_to(image.with_name("ext4"))
    (files / "used").mkdir(mode=0o755)
    (files / "used/file").touch()
    make_ext4(files / "volume", 32 * vm.MIB, files / "used")
    with machine(files) as booted:
        pilot = booted.pilot(booted.wire())
        pilot.run(vm_spec("echo before; cat /etc/greeting; stat -c %a /data; exec sleep 100000"))
        pilot.take(FrameKind.READY)
        wait_for(lambda: said_by(pilot) == b"before\nhello\n755\n")
        pilot.begin_shell("echo c > /proc/sysrq-trigger")
        assert booted.status() == 0
    assert "Kernel panic" in booted.console()
    assert pilot.story().ready_at is not None and pilot.story().final_exit is None
    assert said_by(pilot) == b"before\nhello\n755\n"


def said_by(pilot: VmPilot) -> bytes:
    return b"".join(chunk.data for chunk in pilot.output())


@LONG
def test_missing_disk_ends_the_machine_and_its_journal_disk_is_not_taken_twice(files: Path) -> None:
    wrong = VolumeDisk(name="volume", file="unused", target="/data", fstype="erofs")
    with machine(files) as booted:
        pilot = booted.pilot(booted.wire())
        pilot.run(vm_spec("exit 0", volume=wrong))
        told = pilot.exit()
        assert booted.status() == 0
    assert (told.exit_code, told.reason) == (125, "mount disk volume: invalid argument")
    assert pilot.story().final_exit == told
    with machine(files) as again:
        assert again.status() == 0
    assert "hawker: ledger /dev/vda: file exists" in again.console().lower()
    assert pilot.story().final_exit == told
