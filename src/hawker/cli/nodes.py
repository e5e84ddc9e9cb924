"""Nodes of the fleet on the command line: found by the unique beginning of an id, and shown as a table or in full."""

from collections.abc import Iterable, Iterator

from hawker.api.caller import Caller
from hawker.api.contract.catalog import QUERY_CATALOG, CatalogStatement, Cell
from hawker.api.contract.cluster import LIST_NODES, FleetNode, FleetNodes
from hawker.cli.output import fields, local, table
from hawker.errors import BadRequest, NotFound
from hawker.value_object import ValueObject

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


_HEADINGS = ("NODE", "REGION", "STATE", "SCHEDULING", "MACHINES", "CPUS", "SHARED", "MEMORY")
_WIDE = ("RTT", "PEER API", "VERSION")


def nodes_table(answer: FleetNodes, *, wide: bool = False) -> str:
    """What is used of what is sold. SHARED are cpus of the kind of which several are sold for each real one."""
    rows = (
        (
            node.id,
            node.region,
            node.state,
            _scheduling(node),
            node.machines,
            _cpus(node),
            _shared(node),
            _memory(node),
            *(("-" if node.rtt_ms is None else f"{node.rtt_ms:.3g} ms", node.api, node.version) if wide else ()),
        )
        for node in answer.nodes
    )
    return table((*_HEADINGS, *(_WIDE if wide else ())), rows)


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


def _shared(node: FleetNode) -> str | None:
    if node.capacity is None or node.used is None:
        return None
    ratio = node.capacity.shared_cpu_ratio or 1
    return f"{node.used.shared_cpus}/{int(node.capacity.cpus * ratio)} ({ratio:.3g}:1)"


def _memory(node: FleetNode) -> str | None:
    if node.capacity is None or node.used is None:
        return None
    return f"{node.used.memory_mb / 1024:.2f}/{node.capacity.memory_mb / 1024:.1f} GiB"


# What is lost with a node that is forgotten, as the catalog of the asked node has it.

_APPS = (
    "SELECT a.name, (SELECT count(*) FROM apps o WHERE o.name = a.name AND o.node <> a.node),"
    " (SELECT count(*) FROM apps o WHERE o.name = a.name AND o.home > a.home)"
    " FROM apps a WHERE a.node = ? AND a.home > 0 ORDER BY a.name"
)
_MACHINES = "SELECT count(*) FROM machines WHERE node = ?"
_VOLUMES = "SELECT count(*) FROM volumes WHERE node = ?"


class Loss(ValueObject, frozen=True, kw_only=True):
    """`left` are apps that another node can be the home of, `gone` those that nobody else knows."""

    machines: int
    """How many are gone with the node, 0 or more."""
    volumes: int
    """How many are gone with the node, 0 or more."""
    left: tuple[str, ...]
    gone: tuple[str, ...]


async def loss_of(caller: Caller, node: str) -> Loss:
    """Machines and volumes of another region are not known here, and counted as none."""
    (machines, *_), *_ = await _rows(caller, _MACHINES, node)
    (volumes, *_), *_ = await _rows(caller, _VOLUMES, node)
    apps = [(str(name), known) for name, known, better in await _rows(caller, _APPS, node) if not better]
    return Loss(
        machines=int(str(machines)),
        volumes=int(str(volumes)),
        left=tuple(name for name, known in apps if known),
        gone=tuple(name for name, known in apps if not known),
    )


def said_of(node: str, loss: Loss) -> Iterator[str]:
    yield f"node {node} has {loss.machines} machines and {loss.volumes} volumes: they will no longer be listed"
    if loss.left:
        yield (
            f"node {node} is the home of {', '.join(loss.left)}: the next call that needs a home moves it to another"
            " node, with that node's copy of secrets and policies; the claims of its orders' keys are lost"
        )
    if loss.gone:
        yield f"no other node knows {', '.join(loss.gone)}: it is lost with its secrets and policies; create it again"


async def _rows(caller: Caller, query: str, node: str) -> list[tuple[Cell, ...]]:
    async with caller.stream(QUERY_CATALOG, body=CatalogStatement(query=query, params=(node,))) as lines:
        return [line.row async for line in lines if line.row is not None]
