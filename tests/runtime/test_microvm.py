"""What the microVM driver does beyond `Driver`: volumes that only their guest may touch."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from hawker.errors import NotFound, Unavailable
from hawker.runtime.driver import ExecSpec, GuestVolumes, Phase
from hawker.runtime.pilot.serial_ports import KEPT, PORTS
from hawker.runtime.spec import VolumeDisk
from tests.runtime.guests import guests
from tests.volume.own_disk import own_disk

pytestmark = [pytest.mark.anyio, pytest.mark.root]
MIB = 1 << 20


def volume(place: Path, mib: int) -> VolumeDisk:
    file = place / "volume"
    with file.open("wb") as made:
        made.truncate(mib * MIB)
    subprocess.run(["mkfs.ext4", "-q", file], check=True)
    return VolumeDisk(name="data", file=str(file), target="/data")


def content(disk: VolumeDisk) -> bytes:
    return Path(disk.file).read_bytes()


def stored(disk: VolumeDisk) -> int:
    return Path(disk.file).stat().st_blocks * 512


async def test_a_guest_grows_its_volume_holds_it_still_and_counts_it(tmp_path: Path) -> None:
    async with guests(tmp_path) as there:
        disk = volume(tmp_path, 16)
        spec = there.spec(
            "i=0; while :; do i=$((i+1)); echo $i > /data/file; echo wrote $i; sleep 0.1; done", volumes=(disk,)
        )
        await there.driver.start(spec)
        assert isinstance(there.driver, GuestVolumes)
        await there.hears(spec, "wrote 2\n")
        before = await there.driver.volume_usage(spec.machine_id, "data")

        os.truncate(disk.file, 64 * MIB)
        await there.driver.grow_volume(spec.machine_id, "data", 64 * MIB)
        after = await there.driver.volume_usage(spec.machine_id, "data")
        assert after.block_size * after.blocks > 3 * before.block_size * before.blocks

        async with there.driver.freeze_volume(spec.machine_id, "data", 30):
            held = content(disk)
            assert content(disk) == held
        said = len(there.said(spec))
        await there.hears(spec, "wrote", since=said)
        with pytest.raises(NotFound, match="no volume other"):
            await there.driver.volume_usage(spec.machine_id, "other")


async def test_a_guest_whose_kernel_found_no_timer_does_not_run_and_says_so(tmp_path: Path) -> None:
    async with guests(tmp_path) as there:
        spec = there.spec("echo up; sleep 1000", args=("nolapic_timer",))
        with pytest.raises(Unavailable, match="hawker: start again: no right timer"):
            await there.driver.start(spec)
        assert (await there.driver.inspect(spec.machine_id)).phase is Phase.PREPARED


async def test_a_volume_is_held_still_and_trimmed_while_commands_have_all_ways_that_are_theirs(tmp_path: Path) -> None:
    async with guests(tmp_path) as there:
        spec = there.spec("echo up; sleep 1000", volumes=(volume(tmp_path, 16),))
        await there.driver.start(spec)
        await there.hears(spec, "up\n")
        command = ExecSpec(argv=("/bin/sleep", "1000"))
        sessions = [await there.driver.exec(spec.machine_id, command) for _ in range(PORTS - KEPT)]
        try:
            with pytest.raises(Unavailable, match="ways into the machine are taken"):
                await there.driver.exec(spec.machine_id, command)
            async with there.driver.freeze_volume(spec.machine_id, "data", 30):
                assert (await there.driver.volume_usage(spec.machine_id, "data")).blocks > 0
            await there.driver.trim_volume(spec.machine_id, "data", 0, 1 << 30)
        finally:
            for session in sessions:
                await session.close()


async def test_a_guest_whose_volume_has_no_room_on_the_host_is_told_and_goes_on(tmp_path: Path) -> None:
    with own_disk(tmp_path, mib=8) as small:
        async with guests(tmp_path) as there:
            spec = there.spec(
                "head -c 33554432 /dev/urandom > /data/file; sync /data/file || echo refused; sleep 1; echo goes on",
                volumes=(volume(small, 64),),
            )
            await there.driver.start(spec)
            await there.hears(spec, "goes on\n")
            assert "refused\n" in there.said(spec)


async def test_file_that_a_guest_deleted_takes_no_room_once_its_volume_is_trimmed(tmp_path: Path) -> None:
    async with guests(tmp_path) as there:
        disk = volume(tmp_path, 64)
        script = (
            "trap ': > /data/file; echo deleted' USR1; head -c 25165824 /dev/urandom > /data/file; echo stored;"
            " while :; do sleep 0.2; done"
        )
        spec = there.spec(script, volumes=(disk,))
        await there.driver.start(spec)
        assert isinstance(there.driver, GuestVolumes)
        await there.hears(spec, "stored\n")
        async with there.driver.freeze_volume(spec.machine_id, "data", 30):
            assert stored(disk) > 24 * MIB
        await there.driver.signal(spec.machine_id, signal.SIGUSR1)
        await there.hears(spec, "deleted\n")
        async with there.driver.freeze_volume(spec.machine_id, "data", 30):
            pass  # that it is gone is on disk, too
        await there.driver.trim_volume(spec.machine_id, "data", 64 * MIB, MIB)  # beyond its end
        await there.driver.trim_volume(spec.machine_id, "", 0, 1 << 30)
        assert stored(disk) > 24 * MIB
        await there.driver.trim_volume(spec.machine_id, "data", 0, 1 << 30)
        assert stored(disk) < 12 * MIB
        with pytest.raises(NotFound, match="no volume other"):
            await there.driver.trim_volume(spec.machine_id, "other", 0, MIB)
