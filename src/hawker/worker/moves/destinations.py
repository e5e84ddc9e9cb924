"""Which nodes a move may go to, and in which order they are asked. The node that is asked has the last word."""

from collections.abc import Sequence

from hawker.api.contract.app import AppParams
from hawker.api.contract.node import NODE_INFO
from hawker.api.contract.volume import LIST_VOLUMES, ListVolumesQuery
from hawker.api.directory import Node
from hawker.api.route import NoParams
from hawker.errors import HawkerError, NoDestination, NotFound
from hawker.ids import NodeId
from hawker.record.move import MoveRecord
from hawker.record.volume import VolumeRecord, count_beside
from hawker.runtime.saved_memory import SavedBy
from hawker.worker.lifecycle.deps import OtherNodes


async def apart_first(others: OtherNodes, able: Sequence[NodeId], volume: VolumeRecord) -> list[NodeId]:
    """Nodes without a volume of this name before those that have one, or do not say."""
    params, query = AppParams(app_name=volume.app), ListVolumesQuery(summary=True)
    knows, have = frozenset(others.nodes_of_app(volume.app)), set[NodeId]()
    for node in knows.intersection(able):
        try:
            there = await others.caller(node).call(LIST_VOLUMES, params=params, query=query)
        except NotFound:
            continue
        except HawkerError:
            have.add(node)
            continue
        if count_beside(there.items, volume.name):
            have.add(node)
    return sorted(able, key=lambda node: node in have)


COLD_START = "move it with `--cold-start` (`cold_start`), which drops its memory"


async def resumable(others: OtherNodes, able: Sequence[NodeId], move: MoveRecord) -> list[NodeId]:
    """Those of `able` that go on from the machine's memory, if it takes one along; nodes that do not say come last.
    Raises `NoDestination` when each says that it does not, with its reason."""
    if move.memory is None:
        return list(able)
    fit, silent, refusals = list[NodeId](), list[NodeId](), list[str]()
    for node in able:
        try:
            said = await others.caller(node).call(NODE_INFO, params=NoParams())
        except HawkerError:
            silent.append(node)
            continue
        lacks = move.memory.saved_by.lacks(SavedBy(vmm=said.resumes, cpu_model=said.cpu_model))
        if lacks:
            refusals.append(f"node {node}: {lacks}")
        else:
            fit.append(node)
    if not fit and not silent:
        raise NoDestination(f"no node resumes machine {move.machine}: {'; '.join(refusals)}: {COLD_START}")
    return fit + silent


def candidates(nodes: Sequence[Node], me: NodeId, move: MoveRecord) -> list[NodeId]:
    """The emptiest first. A node that is asked for by name may be of any region; one to which a machine goes back may
    be cordoned. Raises `NoDestination`."""
    if move.wanted:
        able = [node for node in nodes if node.alive] if move.back_of else takers(nodes, me)
        if not any(node.id == move.wanted for node in able):
            raise NoDestination(f"node {move.wanted} is silent, takes no machines now, or is not known here")
        return [move.wanted]
    near = takers(nodes, me, move.region)
    if not near:
        raise NoDestination(f"no other node of region {move.region} lives and takes machines")
    return [node.id for node in sorted(near, key=lambda node: (-_free_mib(node), node.id))]


def takers(nodes: Sequence[Node], me: NodeId, region: str | None = None) -> list[Node]:
    """The other nodes, of that region or of any, that live and take machines and volumes now."""
    able = [node for node in nodes if node.id != me and node.alive and not node.cordoned and not node.draining]
    return [node for node in able if region in (None, node.region)]


def disk_free_mib(node: Node) -> int:
    """The free disk of a node in MiB; 0 where it is not known."""
    return 0 if node.capacity is None or node.used is None else node.capacity.disk_mib - node.used.disk_mib


def _free_mib(node: Node) -> int:
    if node.capacity is None or node.used is None:
        return 0
    return min(disk_free_mib(node), node.capacity.memory_mib - node.used.memory_mib)
