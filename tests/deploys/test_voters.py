"""Which nodes keep a deploy."""

from typing import Any

from hawker.api.directory import Node
from hawker.deploys.voters import chosen_voters, taken_voters
from hawker.ids import NodeId


class _Nodes:
    def __init__(self, *regions: str, dead: int = -1) -> None:
        self.me = NodeId("00000000")
        self._nodes = [
            Node(id=NodeId(f"{number:08x}"), region=region, labels={}, alive=number != dead)
            for number, region in enumerate(regions)
        ]

    def nodes(self) -> list[Node]:
        return self._nodes


def of(*regions: str, dead: int = -1) -> Any:
    return _Nodes(*regions, dead=dead)


def test_voters_are_of_other_regions_where_there_are_any() -> None:
    for app in ("a", "b", "c"):
        nodes = of("mad", "mad", "mad", "ams", "lhr")
        home, *others = chosen_voters(app, 1, nodes)
        assert home == nodes.me and sorted(others) == ["00000003", "00000004"]
        assert len(set(chosen_voters(app, 1, of("mad", "mad", "mad", "mad")))) == 3


def test_a_fleet_of_fewer_than_three_living_nodes_has_no_voters() -> None:
    assert chosen_voters("a", 1, of("mad", "ams")) == ()
    assert chosen_voters("a", 1, of("mad", "ams", "lhr", dead=2)) == ()


def taken(nodes: Any, heard: set[int], lost: set[int]) -> tuple[int, ...]:
    ids = [{NodeId(f"{number:08x}") for number in numbers} for numbers in (heard, lost)]
    return tuple(int(each) for each in taken_voters("a", 1, nodes, *ids))


def test_a_deploy_that_is_taken_stays_at_voters_that_were_heard_and_leaves_those_that_are_lost() -> None:
    nodes = of("mad", "mad", "mad", "ams", "lhr")
    assert taken(nodes, heard={0, 3}, lost={4}) in ((0, 3, 1), (0, 3, 2))
    assert set(taken(nodes, heard={0}, lost={1})) == {0, 3, 4}
    assert taken(of("mad", "ams", "lhr"), heard={0}, lost={1, 2}) == (0,)
