"""The sentinel over a node's spares, given the eyes and the voice of its fleet."""

from hawker.api.contract.cluster import MEMBER_FATE, NodeParams
from hawker.catalog.contract import Catalog
from hawker.fleet.failover import Failover
from hawker.fleet.failover_view import CatalogSight
from hawker.fleet.fleet import Fleet
from hawker.ids import NodeId
from hawker.worker.parts import Parts

_NAME = "spares"


def sentinel(parts: Parts, fleet: Fleet, catalog: Catalog) -> Failover:
    async def ask(node: NodeId, about: NodeId) -> str:
        caller = fleet.caller(node, _NAME)
        return (await caller.call(MEMBER_FATE, params=NodeParams(node_id=about))).fate

    sight = CatalogSight(
        me=parts.node.id,
        region=parts.node.region,
        catalog=catalog,
        believed=lambda: {member.node: str(member.fate) for member in fleet.members},
        ask=ask,
    )
    return Failover(parts, sight)
