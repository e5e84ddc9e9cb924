"""Facts about the program that carries a device's packets, of a real one."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.host import links
from hawker.host.mesh.device import HostMesh, MeshKind, device_with
from hawker.host.mesh.program import ROOM_BYTES, program_of
from hawker.host.mesh.wireguard import MeshKey, own_key
from hawker.host.netlink import NetlinkSocket
from tests.node_ids import own_node_id
from tests.ports import free_ports

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.root,
    pytest.mark.skipif(shutil.which("wireguard-go") is None, reason="wireguard-go is missing"),
]

PORT, MTU = free_ports(2), 1420
PROGRAM = str(Path(shutil.which("wireguard-go") or "").resolve())


@pytest.fixture
def key(tmp_path: Path) -> MeshKey:
    return own_key(tmp_path / "key")


@pytest.fixture
def mesh(key: MeshKey, tmp_path: Path, own_network: None) -> Iterator[HostMesh]:
    made = HostMesh(own_node_id(), key, PORT, MTU, tmp_path / "log", [MeshKind.WIREGUARD_GO])
    yield made
    with NetlinkSocket() as routes:
        routes.apply([links.delete_link(made.name)])


async def test_program_of_a_device_is_found_and_named(mesh: HostMesh, key: MeshKey) -> None:
    await mesh.there()
    found, own = program_of(mesh.name), device_with(key)
    assert found is not None and found.file == PROGRAM
    assert own is not None and own.carrier == PROGRAM
    assert program_of("hwnonem") is None


async def test_sockets_of_a_program_have_room_also_those_for_another_port(mesh: HostMesh, tmp_path: Path) -> None:
    device = await mesh.there()
    assert rooms(PORT) and min(rooms(PORT)) >= ROOM_BYTES
    device.identify(own_key(tmp_path / "another"), PORT + 1)
    assert not rooms(PORT) and min(rooms(PORT + 1)) >= ROOM_BYTES


def rooms(port: int) -> list[int]:
    """How many bytes sockets at that UDP port have room for, as the kernel says."""
    words = ("ss", "--udp", "--all", "--numeric", "--memory", "--no-header", f"sport = :{port}")
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return [int(line.split(",rb")[1].split(",")[0]) for line in said.splitlines() if ",rb" in line]
