"""Attempts from inside of a real guest, by root in it: at disks, channel, files of its spec, the host's patience."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from hawker.errors import HawkerError
from hawker.host.mount import mounts
from hawker.ids import NodeId
from hawker.runtime import proc
from hawker.runtime.pilot.serial_ports import PORTS
from hawker.runtime.spec import FileSpec
from hawker.runtime.vmm import keeper
from tests.conftest import Mark
from tests.escape.guest import ANSWER_S, CLOCK, GUEST, Host, guest_host
from tests.guest.vm import MIB
from tests.node_ids import own_node_id
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.slow]

WRITABLE = {"vda": "ledger", "vdc": "layer", "vdd": "volume"}
SPEC_FILE = FileSpec(path="/out/planted", content=b"of the spec")
OUTPUT_MAX = 4 << 20


@pytest.fixture(scope="module")
async def guest(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Host]:
    """One that runs, whose image has a link at /out that leads, on this host, to a directory of the test's, and in the
    guest to one of the same name."""
    directory = tmp_path_factory.mktemp("guest")
    planted = directory / "planted-tree"
    outside(directory).mkdir()
    (planted / str(outside(directory))[1:]).mkdir(parents=True)
    (planted / "out").symlink_to(f"/../../../..{outside(directory)}")
    async with guest_host(directory, own_node_id(), planted=planted) as host:
        await host.start(files=(SPEC_FILE,))
        yield host


@pytest.fixture
async def fresh(tmp_path: Path, node_id: NodeId, nothing_stray: Mark) -> AsyncIterator[Host]:
    """For what a guest does not survive."""
    nothing_stray(node_id)
    async with guest_host(tmp_path, node_id) as host:
        yield host


def outside(directory: Path) -> Path:
    return directory / "outside"


def file_of(host: Host, name: str) -> Path:
    return host.run().journal if name == "ledger" else host.disk(name)


def digest_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def sizes(host: Host) -> dict[str, int]:
    return {name: file_of(host, name).stat().st_size for name in WRITABLE.values()}


def backing_files() -> list[str]:
    """Of this host's loop devices, which come and go: other tests have some."""
    found = []
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):
            found.append(path.read_text())
    return found


async def test_a_guest_cannot_write_past_the_end_of_its_disks(guest: Host) -> None:
    before = sizes(guest)
    for device, name in WRITABLE.items():
        past = -(-before[name] // MIB)
        said = await guest.shell(f"dd if=/dev/zero of=/dev/{device} bs=1M seek={past} count=1 conv=notrunc,fsync")
        assert "No space left on device" in said or "cannot seek" in said, said
    assert sizes(guest) == before


async def test_a_guest_cannot_write_to_the_image_that_others_share(guest: Host) -> None:
    before = digest_of(guest.image)
    said = await guest.shell("dd if=/dev/zero of=/dev/vdb bs=4096 count=1 conv=notrunc,fsync")
    assert "Operation not permitted" in said
    assert digest_of(guest.image) == before


async def test_a_guest_has_no_disks_but_its_own(guest: Host) -> None:
    said = await guest.shell("cat /sys/block/vd*/serial; echo; ls /sys/block")
    assert said.split() == ["ledgerimagelayervolume", "vda", "vdb", "vdc", "vdd", "0"]


async def test_the_ways_to_its_pilot_are_taken(guest: Host) -> None:
    """What it could say on them would be its own pilot's words, and be believed as little; but they are not open."""
    said = await guest.shell("for port in /dev/vport*; do (echo forged > $port); done; ls /dev/vport* | head -n 100")
    assert said.count("Device or resource busy") == said.count("\n/dev/vport") == PORTS, said
    assert await guest.shell("echo still answered") == "still answered\n0"


async def test_a_file_of_its_spec_stays_in_it_whatever_its_image_planted(guest: Host) -> None:
    assert list(outside(guest.directory).iterdir()) == []
    inside = f"{outside(guest.directory)}/planted"
    assert await guest.shell(f"cat {inside} /out/planted") == "of the specof the spec0"


async def test_the_host_mounts_nothing_that_it_writes(guest: Host) -> None:
    """A file system that was made to break its reader breaks the guest's kernel."""
    mounted = [str(mount.target) for mount in mounts() if mount.target.is_relative_to(guest.directory)]
    assert mounted == []
    assert not [file for file in backing_files() if file.startswith(str(guest.directory))]


async def test_endless_output_takes_no_more_room_and_hinders_nobody(fresh: Host) -> None:
    await fresh.start("while :; do dd if=/dev/zero bs=64k count=64 2>&1; done")
    before = sizes(fresh)["ledger"]
    await eventually(lambda: len(fresh.driver.output(GUEST)) > 0, ANSWER_S)
    for _ in range(3):
        assert await fresh.shell("echo answered") == "answered\n0"
        output = fresh.driver.output(GUEST)
        assert sum(len(chunk.data) for chunk in output) <= OUTPUT_MAX
    assert sizes(fresh)["ledger"] == before


@pytest.mark.long(reason="boots a guest under emulation; endless output, in the test above, is the short form")
async def test_an_endless_console_takes_no_more_room_and_hinders_nobody(fresh: Host) -> None:
    began = CLOCK.monotonic()
    await fresh.start("while :; do head -c 100000 /dev/zero > /dev/console; done")
    ring = keeper.console_path(fresh.run())
    size = ring.stat().st_size
    await eventually(lambda: int.from_bytes(ring.read_bytes()[:8], "little") > 2 * size, ANSWER_S)
    assert await fresh.shell("echo answered") == "answered\n0"
    assert ring.stat().st_size == size
    pid = keeper.read_record(fresh.run()).keeper
    used = sum(entry.cpu_s for entry in proc.entries() if entry.pid == pid)
    assert used < 1.0 + (CLOCK.monotonic() - began) / 4


async def test_a_forged_journal_is_believed_as_little_as_it_deserves(fresh: Host) -> None:
    """All of the ledger is the guest's to write. Whatever is in it, the host goes on, and can end the machine."""
    await fresh.start()
    await fresh.shell("dd if=/dev/urandom of=/dev/vda bs=64k conv=notrunc,fsync")
    for ask in (fresh.driver.inspect, fresh.driver.recover):
        try:
            await ask(GUEST)
        except HawkerError as refused:
            assert str(refused)
    assert sum(len(chunk.data) for chunk in fresh.driver.output(GUEST)) <= OUTPUT_MAX
    await fresh.driver.destroy(GUEST)
    assert not fresh.run().path.exists()


@pytest.mark.long(
    reason="boots a guest under emulation; tests/runtime/test_microvm_launch.py and tests/guest/test_vm.py have panics"
)
async def test_a_kernel_that_panics_ends_its_machine_with_a_reason(fresh: Host) -> None:
    await fresh.start("read line; echo c > /proc/sysrq-trigger < /dev/null")
    with anyio.fail_after(ANSWER_S):
        exit = await fresh.driver.wait(GUEST)
    assert "panic" in exit.fault
