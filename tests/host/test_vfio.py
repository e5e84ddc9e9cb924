"""Facts about handing out PCI devices, on a made-up bus. No real device was taken by these tests: docs/gpus.md."""

import errno
from pathlib import Path

import pytest

from hawker.host.vfio import DeviceRefused, PciDevices, VfioRefusal, described, vfio_nodes
from tests.host.pci import Bus, Killed

pytestmark = pytest.mark.anyio

GPU, SOUND, SECOND, DISK = "0000:65:00.0", "0000:65:00.1", "0000:66:00.0", "0000:67:00.0"


@pytest.fixture
def bus(tmp_path: Path) -> Bus:
    return Bus(tmp_path / "sys")


def _devices(bus: Bus, *known: str) -> PciDevices:
    return PciDevices(known or (GPU, SECOND), bus.sysfs, load=("true",), write=bus.write)


async def _refused(bus: Bus, *addresses: str, known: tuple[str, ...] = ()) -> DeviceRefused:
    with pytest.raises(DeviceRefused) as refused:
        await _devices(bus, *known).take(addresses)
    return refused.value


@pytest.mark.parametrize("driver", [None, "nvidia", "vfio-pci"])
async def test_a_device_leaves_the_hosts_driver_and_is_reset(bus: Bus, driver: str | None) -> None:
    bus.add(GPU, group=12, driver=driver)
    await _devices(bus).take([GPU])
    assert bus.driver_of(GPU) == "vfio-pci" and bus.log[-1] == ("reset", "1")


async def test_device_is_reset_for_each_owner_and_bound_only_once(bus: Bus) -> None:
    bus.add(GPU, group=12, driver="nvidia")
    await _devices(bus).take([GPU])
    del bus.log[:]
    await _devices(bus).take([GPU])
    assert bus.log == [("reset", "1")]


async def test_the_rest_of_its_card_comes_with_it(bus: Bus) -> None:
    bus.add(GPU, group=12, driver="nvidia")
    bus.add(SOUND, group=12, driver="snd_hda_intel", kind="0x040300")
    await _devices(bus).take([GPU])
    assert bus.driver_of(SOUND) == "vfio-pci"
    assert [name for name, _ in bus.log].count("reset") == 1


async def test_bridges_and_devices_without_a_driver_may_be_in_its_group(bus: Bus) -> None:
    bus.add(GPU, group=12)
    bus.add("0000:64:00.0", group=12, driver="pcieport", kind="0x060400")
    bus.add(DISK, group=12)
    await _devices(bus).take([GPU])
    assert bus.driver_of("0000:64:00.0") == "pcieport" and bus.driver_of(DISK) is None


async def test_two_of_one_group_go_to_one_machine_only(bus: Bus) -> None:
    bus.add(GPU, group=12)
    bus.add(SECOND, group=12)
    for one in (GPU, SECOND):
        assert (await _refused(bus, one)).refusal is VfioRefusal.SHARED
    await _devices(bus).take([GPU, SECOND])
    assert bus.driver_of(GPU) == bus.driver_of(SECOND) == "vfio-pci"


async def test_a_group_with_a_device_in_use_is_refused_untouched(bus: Bus) -> None:
    bus.add(GPU, group=12, driver="nvidia")
    bus.add(DISK, group=12, driver="nvme", kind="0x010802")
    refused = await _refused(bus, GPU)
    assert refused.refusal is VfioRefusal.SHARED and "nvme" in str(refused) and DISK in str(refused)
    assert bus.driver_of(GPU) == "nvidia" and not bus.log


async def test_a_host_without_an_iommu_is_told_to_turn_it_on(bus: Bus) -> None:
    bus.add(GPU, group=None)
    refused = await _refused(bus, GPU)
    assert refused.refusal is VfioRefusal.NO_IOMMU and "intel_iommu=on" in str(refused)


async def test_a_device_that_is_gone_is_named(bus: Bus) -> None:
    bus.add(GPU, group=12)
    bus.unplug(GPU)
    refused = await _refused(bus, GPU)
    assert refused.refusal is VfioRefusal.GONE and GPU in str(refused)
    assert refused.retry and refused.status == 503


async def test_a_device_that_somebody_else_means_to_have_is_left(bus: Bus) -> None:
    bus.add(GPU, group=12)
    bus.write(bus.pci / "devices" / GPU / "driver_override", "pci-stub")
    refused = await _refused(bus, GPU)
    assert refused.refusal is VfioRefusal.ELSEWHERE and "pci-stub" in str(refused)


async def test_a_driver_that_does_not_take_it_is_said(bus: Bus) -> None:
    bus.add(GPU, group=12, driver="nvidia")
    bus.refuses.add("vfio-pci")
    refused = await _refused(bus, GPU)
    assert refused.refusal is VfioRefusal.ELSEWHERE and "did not take it" in str(refused)


async def test_a_device_that_its_driver_does_not_let_go_of_is_said(bus: Bus) -> None:
    bus.add(GPU, group=12, driver="nvidia")
    bus.fails["unbind"] = errno.EBUSY
    refused = await _refused(bus, GPU)
    assert refused.refusal is VfioRefusal.ELSEWHERE and "is something using it" in str(refused)


async def test_device_that_cannot_be_reset_is_not_handed_on(bus: Bus) -> None:
    bus.add(GPU, group=12)
    bus.fails["reset"] = errno.ENOTTY
    assert (await _refused(bus, GPU)).refusal is VfioRefusal.NO_RESET
    bus.add(SECOND, group=13)
    (bus.pci / "devices" / SECOND / "reset").unlink()
    refused = await _refused(bus, SECOND)
    assert refused.refusal is VfioRefusal.NO_RESET and bus.driver_of(SECOND) is None


async def test_a_kernel_without_vfio_is_asked_to_load_it(tmp_path: Path) -> None:
    bus = Bus(tmp_path / "sys", vfio=False)
    bus.add(GPU, group=12)
    for load in (("true",), ("/nonexistent/modprobe",)):
        with pytest.raises(DeviceRefused, match="vfio-pci") as refused:
            await PciDevices([GPU], bus.sysfs, load=load, write=bus.write).take([GPU])
        assert refused.value.refusal is VfioRefusal.NO_VFIO
    driver = bus.pci / "drivers/vfio-pci"
    loads = ("sh", "-c", f"mkdir {driver} && touch {driver}/unbind")
    await PciDevices([GPU], bus.sysfs, load=loads, write=bus.write).take([GPU])
    assert bus.driver_of(GPU) == "vfio-pci"


@pytest.mark.parametrize("dies_at", range(7))
async def test_a_daemon_that_dies_at_any_write_is_completed_by_the_next(bus: Bus, dies_at: int) -> None:
    bus.add(GPU, group=12, driver="nvidia")
    bus.add(SOUND, group=12, driver="snd_hda_intel", kind="0x040300")
    bus.dies_at = dies_at
    with pytest.raises(Killed):
        await _devices(bus).take([GPU])
    bus.dies_at = None
    await _devices(bus).take([GPU])
    assert bus.driver_of(GPU) == bus.driver_of(SOUND) == "vfio-pci" and bus.log[-1] == ("reset", "1")


async def test_nothing_asked_for_needs_nothing(tmp_path: Path) -> None:
    bus = Bus(tmp_path / "sys", vfio=False)
    await _devices(bus).take([])
    assert not bus.log and vfio_nodes([], bus.sysfs) == ()


def test_a_monitor_opens_the_container_and_each_group_once(bus: Bus) -> None:
    bus.add(GPU, group=12)
    bus.add(SOUND, group=12)
    bus.add(SECOND, group=7)
    assert vfio_nodes([GPU, SOUND, SECOND], bus.sysfs) == ("/dev/vfio/vfio", "/dev/vfio/12", "/dev/vfio/7")
    assert described(GPU, bus.sysfs).is_dir()
    with pytest.raises(DeviceRefused, match="not on this host's PCI bus"):
        vfio_nodes([DISK], bus.sysfs)
