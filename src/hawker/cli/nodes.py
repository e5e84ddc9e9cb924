"""Nodes of the fleet on the command line: found by the unique beginning of an id, and shown as a table or in full."""

from collections.abc import Iterable

from hawker.api.caller import Caller
from hawker.api.contract.cluster import LIST_NODES, FleetNode, FleetNodes
from hawker.cli.tables import fields, local, size, table
from hawker.errors import BadRequest, NotFound

_MIB = 1 << 20
_SKEW_S = 60.0


async def find_fleet_node(caller: Caller, text: str) -> FleetNode:
    """Raises `NotFound`, and `BadRequest` when several begin so."""
    nodes = (await caller.call(LIST_NODES)).nodes
    found = [node for node in nodes if node.id.startswith(text)] if text else []
    if not found:
        raise NotFound(f"no node {text!r}; there are {_named(nodes)}")
    if len(found) > 1:
        raise BadRequest(f"node {text!r} is not unique: {_named(found)}")
    return found[0]


def nodes_table(answer: FleetNodes) -> str:
    rows = (
        (
            node.id,
            node.region,
            node.state,
            _scheduling(node),
            node.machines,
            _cpus(node),
            _memory(node),
            "-" if node.rtt_ms is None else f"{node.rtt_ms:.3g} ms",
            node.version,
        )
        for node in answer.nodes
    )
    return table(("NODE", "REGION", "STATE", "SCHEDULING", "MACHINES", "CPUS", "MEMORY", "RTT", "VERSION"), rows)


def node_fields(node: FleetNode) -> str:
    labels = ", ".join(f"{key}={value}" for key, value in sorted(node.labels.items()))
    return fields(
        (
            ("id", node.id),
            ("region", node.region),
            ("state", node.state),
            ("since", local(node.since) if node.since else None),
            ("scheduling", _scheduling(node)),
            ("labels", labels),
            ("drivers", ", ".join(node.drivers)),
            ("peer api", node.api),
            ("version", node.version),
            ("clock", _clock(node)),
        )
    )


def _named(nodes: Iterable[FleetNode]) -> str:
    return ", ".join(node.id for node in nodes)


def _scheduling(node: FleetNode) -> str:
    """Whether the node accepts new machines."""
    if node.draining:
        return "draining"
    return "disabled" if node.cordoned else "enabled"


def clock_notes(answer: FleetNodes) -> list[str]:
    """What the person who looks at the nodes should know of their clocks."""
    return [
        f"the clock of {node.id} is {_clock(node)}: see `hawker node doctor`" for node in answer.nodes if _is_off(node)
    ]


def _is_off(node: FleetNode) -> bool:
    return abs(node.clock_ahead_s or 0.0) > _SKEW_S


def _clock(node: FleetNode) -> str | None:
    if node.clock_ahead_s is None:
        return None
    if not _is_off(node):
        return "right"
    side = "ahead of" if node.clock_ahead_s > 0 else "behind"
    return f"{abs(node.clock_ahead_s):.0f} s {side} the clock of the asked node"


def _cpus(node: FleetNode) -> str | None:
    """Used and sold; shared ones count for what they take of a cpu."""
    if node.capacity is None or node.used is None:
        return None
    used = node.used.performance_cpus + node.used.shared_cpus / (node.capacity.shared_cpu_ratio or 1)
    return f"{used:.3g}/{node.capacity.cpus}"


def _memory(node: FleetNode) -> str | None:
    if node.capacity is None or node.used is None:
        return None
    return f"{size(node.used.memory_mb * _MIB)}/{size(node.capacity.memory_mb * _MIB)}"
