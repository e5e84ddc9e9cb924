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
    Invite,
    Invited,
    InviteList,
    NodeMachine,
)
from hawker.api.contract.image import RegistryLogin, RegistryLoginList
from hawker.api.contract.node import Amounts, HostCapacity
from hawker.api.contract.org import Quota, QuotaAmounts, QuotaLimits, QuotaList
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

    async def _create_invite(self, call: Call[Any, Any, Any]) -> Invite:
        return msgspec.structs.replace(self._invite(), token="hwj_secret")

    async def _list_invites(self, call: Call[Any, Any, Any]) -> InviteList:
        return InviteList(invites=(self._invite(),))

    async def _revoke_invite(self, call: Call[Any, Any, Any]) -> Invite:
        return msgspec.structs.replace(self._invite(), state="revoked")

    def _invite(self) -> Invite:
        joined = (Invited(node="", source="10.0.0.2", at=SINCE),)
        return Invite(
            id="0badcafe01",
            node="0badcafe",
            state="open",
            created_at=SINCE,
            expires_at=SINCE,
            uses=2,
            by="root",
            joined=joined,
        )

    async def _list_quotas(self, call: Call[Any, Any, Any]) -> QuotaList:
        return QuotaList(quotas=(self._quota(), msgspec.structs.replace(self._quota(), subject="org/*")))

    async def _list_registry_logins(self, call: Call[Any, Any, Any]) -> RegistryLoginList:
        return RegistryLoginList(logins=(await self._put_registry_login(call),))

    async def _put_registry_login(self, call: Call[Any, Any, Any]) -> RegistryLogin:
        return RegistryLogin(registry="reg.example", username="ada", at=SINCE, by="root", nodes=("0badcafe",))

    async def _delete_registry_login(self, call: Call[Any, Any, Any]) -> None:
        return None

    async def _put_quota(self, call: Call[Any, Any, Any]) -> Quota:
        return self._quota()

    _clear_quota = _put_quota

    def _quota(self) -> Quota:
        return Quota(
            subject="org/acme",
            limits=QuotaLimits(machines=5),
            used_here=QuotaAmounts(machines=1, cpus=1),
            used_elsewhere=QuotaAmounts(machines=2),
            set_at=SINCE,
            set_by="root",
        )

    async def _list_cluster_keys(self, call: Call[Any, Any, Any]) -> ClusterKeys:
        keys = (
            ClusterKey(number=1, name="aabbccdd", primary=True),
            ClusterKey(number=2, name="00112233", primary=False),
        )
        return ClusterKeys(keys=keys, version=2, missing_at=self.missing_at)

    _add_cluster_key = _use_cluster_key = _remove_cluster_key = _list_cluster_keys
