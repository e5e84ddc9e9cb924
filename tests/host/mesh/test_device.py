"""One contract for every device of the mesh: the kernel's (by `wg`, which speaks to a program's device here in the same
words), a program's, and the one in memory.
"""

import secrets
import shutil
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from hawker.errors import Fault
from hawker.host import links
from hawker.host.mesh.device import (
    HostMesh,
    KernelDevice,
    MemoryDevice,
    MeshKind,
    TunnelDevice,
    device_with,
)
from hawker.host.mesh.program import ProgramDevice, program_of
from hawker.host.mesh.wireguard import MeshPeer, difference, own_key
from hawker.host.netlink import NetlinkSocket
from tests.node_ids import own_node_id
from tests.ports import free_ports
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("own_network")]

PORT, MTU = free_ports(2), 1420
A, B = (secrets.token_bytes(32) for _ in range(2))
needs_program = pytest.mark.skipif(shutil.which("wireguard-go") is None, reason="wireguard-go is missing")


def machine(number: int) -> str:
    return f"fdaa:7:7:0:{number:x}::/112"


def peers(**allowed: Iterable[int]) -> dict[str, MeshPeer]:
    return {KEYS[name]: MeshPeer(f"127.0.0.1:{PORT}", frozenset(map(machine, has))) for name, has in allowed.items()}


@pytest.fixture
async def host_mesh(tmp_path: Path, own_network: None) -> AsyncIterator[HostMesh]:
    mesh = HostMesh(own_node_id(), own_key(tmp_path / "key"), PORT, MTU, tmp_path / "log")
    yield mesh
    if links.index_of(mesh.name) is not None:
        with NetlinkSocket() as routes:
            routes.apply([links.delete_link(mesh.name)])


KEYS: dict[str, str] = {}


@pytest.fixture(autouse=True)
def keys(tmp_path: Path) -> None:
    KEYS.update({name: own_key(tmp_path / name).public for name in ("a", "b")})


@pytest.fixture(
    params=[
        "memory",
        pytest.param("program", marks=[pytest.mark.root, needs_program]),
        pytest.param("tool", marks=[pytest.mark.root, needs_program]),
    ]
)
async def mesh(request: pytest.FixtureRequest, host_mesh: HostMesh) -> TunnelDevice:
    if request.param == "memory":
        return MemoryDevice()
    made = await host_mesh.there()
    return KernelDevice(host_mesh.name) if request.param == "tool" else made


def change(mesh: TunnelDevice, after: dict[str, MeshPeer]) -> dict[str, MeshPeer]:
    mesh.change(difference(mesh.read().peers, after), after)
    return dict(mesh.read().peers)


async def test_peers_have_the_addresses_that_they_are_given(mesh: TunnelDevice) -> None:
    for wanted in (peers(a=[1, 2], b=[3]), peers(a=[1], b=[3, 4]), peers(a=[], b=[3]), peers(b=[5]), {}):
        assert change(mesh, wanted) == wanted
        assert difference(mesh.read().peers, wanted).is_none


async def test_an_address_that_moves_has_one_peer(mesh: TunnelDevice) -> None:
    change(mesh, peers(a=[1, 2], b=[3]))
    assert change(mesh, peers(a=[2], b=[1, 3])) == peers(a=[2], b=[1, 3])
    assert change(mesh, peers(b=[1, 2, 3])) == peers(b=[1, 2, 3])


async def test_a_peer_is_told_a_new_way_and_keeps_its_addresses(mesh: TunnelDevice) -> None:
    change(mesh, peers(a=[1]))
    moved = {KEYS["a"]: MeshPeer("[::1]:4283", frozenset([machine(1)]), 25)}
    assert change(mesh, moved) == moved


async def test_a_device_has_its_key_and_port(mesh: TunnelDevice, tmp_path: Path) -> None:
    key = own_key(tmp_path / "another")
    mesh.identify(key, PORT + 1)
    state = mesh.read()
    assert (state.private, state.port) == (key.private, PORT + 1)


@pytest.mark.root
@needs_program
async def test_a_device_is_taken_up_and_made_anew_when_its_program_ended(host_mesh: HostMesh) -> None:
    first = await host_mesh.there()
    assert host_mesh.kind is not None
    change(first, peers(a=[1]))
    assert (await host_mesh.there()).read().peers == peers(a=[1])
    with NetlinkSocket() as routes:
        routes.apply([links.delete_link(host_mesh.name)])
    await eventually(lambda: program_of(host_mesh.name) is None)  # until then its socket is in use
    assert not (await host_mesh.there()).read().peers


@pytest.mark.root
@needs_program
async def test_a_device_is_found_by_its_key(host_mesh: HostMesh, tmp_path: Path) -> None:
    made = await host_mesh.there()
    change(made, peers(a=[1]))
    found = device_with(own_key(tmp_path / "key"))
    assert found is not None and found.state.peers == peers(a=[1])
    assert device_with(own_key(tmp_path / "strange")) is None


@pytest.mark.root
@needs_program
async def test_of_two_nodes_in_one_namespace_the_first_has_the_mesh(host_mesh: HostMesh, tmp_path: Path) -> None:
    await host_mesh.there()
    second = HostMesh(own_node_id(), own_key(tmp_path / "second"), PORT + 1, MTU, tmp_path / "log2")
    with pytest.raises(Fault, match=f"another node of this host has the mesh: {host_mesh.name}"):
        await second.there()


@pytest.mark.root
async def test_a_host_without_any_says_why(tmp_path: Path) -> None:
    mesh = HostMesh(own_node_id(), own_key(tmp_path / "k"), PORT, MTU, tmp_path / "log", [])
    with pytest.raises(Fault, match="this host has no WireGuard"):
        await mesh.there()


@pytest.mark.root
async def test_a_device_that_does_not_answer_is_an_error_of_the_host(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        ProgramDevice("hwnonem", tmp_path).read()
    assert MeshKind.KERNEL in MeshKind


@pytest.mark.root
@needs_program
async def test_a_device_that_is_up_takes_another_key_and_keeps_its_peers(host_mesh: HostMesh, tmp_path: Path) -> None:
    mesh = await host_mesh.there()
    change(mesh, peers(a=[1]))
    other = own_key(tmp_path / "other")
    host_mesh.take(other)
    found = (await host_mesh.there()).read()
    assert found.private == other.private and found.peers == peers(a=[1])
