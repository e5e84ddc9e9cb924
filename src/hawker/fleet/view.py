"""The fleet as one node knows it: what the catalog has of each node, and what gossip says of its life. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from hawker.api.contract.body import instant
from hawker.api.contract.cluster import FleetNode
from hawker.api.contract.node import Amounts, HostCapacity
from hawker.catalog.change import Value
from hawker.catalog.contract import ResultTable, Statement
from hawker.gossip.contract import Fate, Member
from hawker.ids import NodeId

T = TypeVar("T")

NODES = Statement(
    query="SELECT n.node, n.region, n.api, n.version, n.drivers, n.labels, n.cordoned, n.draining, n.started_at,"
    " c.cpus, c.memory_mib, c.disk_mib, c.shared_ratio, c.used_shared_cpus, c.used_performance_cpus,"
    " c.used_memory_mib, c.used_disk_mib, c.gpus,"
    " (SELECT count(*) FROM machines m WHERE m.node = n.node) AS machines"
    " FROM nodes n LEFT JOIN capacity c ON c.node = n.node"
)


def fleet_nodes(table: ResultTable, members: Sequence[Member], me: NodeId) -> tuple[FleetNode, ...]:
    """By region and id. One that gossips and was not heard of by the catalog yet is there, too."""
    rows = {str(row[0]): dict(zip(table.columns, row, strict=True)) for row in table.rows}
    known = {member.node: member for member in members}
    found = (_node(node, rows.get(node), known.get(NodeId(node)), me) for node in {*rows, *known})
    return tuple(sorted(found, key=lambda each: (each.region, each.id)))


def _node(node: str, row: Mapping[str, Value] | None, member: Member | None, me: NodeId) -> FleetNode:
    meta = member.meta if member else None
    row = row or {}
    return FleetNode(
        id=node,
        region=str(row.get("region") or (meta.region if meta else "")),
        state=str(member.fate if member else Fate.DOWN),
        cordoned=bool(row.get("cordoned")),
        draining=bool(row.get("draining")),
        api=str(row.get("api") or (meta.api if meta else "")),
        version=str(row.get("version") or (meta.version if meta else "")),
        labels=_read(row.get("labels"), dict[str, str], {}),
        drivers=_read(row.get("drivers"), tuple[str, ...], ()),
        since=instant(member.since) if member and member.since else None,
        started_at=instant(_number(row.get("started_at"))) if row.get("started_at") else None,
        rtt_ms=round(member.rtt_s * 1000, 3) if member and member.rtt_s and node != me else None,
        clock_ahead_s=round(member.skew_s, 3) if member and member.rtt_s and node != me else None,
        machines=None if row.get("cpus") is None else int(_number(row.get("machines"))),
        capacity=_capacity(row),
        used=_used(row),
    )


def _capacity(row: Mapping[str, Value]) -> HostCapacity | None:
    if row.get("cpus") is None:
        return None
    return HostCapacity(
        cpus=_whole(row, "cpus"),
        memory_mb=_whole(row, "memory_mib"),
        disk_mb=_whole(row, "disk_mib"),
        shared_cpu_ratio=_number(row.get("shared_ratio")),
        gpus=_read(row.get("gpus"), dict[str, int], {}),
    )


def _used(row: Mapping[str, Value]) -> Amounts | None:
    if row.get("cpus") is None:
        return None
    return Amounts(
        shared_cpus=_whole(row, "used_shared_cpus"),
        performance_cpus=_whole(row, "used_performance_cpus"),
        memory_mb=_whole(row, "used_memory_mib"),
        disk_mb=_whole(row, "used_disk_mib"),
    )


def one_of(nodes: Iterable[FleetNode], node_id: str) -> FleetNode | None:
    return next((node for node in nodes if node.id == node_id), None)


def _whole(row: Mapping[str, Value], name: str) -> int:
    return int(_number(row.get(name)))


def _number(value: Value) -> float:
    """Whatever another node wrote there."""
    return float(value) if isinstance(value, int | float) else 0.0


def _read(value: Value, kind: type[T], otherwise: T) -> T:
    try:
        return msgspec.json.decode(value, type=kind) if isinstance(value, str | bytes) else otherwise
    except msgspec.DecodeError:
        return otherwise
