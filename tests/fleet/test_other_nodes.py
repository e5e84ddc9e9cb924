import pytest

from hawker.api.directory import Node
from hawker.clock import ManualClock
from hawker.errors import Unavailable
from hawker.fleet.app_bundle import vaults_of
from hawker.fleet.other_nodes import FleetOtherNodes
from hawker.ids import MachineId, NodeId

ME, GONE = NodeId("00000001"), {NodeId("00000002")}


class Directory:
    region = "mad"

    def nodes(self) -> tuple[Node, ...]:
        return (Node(id=ME, region="mad", labels={}),)

    def owner_of_machine(self, machine_id: str) -> NodeId | None:
        return ME if machine_id == "m" else None


async def lost(node: NodeId) -> float | None:
    return 5.0 if node != ME else None


def others(*keys: bytes) -> FleetOtherNodes:
    vaults, gone = vaults_of(lambda: list(keys), ManualClock()), GONE.__contains__
    return FleetOtherNodes(ME, Directory(), None, None, vaults, lambda machine: 2, lost, gone)  # type: ignore[arg-type]


def test_a_sealed_secret_is_opened_by_every_node_with_a_key_of_the_cluster() -> None:
    old, new, foreign = bytes(32), bytes(range(32)), bytes([7] * 32)
    sealed = others(old).seal(b"a machine")
    assert b"a machine" not in sealed
    assert others(new, old).open(sealed) == b"a machine"
    with pytest.raises(Unavailable, match="a key that this node does not know"):
        others(new, foreign).open(sealed)


def test_the_catalog_says_where_a_machine_is() -> None:
    known = others(bytes(32))
    assert known.me == ME and [node.id for node in known.nodes()] == [ME]
    assert known.seen_at(MachineId("m")) == ME and known.seen_at(MachineId("other")) is None


def test_a_node_that_was_forgotten_is_known_as_such() -> None:
    known = others(bytes(32))
    assert known.is_forgotten(NodeId("00000002")) and not known.is_forgotten(ME)
