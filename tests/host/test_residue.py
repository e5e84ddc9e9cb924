"""What is on a host and belongs to nothing."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hawker.host.address import bridge_name, veth_name
from hawker.host.mount import mount_overlay, unmount
from hawker.host.residue import RecordedClaims, Residue, host, left, mounted, networks, pilots, unclaimed
from hawker.ids import MachineId, NodeId
from tests.waiting import wait_for

NODE, DATA = NodeId("0123abcd"), Path("/data")
RUNNING, OFF, GONE = MachineId("11111111111111"), MachineId("22222222222222"), MachineId("33333333333333")
CLAIMS = RecordedClaims(NODE, DATA, recorded=(RUNNING, OFF), running=(RUNNING,))


def mount(target: str, source: str = "overlay") -> Residue:
    return Residue("mount", target, f"{target} 1 2 0:1 / {target} rw - overlay {source} rw")


@pytest.mark.parametrize(
    "trace",
    [
        Residue("process", "7 pilot", f"pilot /data/machines/{RUNNING}"),
        mount("/data/mounts/abc"),
        mount(f"/data/machines/{RUNNING}/rootfs"),
        mount(f"/data/netns/{OFF}"),
        Residue("interface", veth_name(NODE, OFF)),
        Residue("interface", "eth0"),
        Residue("cgroup", f"/sys/fs/cgroup/hawker-{NODE}"),
        Residue("cgroup", f"/sys/fs/cgroup/hawker-{NODE}/{RUNNING}"),
        Residue("table", "table inet hawker_0123"),
    ],
    ids=str,
)
def test_residue_that_belongs_to_a_machine_or_to_the_node(trace: Residue) -> None:
    assert unclaimed([trace], CLAIMS) == []


@pytest.mark.parametrize(
    "trace",
    [
        Residue("process", "7 pilot", f"pilot /data/machines/{OFF}"),
        Residue("process", "8 hawker up --data-dir /data", "hawker up --data-dir /data"),
        mount(f"/data/machines/{GONE}/rootfs"),
        mount(f"/data/netns/{GONE}"),
        Residue("interface", veth_name(NODE, GONE)),
        Residue("cgroup", f"/sys/fs/cgroup/hawker-{NODE}/{OFF}"),
        Residue("staged tree", "/dev/shm/hawker-0-1-x"),
        Residue("trace ring", f"hawker-{NODE}-vol_0000000000000001"),
        Residue("loop", "loop3 of /data/images/rootfs/abc.erofs"),
    ],
    ids=str,
)
def test_residue_that_belongs_to_nothing(trace: Residue) -> None:
    assert unclaimed([trace], CLAIMS) == [str(trace)]


def test_a_loop_device_belongs_to_its_mount() -> None:
    loop = Residue("loop", "loop3 of /data/images/rootfs/abc.erofs")
    assert unclaimed([loop, mount("/data/mounts/abc", "/dev/loop3")], CLAIMS) == []


def test_a_layer_that_is_ready_for_a_later_start_is_the_nodes_own() -> None:
    ready, other = Residue("loop", "loop4 of /data/layers/draft-5d"), Residue("loop", "loop5 of /data/layers/x")
    assert unclaimed([ready, other], CLAIMS) == [str(other)]


def test_a_bridge_that_is_not_there_any_more_is_nobodys() -> None:
    assert unclaimed([Residue("interface", bridge_name(NODE, 7))], CLAIMS) == []


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


def test_process_that_is_no_pilot_is_not_counted(tmp_path: Path) -> None:
    (tmp_path / RUNNING).mkdir()
    with (tmp_path / RUNNING / "journal").open("w"):
        assert os.getpid() > 0 and not pilots(tmp_path)


def test_a_network_is_known_by_its_file(tmp_path: Path) -> None:
    assert networks(tmp_path / "netns") == frozenset()
    (tmp_path / "netns").mkdir()
    (tmp_path / "netns" / RUNNING).touch()
    assert networks(tmp_path / "netns") == {RUNNING}


@contextmanager
def process(argv: list[str], **env: str) -> Iterator[int]:
    with subprocess.Popen(argv, env={**os.environ, **env}) as child:
        try:
            yield child.pid
        finally:
            child.kill()


def test_a_process_of_a_machine_is_seen_until_it_ends(tmp_path: Path) -> None:
    before = host()
    with process(["sleep", "60"], FLY_MACHINE_ID="148ed", HERE=str(tmp_path)) as pid:
        [found] = wait_for(lambda: left(before, tmp_path))
        assert str(found) == f"process {pid} sleep 60"
    assert left(before, tmp_path) == []


def test_a_daemon_and_a_pilot_are_seen(tmp_path: Path) -> None:
    before = host()
    pilot, daemon = tmp_path / "pilot", tmp_path / "hawker"
    for program in (pilot, daemon):
        shutil.copy(shutil.which("sleep") or "", program)
        with process([str(program), "60"]):
            assert len(wait_for(lambda: left(before, tmp_path))) == 1


def test_other_processes_and_this_one_are_not_seen(tmp_path: Path) -> None:
    before = host()
    with process([sys.executable, "-c", "input()", str(tmp_path)]):
        assert left(before, tmp_path) == []


@pytest.mark.root
def test_a_mount_is_seen_by_its_directory_and_its_source(tmp_path: Path) -> None:
    before = host()
    target = tmp_path / "a b"
    target.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", str(target)], check=True)
    try:
        assert [str(trace) for trace in left(before, tmp_path)] == [f"mount {target}"]
        assert left(before, tmp_path / "elsewhere") == []
    finally:
        subprocess.run(["umount", str(target)], check=True)
    assert left(before, tmp_path) == []


@pytest.mark.root
def test_an_interface_a_table_and_a_loop_device_are_seen(tmp_path: Path) -> None:
    before, link, table = host(), f"hwffff{os.getpid():x}", f"hawker_stray_{os.getpid()}"
    (tmp_path / "disk").write_bytes(bytes(1 << 20))
    made = subprocess.run(["losetup", "-f", "--show", tmp_path / "disk"], check=True, capture_output=True, text=True)
    try:
        subprocess.run(["ip", "link", "add", link, "type", "bridge"], check=True)
        subprocess.run(["nft", "add", "table", "inet", table], check=True)
        kinds = [trace.kind for trace in left(before, tmp_path, link, table)]
        assert kinds == ["interface", "loop", "table"]
    finally:
        subprocess.run(["losetup", "-d", made.stdout.strip()], check=True)
        subprocess.run(["ip", "link", "delete", link], check=False)
        subprocess.run(["nft", "delete", "table", "inet", table], check=False)
    wait_for(lambda: not left(before, tmp_path, link, table))
