"""What is on a host and belongs to nothing."""

import os
from pathlib import Path

import pytest

from hawker.chaos.footprint import Claims, mounted, networks, pilots, unclaimed
from hawker.chaos.traces import Trace
from hawker.host.address import bridge_name, veth_name
from hawker.host.mount import mount_overlay, unmount
from hawker.ids import MachineId, NodeId

NODE, DATA = NodeId("0123abcd"), Path("/data")
RUNNING, OFF, GONE = MachineId("11111111111111"), MachineId("22222222222222"), MachineId("33333333333333")
CLAIMS = Claims(NODE, DATA, recorded=(RUNNING, OFF), running=(RUNNING,))


def mount(target: str, source: str = "overlay") -> Trace:
    return Trace("mount", target, f"{target} 1 2 0:1 / {target} rw - overlay {source} rw")


@pytest.mark.parametrize(
    "trace",
    [
        Trace("process", "7 pilot", f"pilot /data/machines/{RUNNING}"),
        mount("/data/mounts/abc"),
        mount(f"/data/machines/{RUNNING}/rootfs"),
        mount(f"/data/netns/{OFF}"),
        Trace("interface", veth_name(NODE, OFF)),
        Trace("interface", "eth0"),
        Trace("cgroup", f"/sys/fs/cgroup/hawker-{NODE}"),
        Trace("cgroup", f"/sys/fs/cgroup/hawker-{NODE}/{RUNNING}"),
        Trace("table", "table inet hawker_0123"),
    ],
    ids=str,
)
def test_what_belongs_to_a_machine_or_to_the_node(trace: Trace) -> None:
    assert unclaimed([trace], CLAIMS) == []


@pytest.mark.parametrize(
    "trace",
    [
        Trace("process", "7 pilot", f"pilot /data/machines/{OFF}"),
        Trace("process", "8 hawker up --data-dir /data", "hawker up --data-dir /data"),
        mount(f"/data/machines/{GONE}/rootfs"),
        mount(f"/data/netns/{GONE}"),
        Trace("interface", veth_name(NODE, GONE)),
        Trace("cgroup", f"/sys/fs/cgroup/hawker-{NODE}/{OFF}"),
        Trace("staged tree", "/dev/shm/hawker-0-1-x"),
        Trace("loop", "loop3 of /data/images/rootfs/abc.erofs"),
    ],
    ids=str,
)
def test_what_belongs_to_nothing(trace: Trace) -> None:
    assert unclaimed([trace], CLAIMS) == [str(trace)]


def test_a_loop_device_belongs_to_its_mount() -> None:
    loop = Trace("loop", "loop3 of /data/images/rootfs/abc.erofs")
    assert unclaimed([loop, mount("/data/mounts/abc", "/dev/loop3")], CLAIMS) == []


def test_a_bridge_that_is_not_there_any_more_is_nobodys() -> None:
    assert unclaimed([Trace("interface", bridge_name(NODE, 7))], CLAIMS) == []


@pytest.mark.root
def test_a_mounted_layer_names_its_instance(tmp_path: Path) -> None:
    target, layer = tmp_path / "machines" / RUNNING / "rootfs", tmp_path / "machines" / RUNNING / "layers" / "instance"
    for directory in (tmp_path / "lower", layer / "upper", layer / "work"):
        directory.mkdir(parents=True)
    mount_overlay(tmp_path / "lower", layer / "upper", layer / "work", target)
    try:
        assert mounted(tmp_path / "machines") == {RUNNING: "instance"}
    finally:
        unmount(target)
    assert mounted(tmp_path / "machines") == {}


def test_what_is_no_pilot_is_not_counted(tmp_path: Path) -> None:
    (tmp_path / RUNNING).mkdir()
    with (tmp_path / RUNNING / "journal").open("w"):
        assert os.getpid() > 0 and not pilots(tmp_path)


def test_a_network_is_known_by_its_file(tmp_path: Path) -> None:
    assert networks(tmp_path / "netns") == frozenset()
    (tmp_path / "netns").mkdir()
    (tmp_path / "netns" / RUNNING).touch()
    assert networks(tmp_path / "netns") == {RUNNING}
