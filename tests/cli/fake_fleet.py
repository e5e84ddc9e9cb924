"""A fake node's answers about its fleet: three nodes, of which one is down and of another region; two keys."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from hawker.api.contract.cluster import (
    ClusterKey,
    ClusterKeys,
    DrainAnswer,
    FleetNode,
    FleetNodes,
    ForgottenNode,
    NodeMachine,
)
from hawker.api.contract.node import Amounts, HostCapacity
from hawker.api.route import Call
from hawker.errors import NotFound

SINCE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_ROOM = HostCapacity(cpus=4, memory_mb=2048, disk_mb=4096, shared_cpu_ratio=8.0)
_USED = Amounts(shared_cpus=4, performance_cpus=1, memory_mb=512, disk_mb=256)


def _node(node_id: str, **fields: Any) -> FleetNode:
    return FleetNode(id=node_id, **{"region": "mad", "state": "alive", "cordoned": False, "draining": False, **fields})


class FakeFleet:
    def __init__(self) -> None:
        super().__init__()
        self.nodes = {
            "0badcafe": _node("0badcafe", machines=3, capacity=_ROOM, used=_USED, since=SINCE, labels={"disk": "ssd"}),
            "0bad0001": _node("0bad0001", cordoned=True, rtt_ms=0.4217),
            "00c0ffee": _node("00c0ffee", region="fra", state="down", drivers=("container",)),
        }
        self.missing_at: tuple[str, ...] = ()
        self.residents: tuple[NodeMachine, ...] = ()

    async def _list_nodes(self, call: Call[Any, Any, Any]) -> FleetNodes:
        return FleetNodes(nodes=tuple(self.nodes.values()))

    async def _get_node(self, call: Call[Any, Any, Any]) -> FleetNode:
        if call.params.node_id not in self.nodes:
            raise NotFound("there is no such node")
        return self.nodes[call.params.node_id]

    async def _cordon_node(self, call: Call[Any, Any, Any]) -> FleetNode:
        return msgspec.structs.replace(await self._get_node(call), cordoned=True)

    async def _uncordon_node(self, call: Call[Any, Any, Any]) -> FleetNode:
        return msgspec.structs.replace(await self._get_node(call), cordoned=False)

    async def _drain_node(self, call: Call[Any, Any, Any]) -> DrainAnswer:
        node = msgspec.structs.replace(await self._get_node(call), cordoned=True, draining=True)
        return DrainAnswer(node=node, machines=self.residents)

    async def _forget_node(self, call: Call[Any, Any, Any]) -> ForgottenNode:
        return ForgottenNode(node=call.params.node_id, epoch=4)

    async def _list_cluster_keys(self, call: Call[Any, Any, Any]) -> ClusterKeys:
        keys = (
            ClusterKey(number=1, name="aabbccdd", primary=True),
            ClusterKey(number=2, name="00112233", primary=False),
        )
        return ClusterKeys(keys=keys, version=2, missing_at=self.missing_at)

    _add_cluster_key = _use_cluster_key = _remove_cluster_key = _list_cluster_keys
