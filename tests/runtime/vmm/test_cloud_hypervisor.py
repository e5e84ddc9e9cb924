"""Cloud Hypervisor's driver against a played one that holds every request against the description of its API."""

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
from hawker.runtime.vmm import cloud_hypervisor as api
from hawker.runtime.vmm.cloud_hypervisor import CloudHypervisor
from hawker.runtime.vmm.contract import Restored, Vm, VmDrive
from hawker.runtime.vmm.vmm_api import VmmRefused
from tests.runtime.vmm.test_firecracker import drives, links
from tests.vmm.cloud_hypervisor_document import CLOUD_HYPERVISOR
from tests.vmm.guests import NoGuest
from tests.vmm.hosts import LINK, MIB, Host, host
from tests.vmm.played_cloud_hypervisor import PlayedCloudHypervisor

pytestmark = pytest.mark.anyio
PROGRAM = "cloud-hypervisor v53.0"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Host]:
    with host(tmp_path) as made:
        yield made


@pytest.fixture
def driver() -> CloudHypervisor:
    return CloudHypervisor(SystemClock(), lambda: "")


def names(here: Host) -> list[str]:
    return [operation.rsplit("/", 1)[1] for operation in here.asked]


async def test_a_boot_is_one_configuration_and_a_start(here: Host, driver: CloudHypervisor) -> None:
    guest = NoGuest()
    vm = here.vm(here.drive("ledger"), here.drive("vol-a", read_only=True), link=LINK)
    with here.served(PlayedCloudHypervisor(guest)) as server:
        await driver.boot(vm, here.run, None)
    assert names(here) == ["vmm.ping", "vm.create", "vm.boot"]
    assert {status for _, _, status in server.seen} == {200, 204}
    assert guest.did == ["start"]


async def test_a_disk_has_its_name_as_serial_number_and_is_never_read_by_its_content(
    here: Host, driver: CloudHypervisor
) -> None:
    played = PlayedCloudHypervisor(NoGuest())
    limited = here.drive("vol-a", limits=DiskLimits(bytes_per_s=4 * MIB))
    with here.served(played):
        await driver.boot(here.vm(here.drive("image", read_only=True), limited), here.run, None)
    image, volume = played.config["disks"]
    assert (image["id"], image["serial"], image["readonly"], image["image_type"]) == ("image", "image", True, "Raw")
    assert volume["rate_limiter_config"] == {"bandwidth": {"size": 4 * MIB, "refill_time": 1000}}
    assert volume["image_type"] == "Raw" and "rate_limiter_config" not in image


async def test_gpus_are_whole_devices_of_the_host(here: Host, driver: CloudHypervisor) -> None:
    played = PlayedCloudHypervisor(NoGuest())
    with here.served(played):
        await driver.boot(here.vm(gpus=("0000:65:00.0", "0000:66:00.0")), here.run, None)
    assert played.config["devices"] == [
        {"id": "gpu0", "path": "/sys/bus/pci/devices/0000:65:00.0/"},
        {"id": "gpu1", "path": "/sys/bus/pci/devices/0000:66:00.0/"},
    ]


async def test_a_refusal_is_told_in_its_words(here: Host, driver: CloudHypervisor) -> None:
    vm = here.vm(here.drive("ledger"))
    here.lose(vm.kernel)
    expected = "refuses PUT /api/v1/vm.boot: Error from API: vm.boot failed: .*kernel"
    with here.served(PlayedCloudHypervisor(NoGuest())), pytest.raises(VmmRefused, match=expected):
        await driver.boot(vm, here.run, None)


async def test_a_boot_twice_is_refused(here: Host, driver: CloudHypervisor) -> None:
    vm = here.vm(here.drive("ledger"))
    with here.served(PlayedCloudHypervisor(NoGuest())):
        await driver.boot(vm, here.run, None)
        with pytest.raises(VmmRefused, match="there is a VM already"):
            await driver.boot(vm, here.run, None)


async def test_one_that_ends_before_it_listens_is_not_waited_for(here: Host, driver: CloudHypervisor) -> None:
    here.end()
    with pytest.raises(Unavailable, match="ended before it listened"):
        await driver.boot(here.vm(), here.run, None)


async def test_a_guest_goes_on_from_its_snapshot_once_it_may(here: Host, driver: CloudHypervisor) -> None:
    vm, directory, guest = here.vm(here.drive("ledger")), here.directory(), NoGuest()
    with here.served(PlayedCloudHypervisor(guest)) as first:
        await driver.boot(vm, here.run, None)
        await driver.save(vm, here.run, directory)
        await driver.end(here.run)
        assert first.vmm.ended
    with here.served(PlayedCloudHypervisor(guest)):
        await driver.boot(vm, here.run, Restored(directory, PROGRAM))
        assert guest.did == ["start", "hold", "save", "end", "restore"]
        for _ in range(2):
            await driver.proceed(here.run)
    assert guest.did[-1] == "go on" and guest.did.count("go on") == 1
    assert names(here)[3:] == [
        "vm.pause",
        "vm.snapshot",
        "vmm.shutdown",
        "vmm.ping",
        "vm.restore",
        "vm.info",
        "vm.resume",
        "vm.info",
    ]


@pytest.mark.parametrize("name", ["config.json", "state.json", "memory-ranges"])
@pytest.mark.parametrize("damage", ["cut", "gone"])
async def test_a_damaged_snapshot_is_lost(here: Host, driver: CloudHypervisor, name: str, damage: str) -> None:
    vm, directory = here.vm(here.drive("ledger")), here.directory()
    with here.served(PlayedCloudHypervisor(NoGuest())):
        await driver.boot(vm, here.run, None)
        await driver.save(vm, here.run, directory)
    file = Path(directory) / name
    file.unlink() if damage == "gone" else file.write_bytes(file.read_bytes()[:5])
    with here.served(PlayedCloudHypervisor(NoGuest())), pytest.raises(SnapshotLost, match="cannot be taken up"):
        await driver.boot(vm, here.run, Restored(directory, PROGRAM))


async def test_a_snapshot_of_another_version_is_lost(here: Host, driver: CloudHypervisor) -> None:
    vm, directory = here.vm(here.drive("ledger")), here.directory()
    with here.served(PlayedCloudHypervisor(NoGuest(), version="51.0")):
        await driver.boot(vm, here.run, None)
        await driver.save(vm, here.run, directory)
    with here.served(PlayedCloudHypervisor(NoGuest())), pytest.raises(SnapshotLost, match="of another version"):
        await driver.boot(vm, here.run, Restored(directory, PROGRAM))


async def test_a_snapshot_that_fails_lets_the_guest_go_on_and_leaves_nothing(
    here: Host, driver: CloudHypervisor
) -> None:
    class Full(NoGuest):
        def save(self, memory: Path) -> None:
            memory.write_bytes(b"half")
            raise OSError(28, "No space left on device")

    guest, directory, vm = Full(), here.directory(), here.vm(here.drive("ledger"))
    with here.served(PlayedCloudHypervisor(guest)):
        await driver.boot(vm, here.run, None)
        with pytest.raises(VmmRefused, match="No space left"):
            await driver.save(vm, here.run, directory)
    assert guest.did == ["start", "hold", "go on"]
    assert here.saved() == []


async def test_the_balloon_takes_what_the_guest_may_not_have(here: Host, driver: CloudHypervisor) -> None:
    played = PlayedCloudHypervisor(NoGuest())
    with here.served(played) as server:
        await driver.boot(here.vm(here.drive("ledger")), here.run, None)
        assert played.config["balloon"]["size"] == 32 * MIB
        for guest_mib in (64, 128, 500):
            await driver.inflate(here.run, guest_mib)
    sizes = [body["desired_balloon"] for operation, body, _ in server.seen if operation.endswith("vm.resize")]
    assert sizes == [64 * MIB, 0, 0]


async def test_a_drive_that_grew_is_told_of(here: Host, driver: CloudHypervisor) -> None:
    drive = here.drive("vol-a")
    with here.served(PlayedCloudHypervisor(NoGuest())):
        await driver.boot(here.vm(drive), here.run, None)
        await driver.enlarge(here.run, "vol-a", MIB)
        with pytest.raises(VmmRefused, match="there is no disk other"):
            await driver.enlarge(here.run, "other", MIB)
    assert here.size(drive.path) == MIB


async def test_an_end_where_there_is_nobody_is_no_error(here: Host, driver: CloudHypervisor) -> None:
    await driver.end(here.run)


def test_its_command_line_is_its_socket_and_its_filter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "cloud-hypervisor"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with host(tmp_path) as here:
        vm = here.vm(directory="/cell/vmm")
        argv = CloudHypervisor(SystemClock(), lambda: "").argv(vm, None)
    assert argv == (str(program), "--api-socket", "path=/cell/vmm/api.sock", "--seccomp", "true")


gpus = st.lists(st.from_regex(r"0000:[0-9a-f]{2}:00\.0", fullmatch=True), max_size=4)


@given(st.lists(drives, max_size=6), links, gpus, st.integers(1, 254), st.integers(1, 1 << 20), st.text())
def test_every_request_is_one_that_the_description_has(
    drives: list[VmDrive], link: GuestLink | None, gpus: list[str], cpus: int, memory_mib: int, text: str
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
        gpus=tuple(gpus),
    )
    fixed = (api.PING, api.INFO, api.BOOT, api.PAUSE, api.RESUME, api.SHUTDOWN)
    changes = (api.snapshot("/s"), api.restore("/s"), api.inflate(1), api.resize_disk("a", 1 << 40))
    for request in (*api.boot(vm, "/cell/vmm/vsock.sock"), *fixed, *changes):
        body = None if request.body is None else msgspec.json.decode(msgspec.json.encode(request.body))
        CLOUD_HYPERVISOR.check(request.method, request.target, body)
