from hawker.catalog.change import Value
from hawker.catalog.contract import ResultTable
from hawker.fleet.membership import fleet_nodes, one_of
from hawker.gossip.contract import Fate, Member, NodeMeta
from hawker.ids import NodeId
from tests.fleet.desk import ME, OTHER, Desk

_COLUMNS = tuple(
    "node region api version drivers labels cordoned draining started_at cpus memory_mib disk_mib shared_ratio"
    " used_shared_cpus used_performance_cpus used_memory_mib used_disk_mib gpus machines".split()
)


def row(node: str, **fields: Value) -> tuple[Value, ...]:
    return tuple({"node": node, "region": "mad", "machines": 0, **fields}.get(name) for name in _COLUMNS)


def member(node: NodeId, fate: Fate = Fate.ALIVE, rtt_s: float = 0.0, meta: NodeMeta | None = None) -> Member:
    return Member(node=node, address="h:1", incarnation=1, fate=fate, since=5.0, rtt_s=rtt_s, meta=meta)


def test_a_node_is_what_it_told_and_what_gossip_says_of_it() -> None:
    told = row("0000000b", cpus=4, memory_mib=8, disk_mib=16, shared_ratio=8.0, used_memory_mib=2, gpus='{"a100":1}',
               machines=3, labels='{"disk":"ssd"}', drivers='["container"]', cordoned=1, started_at=7.0)  # fmt: skip
    (node,) = fleet_nodes(ResultTable(columns=_COLUMNS, rows=(told,)), [member(OTHER, Fate.SUSPECT, 0.0004)], ME)
    assert (node.state, node.cordoned, node.machines, node.labels) == ("suspect", True, 3, {"disk": "ssd"})
    assert node.capacity is not None and node.capacity.gpus == {"a100": 1} and node.used is not None
    assert (node.drivers, node.rtt_ms, node.used.memory_mb) == (("container",), 0.4, 2)


def test_one_that_told_nothing_yet_is_what_gossip_knows() -> None:
    meta = NodeMeta(region="fra", api="http://b", version="2")
    (node,) = fleet_nodes(ResultTable(columns=_COLUMNS, rows=()), [member(OTHER, meta=meta)], ME)
    assert (node.region, node.api, node.version, node.machines, node.capacity) == ("fra", "http://b", "2", None, None)


def test_one_that_nobody_gossips_of_is_down() -> None:
    (node,) = fleet_nodes(ResultTable(columns=_COLUMNS, rows=(row("0000000c"),)), [], ME)
    assert (node.state, node.since, node.rtt_ms, node.used) == ("down", None, None, None)


def test_a_malformed_row_of_others_is_passed_over() -> None:
    bad = row("0000000b", labels="{", drivers='{"a":1}', gpus="[]", cpus="many", machines=None, started_at="x")
    (node,) = fleet_nodes(ResultTable(columns=_COLUMNS, rows=(bad,)), [], ME)
    assert (node.labels, node.drivers, node.machines) == ({}, (), 0)
    assert node.capacity is not None and (node.capacity.cpus, node.capacity.gpus) == (0, {})


def test_nodes_are_in_order_and_found_by_id() -> None:
    rows = (row("0000000c", region="fra"), row("0000000b"), row("0000000a"))
    nodes = fleet_nodes(ResultTable(columns=_COLUMNS, rows=rows), [], ME)
    assert [node.id for node in nodes] == ["0000000c", "0000000a", "0000000b"]
    assert one_of(nodes, "0000000b") is nodes[2] and one_of(nodes, "ffffffff") is None


def test_the_desk_has_the_tables_of_the_catalog() -> None:
    assert Desk().rows("SELECT * FROM nodes") == []
