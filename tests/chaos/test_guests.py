from pathlib import Path

import pytest

from hawker.chaos.guests import bring_kernels, memories, root_disks, volumes_in_use
from hawker.errors import CannotStart
from hawker.ids import InstanceId, MachineId, VolumeId
from hawker.place import Place
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.spec import InstanceLimits, InstanceSpec, ProcessSpec, VolumeDisk

MACHINE, OTHER = MachineId("00000000000001"), MachineId("00000000000002")


def test_kernels_are_brought_once_and_take_no_room(tmp_path: Path) -> None:
    source = tmp_path / "kernels" / "6.1" / "boot"
    source.parent.mkdir(parents=True)
    source.write_text("kernel")
    place = Place(tmp_path / "node")
    bring_kernels(place, tmp_path / "kernels")
    bring_kernels(place, tmp_path / "kernels")
    brought = place.kernels / "6.1" / "boot"
    assert brought.read_text() == "kernel" and brought.stat().st_ino == source.stat().st_ino


def test_without_any_it_is_said_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="hawker kernel import"):
        bring_kernels(Place(tmp_path / "node"), tmp_path / "nowhere")


def test_a_root_disk_is_whose_link_leads_somewhere(tmp_path: Path) -> None:
    layer = tmp_path / MACHINE / "layers" / "I1" / "disk"
    layer.parent.mkdir(parents=True)
    layer.touch()
    (tmp_path / MACHINE / "rootdisk").symlink_to("layers/I1/disk")
    (tmp_path / OTHER).mkdir()
    (tmp_path / OTHER / "rootdisk").symlink_to("layers/I2/disk")
    assert root_disks(tmp_path) == {MACHINE: "I1"}


def test_memories_and_volumes_are_found_in_run_directories(tmp_path: Path) -> None:
    run = RunDir(tmp_path / MACHINE / "run")
    run.path.mkdir(parents=True)
    (tmp_path / OTHER / "run").mkdir(parents=True)
    assert memories(tmp_path) == frozenset()
    run.snapshot.write_text("{}")
    run.write_spec(
        InstanceSpec(
            machine_id=MACHINE,
            instance_id=InstanceId("I1"),
            hostname="m",
            processes=(ProcessSpec(argv=("serve",), env={}),),
            limits=InstanceLimits(cpus=1, cpu_weight=100, memory_mib=256, pids=100),
            volumes=(VolumeDisk(name="data", file="/volumes/vol_1/disk", target="/data"),),
        )
    )
    assert memories(tmp_path) == {MACHINE}
    assert volumes_in_use(tmp_path, {MACHINE: InstanceId("I1"), OTHER: InstanceId("I2")}) == {
        MACHINE: VolumeId("vol_1")
    }
