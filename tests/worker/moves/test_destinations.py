"""Which nodes a move may go to."""

from typing import Any

import msgspec
import pytest

from hawker.api.directory import Node
from hawker.errors import NoDestination
from hawker.ids import AppName, MachineId, NodeId
from hawker.node import Capacity, Resources
from hawker.record.move import MoveRecord
from hawker.worker.moves.destinations import candidates

ME = NodeId("00000001")


def node(number: int, *, free: int = 0, region: str = "mad", **fields: Any) -> Node:
    capacity = Capacity(cpus=1, memory_mib=free, disk_mib=free)
    return Node(id=NodeId(f"{number:08x}"), region=region, labels={}, capacity=capacity, used=Resources(), **fields)


def wish(**fields: str) -> MoveRecord:
    made = MoveRecord(
        id="01", app=AppName("a"), machine=MachineId("m"), region="mad", generation=2, created_at=0.0, updated_at=0.0
    )
    return msgspec.structs.replace(made, **fields)


def test_the_emptiest_node_of_the_region_that_takes_machines_is_asked_first() -> None:
    nodes = [node(1, free=9), node(2, free=1), node(3, free=5), node(4, free=7, cordoned=True)]
    nodes += [node(5, free=8, region="fra"), node(6, free=8, alive=False), node(7, free=8, draining=True)]
    assert candidates(nodes, ME, wish()) == ["00000003", "00000002"]
    assert candidates(nodes, ME, wish(region="fra")) == ["00000005"]
    assert candidates(nodes, ME, wish(wanted="00000005")) == ["00000005"]
    with pytest.raises(NoDestination, match="node 00000004 is silent"):
        candidates(nodes, ME, wish(wanted="00000004"))
