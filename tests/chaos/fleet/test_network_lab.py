"""Hosts that are network namespaces: they reach each other, until they are parted or lose their power."""

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.chaos.fleet import network_lab
from hawker.chaos.fleet.network_lab import LabHost, NetworkLab
from hawker.host.residue import host, left
from tests.waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.slow]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[NetworkLab]:
    before = host()
    with NetworkLab(tmp_path, 3) as lab:
        bridge = lab.bridge
        yield lab
    wait_for(lambda: not left(before, bridge) or is_another_s(bridge))


def is_another_s(bridge: str) -> bool:
    """Whether another process has a lab of that number by now, and what is found is that lab's."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as claim:
        try:
            claim.bind(f"\0hawker-lab-{bridge.removeprefix('hwst')}")
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


_KNOCK = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 9), timeout=float(sys.argv[2]))
except ConnectionRefusedError:
    print("refused")
except OSError:
    print("lost")
"""


def reaches(one: LabHost, other: LabHost, patience_s: float = 30.0) -> bool:
    """Whoever is there refuses: nobody listens at that port."""
    return one.run(sys.executable, "-c", _KNOCK, other.address, str(patience_s)) == "refused\n"


def is_cut_off(one: LabHost, other: LabHost) -> bool:
    return not reaches(one, other, 0.3)


def test_hosts_have_networks_of_their_own_and_everybodys_control_groups(lab: NetworkLab) -> None:
    first, second, _ = lab.hosts
    assert reaches(first, second)
    assert sorted(first.run("ls", "/sys/class/net").split()) == ["lo", "up0"]
    wait_for(lambda: sorted(first.run("ls", "/sys/fs/cgroup").split()) == sorted(os.listdir("/sys/fs/cgroup")))


def test_a_host_keeps_nothing_that_a_node_beside_it_had_mounted(tmp_path: Path) -> None:
    around, layer = tmp_path / "mounts" / "disk", tmp_path / "node" / "machines" / "m" / "layers" / "one"
    growing = tmp_path / "node" / "volumes" / "vol_1" / "growing"
    for place in (around, layer, growing):
        place.mkdir(parents=True)
        subprocess.run(("mount", "-t", "tmpfs", "tmpfs", place), check=True)
    try:
        (around / "lab").mkdir()
        with NetworkLab(around / "lab", 1) as lab:
            seen = lab.hosts[0].run("cut", "-d", " ", "-f", "2", "/proc/self/mounts").splitlines()
        assert str(layer) not in seen and str(growing) not in seen
        assert str(around) in seen, "its own directory is on it"
    finally:
        subprocess.run(("umount", around, layer, growing), check=True)


def test_links_of_one_who_was_killed_are_no_hindrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are made while their number is its own: then another process may have the next lab of it."""
    with NetworkLab(tmp_path, 0) as killed:
        bridge = killed.bridge
        subprocess.run(("ip", "link", "add", f"{bridge}-1", "type", "veth", "peer", "name", f"{bridge}p"), check=True)
        monkeypatch.setattr(killed, "_clear", lambda: None)
        monkeypatch.setattr(network_lab, "_NUMBERS", (int(bridge.removeprefix("hwst")),))
    with NetworkLab(tmp_path, 0) as lab:
        assert lab.bridge == bridge
        assert not Path("/sys/class/net", f"{bridge}-1").exists()
    wait_for(lambda: not Path("/sys/class/net", bridge).exists() or is_another_s(bridge))


def test_labs_at_once_have_networks_of_their_own(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    with NetworkLab(tmp_path / "one", 1) as one, NetworkLab(tmp_path / "other", 1) as other:
        assert one.bridge != other.bridge and one.hosts[0].address != other.hosts[0].address
        assert not reaches(one.hosts[0], other.hosts[0], 0.3)


def test_a_partition_parts_the_sides_and_is_healed(lab: NetworkLab) -> None:
    first, second, third = lab.hosts
    lab.part([first], [second, third])
    assert is_cut_off(first, second) and is_cut_off(third, first) and reaches(second, third)
    lab.heal()
    assert reaches(first, second)


def test_host_may_hear_and_not_be_heard(lab: NetworkLab) -> None:
    first, second, _ = lab.hosts
    first.drop_from([second])
    listing = first.run("nft", "list", "table", "ip", "street")
    assert f"ip saddr {second.address} drop" in listing
    first.drop_from([second], percent=20)
    assert "numgen random mod 100 < 20" in first.run("nft", "list", "table", "ip", "street")


def test_a_host_that_lost_its_power_has_nothing_left_when_it_comes_back(lab: NetworkLab) -> None:
    first, second, _ = lab.hosts
    first.drop_from([second])
    first.power_off()
    first.power_on()
    assert reaches(first, second)
