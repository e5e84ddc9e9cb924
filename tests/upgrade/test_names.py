"""What a node calls things on its host and in its directory: a version that computed another name would not find what
an older one made. To change one of these is to write an upgrade that renames.
"""

from ipaddress import IPv6Address, IPv6Network
from pathlib import Path

from hawker.host import address, nftables
from hawker.host.cgroup import Cgroups, find_hierarchies
from hawker.host.network import NodeNetwork
from hawker.ids import MachineId, NodeId
from hawker.place import Place
from hawker.runtime.crun import CrunBundle
from hawker.runtime.pilot.rundir import RunDir

NODE, MACHINE, NETWORK = NodeId("0123abcd"), MachineId("3d8f00c0ffee42"), 0xDEADBEEF
ROOT = Path("/srv/node")


def test_names_on_the_network() -> None:
    assert address.bridge_name(NODE, NETWORK) == "hw0123n32w353y"
    assert address.interface_prefix(NODE) == "hw0123"
    assert address.veth_name(NODE, MACHINE) == "hw0123v3d8f00c0"
    assert nftables.table_name(NODE) == "hawker_0123"
    assert NodeNetwork(NODE, ROOT / "netns").path_of(MACHINE) == ROOT / "netns" / MACHINE


def test_addresses() -> None:
    assert address.private_ip(NETWORK, MACHINE) == IPv6Address("fdaa:dead:beef:3d8f:c0:ffee:4200:2")
    assert address.machine_prefix(NETWORK, MACHINE) == IPv6Network("fdaa:dead:beef:3d8f:c0:ffee:4200:0/112")
    assert address.gateway(NETWORK) == IPv6Address("fdaa:dead:beef::1")
    assert address.machine_mac(MACHINE) == "06:00:c0:ff:ee:42"
    assert address.bridge_mac(NETWORK) == "02:00:de:ad:be:ef"


def test_control_groups() -> None:
    assert Cgroups(NODE, find_hierarchies(())).path_of(MACHINE) == f"/hawker-0123/{MACHINE}"


def test_the_directory() -> None:
    place = Place(ROOT)
    where = {place.store, place.token, place.images, place.machines, place.networks, place.crun}
    assert {str(path.relative_to(ROOT)) for path in where} == {
        "hawker.db", "token", "images", "machines", "netns", "crun"
    }  # fmt: skip
    run = RunDir(place.machines / MACHINE / "run")
    files = (run.socket, run.journal, *run.outputs, CrunBundle(run.path).config)
    assert [path.name for path in files] == ["pilot.sock", "journal", "output.0", "output.1", "config.json"]
    guests = (run.ports, run.vmm, run.vsock, run.snapshot)
    assert [str(path.relative_to(run.path)) for path in guests] == ["ports", "vmm", "vmm/vsock.sock", "snapshot"]
