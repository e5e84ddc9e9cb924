"""`machine run --count`, and the image that is only pulled here when it will run here."""

import pytest

from hawker.cli.exits import ExitStatus
from tests.cli.conftest import Hawker
from tests.cli.fake_market import FakeMarket


@pytest.fixture
def node() -> FakeMarket:
    return FakeMarket()


def test_all_that_were_filled_are_waited_for(node: FakeMarket, hawker: Hawker) -> None:
    said = hawker("machine", "run", "--count", "2", "web:3")
    assert (said.status, said.out.split()) == (ExitStatus.OK, ["3d8f0000000000", "3d8f0000000001"])
    assert {call.params.machine_id for call in node.calls["wait_machine"]} == set(said.out.split())


def test_detached_nothing_is_waited_for(node: FakeMarket, hawker: Hawker) -> None:
    assert hawker("machine", "run", "--count", "2", "-d", "web:3").status == ExitStatus.OK
    assert "wait_machine" not in node.calls


def test_an_order_not_filled_is_an_error(node: FakeMarket, hawker: Hawker) -> None:
    node.room = 1
    said = hawker("machine", "run", "--count", "2", "-d", "web:3")
    assert said.status == ExitStatus.NO_ROOM and "1 of 2 filled" in said.err


def test_several_are_not_attached_to(hawker: Hawker) -> None:
    assert hawker("machine", "run", "--count", "2", "--attach", "web:3").status == ExitStatus.USAGE


def test_where_several_nodes_bid_the_image_is_left_to_the_one_that_wins(node: FakeMarket, hawker: Hawker) -> None:
    assert hawker("machine", "run", "-d", "web:3").status == ExitStatus.OK
    assert "pull_image" not in node.calls
