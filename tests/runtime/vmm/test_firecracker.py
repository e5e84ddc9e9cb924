"""Firecracker's driver against a played one that holds every request against the description of its API."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.clock import SystemClock
from hawker.errors import SnapshotLost, Unavailable
from hawker.ids import MachineId
from hawker.runtime.spec import DiskLimits, GuestLink
from hawker.runtime.vmm import firecracker as api
from hawker.runtime.vmm.contract import Restored, Vm, VmDrive
from hawker.runtime.vmm.firecracker import Firecracker
from hawker.runtime.vmm.vmm_api import VmmRefused
from tests.vmm.firecracker_document import FIRECRACKER
from tests.vmm.guests import NoGuest
from tests.vmm.hosts import LINK, MIB, Host, host
from tests.vmm.played_firecracker import PlayedFirecracker

pytestmark = pytest.mark.anyio
PROGRAM = "Firecracker v1.16.1"
BOOT = [
    "GET /version",
    "PUT /boot-source",
    "PUT /machine-config",
    "PUT /drives/{drive_id}",
    "PUT /drives/{drive_id}",
    "PUT /network-interfaces/{iface_id}",
    "PUT /vsock",
    "PUT /balloon",
    "PUT /entropy",
    "PUT /actions",
]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Host]:
    with host(tmp_path) as made:
        yield made


@pytest.fixture
def driver() -> Firecracker:
    return Firecracker(SystemClock(), lambda: "")


async def test_a_boot_says_everything_once_and_then_starts(here: Host, driver: Firecracker) -> None:
    guest = NoGuest()
    vm = here.vm(here.drive("ledger"), here.drive("vol-a", read_only=True), link=LINK)
    with here.served(PlayedFirecracker(guest)) as server:
        await driver.boot(vm, here.run, None)
    assert here.asked == BOOT
    assert {status for _, _, status in server.seen} == {200, 204}
    assert guest.did == ["start"]


async def test_drives_come_in_their_order_with_ids_that_it_takes(here: Host, driver: Firecracker) -> None:
    played = PlayedFirecracker(NoGuest())
    with here.served(played):
        await driver.boot(here.vm(here.drive("ledger"), here.drive("vol-a", read_only=True)), here.run, None)
    assert [(name, drive["is_read_only"]) for name, drive in played.drives.items()] == [
        ("ledger", False),
        ("vol_a", True),
    ]
    assert {drive["cache_type"] for drive in played.drives.values()} == {"Writeback"}
    assert not any(drive["is_root_device"] for drive in played.drives.values())


async def test_limits_are_buckets_of_one_second(here: Host, driver: Firecracker) -> None:
    played = PlayedFirecracker(NoGuest())
    limited = here.drive("ledger", limits=DiskLimits(bytes_per_s=4 * MIB, operations_per_s=500))
    with here.served(played):
        await driver.boot(here.vm(limited, here.drive("image", limits=DiskLimits(operations_per_s=9))), here.run, None)
    assert played.drives["ledger"]["rate_limiter"] == {
        "bandwidth": {"size": 4 * MIB, "refill_time": 1000},
        "ops": {"size": 500, "refill_time": 1000},
    }
    assert played.drives["image"]["rate_limiter"] == {"ops": {"size": 9, "refill_time": 1000}}


async def test_a_refusal_is_told_in_its_words(here: Host, driver: Firecracker) -> None:
    vm = here.vm(here.drive("ledger"))
    here.lose(vm.kernel)
    with (
        here.served(PlayedFirecracker(NoGuest())),
        pytest.raises(VmmRefused, match=r"refuses PUT /boot-source: .*kernel"),
    ):
        await driver.boot(vm, here.run, None)


async def test_a_boot_twice_is_refused(here: Host, driver: Firecracker) -> None:
    vm = here.vm(here.drive("ledger"))
    with here.served(PlayedFirecracker(NoGuest())):
        await driver.boot(vm, here.run, None)
        with pytest.raises(VmmRefused, match="not supported once"):
            await driver.boot(vm, here.run, None)


async def test_one_that_ends_before_it_listens_is_not_waited_for(here: Host, driver: Firecracker) -> None:
    here.end()
    with pytest.raises(Unavailable, match="ended before it listened"):
        await driver.boot(here.vm(), here.run, None)


async def test_a_guest_goes_on_from_its_snapshot_once_it_may(here: Host, driver: Firecracker) -> None:
    vm, directory, guest = here.vm(here.drive("ledger")), here.directory(), NoGuest()
    with here.served(PlayedFirecracker(guest)):
        await driver.boot(vm, here.run, None)
        await driver.save(vm, here.run, directory)
    with here.served(PlayedFirecracker(guest)):
        await driver.boot(vm, here.run, Restored(directory, PROGRAM))
        assert guest.did == ["start", "hold", "save", "restore"]
        for _ in range(2):
            await driver.proceed(here.run)
    assert guest.did[-1] == "go on" and guest.did.count("go on") == 1
    assert here.asked[here.asked.index("PUT /actions") :] == [
        "PUT /actions",
        "PATCH /vm",
        "PUT /snapshot/create",
        "GET /version",
        "PUT /snapshot/load",
        "PATCH /vm",
        "PATCH /vm",
    ]


@pytest.mark.parametrize("name", ["state", "memory"])
@pytest.mark.parametrize("damage", ["cut", "gone"])
async def test_a_damaged_snapshot_is_lost(here: Host, driver: Firecracker, name: str, damage: str) -> None:
    vm, directory = here.vm(here.drive("ledger")), here.directory()
    with here.served(PlayedFirecracker(NoGuest())):
        await driver.boot(vm, here.run, None)
        await driver.save(vm, here.run, directory)
    file = Path(directory) / name
    file.unlink() if damage == "gone" else file.write_bytes(file.read_bytes()[:5])
    with here.served(PlayedFirecracker(NoGuest())), pytest.raises(SnapshotLost, match="cannot be taken up"):
        await driver.boot(vm, here.run, Restored(directory, PROGRAM))


async def test_a_snapshot_of_another_version_is_lost(here: Host, driver: Firecracker) -> None:
    vm, directory = here.vm(here.drive("ledger")), here.directory()
    with here.served(PlayedFirecracker(NoGuest(), version="1.14.0")):
        await driver.boot(vm, here.run, None)
        await driver.save(vm, here.run, directory)
    with here.served(PlayedFirecracker(NoGuest())), pytest.raises(SnapshotLost, match="of another version"):
        await driver.boot(vm, here.run, Restored(directory, PROGRAM))


async def test_a_snapshot_that_fails_lets_the_guest_go_on_and_leaves_nothing(here: Host, driver: Firecracker) -> None:
    class Full(NoGuest):
        def save(self, memory: Path) -> None:
            memory.write_bytes(b"half")
            raise OSError(28, "No space left on device")

    guest, directory, vm = Full(), here.directory(), here.vm(here.drive("ledger"))
    with here.served(PlayedFirecracker(guest)):
        await driver.boot(vm, here.run, None)
        with pytest.raises(VmmRefused, match="No space left"):
            await driver.save(vm, here.run, directory)
    assert guest.did == ["start", "hold", "go on"]
    assert here.saved() == []


async def test_the_balloon_takes_what_the_guest_may_not_have(here: Host, driver: Firecracker) -> None:
    played = PlayedFirecracker(NoGuest())
    with here.served(played) as server:
        await driver.boot(here.vm(here.drive("ledger")), here.run, None)
        for guest_mib in (64, 128, 500):
            await driver.inflate(here.run, guest_mib)
    first = next(body for operation, body, _ in server.seen if operation == "PUT /balloon")
    amounts = [body["amount_mib"] for operation, body, _ in server.seen if operation == "PATCH /balloon"]
    assert (first["amount_mib"], amounts) == (32, [64, 0, 0])


async def test_a_drive_that_grew_is_looked_at_again(here: Host, driver: Firecracker) -> None:
    drive = here.drive("vol-a")
    with here.served(PlayedFirecracker(NoGuest())) as server:
        await driver.boot(here.vm(drive), here.run, None)
        await driver.enlarge(here.run, "vol-a", 1 << 30)
        with pytest.raises(Unavailable, match="knows no drive other"):
            await driver.enlarge(here.run, "other", 1 << 30)
    changed = [body for operation, body, _ in server.seen if operation.startswith("PATCH /drives")]
    assert changed == [{"drive_id": "vol_a", "path_on_host": drive.path}]


def test_its_command_line_is_its_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "firecracker"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with host(tmp_path) as here:
        vm = here.vm(directory="/cell/vmm")
        argv = Firecracker(SystemClock(), lambda: "").argv(vm, None)
    assert argv == (str(program), "--api-sock", "/cell/vmm/api.sock", "--level", "Error")


limits = st.builds(DiskLimits, bytes_per_s=st.integers(0, 1 << 40), operations_per_s=st.integers(0, 1 << 20))
drives = st.builds(
    VmDrive,
    name=st.from_regex("[a-z0-9-]{1,20}", fullmatch=True),
    path=st.text(),
    read_only=st.booleans(),
    limits=limits,
)
links = st.none() | st.just(GuestLink(mac="02:00:00:00:00:01", addresses=(), gateways=()))


@given(st.lists(drives, max_size=6), links, st.integers(1, 32), st.integers(1, 1 << 20), st.text())
def test_every_request_is_one_that_the_description_has(
    drives: list[VmDrive], link: GuestLink | None, cpus: int, memory_mib: int, text: str
) -> None:
    vm = Vm(
        machine_id=MachineId("0123456789abcd"),
        cpus=cpus,
        memory_mib=memory_mib,
        max_memory_mib=2 * memory_mib,
        kernel=text,
        initramfs=text,
        command_line=text,
        drives=tuple(drives),
        directory="/cell/vmm",
        link=link,
    )
    more = (api.START, api.PAUSE, api.RESUME, api.VERSION, api.STATISTICS, api.MACHINE, api.CONFIGURATION)
    changes = (api.create_snapshot("/s"), api.load_snapshot("/s"), api.inflate(1), api.look_again("a-b", "/p"))
    for request in (*api.boot(vm, "/cell/vmm/vsock.sock"), *more, *changes):
        body = None if request.body is None else msgspec.json.decode(msgspec.json.encode(request.body))
        FIRECRACKER.check(request.method, request.target, body)


def test_two_drives_never_have_one_id() -> None:
    names = ("a-b", "ab", "a", "a--b", "b-a", "-a")
    assert len({api.id_of(name) for name in names}) == len(names)
