import msgspec
import pytest

from hawker.cli.exits import ExitStatus
from tests.cli.conftest import Hawker
from tests.cli.fake_market import FakeMarket


@pytest.fixture
def node() -> FakeMarket:
    return FakeMarket()


def test_a_dry_run_shows_every_bid_and_orders_nothing(node: FakeMarket, hawker: Hawker) -> None:
    said = hawker("place", "--dry-run", "web:3")
    assert said.status == ExitStatus.OK
    lines = said.out.splitlines()
    assert lines[0].split() == ["NODE", "REGION", "VERDICT", "SCORE", "FITS", "WHY"]
    assert "best" in lines[1] and "0.910" in lines[1]
    assert "25.0% used afterwards, desirability 0.93, weight 1" in lines[2]
    assert "64.0 MiB missing" in lines[3] and "2 of the app here" in lines[4]
    assert "declines" in lines[5] and "short of 256 MiB of memory" in lines[5]
    assert "not asked" in lines[6] and "the node is cordoned" in lines[6]
    assert node.call("place").body.dry_run is True and not node.apps


def test_filled_orders_are_printed_and_the_rest_is_an_error(node: FakeMarket, hawker: Hawker) -> None:
    node.room = 2
    said = hawker("place", "--count", "3", "--order-id", "o-1", "web:3")
    assert said.status == ExitStatus.NO_ROOM
    assert said.out.splitlines() == ["3d8f0000000000", "3d8f0000000001"]
    assert "2 of 3 filled: no host has room" in said.err
    assert node.call("place").idempotency_key == "o-1"


def test_explained_the_bids_come_before_the_ids(hawker: Hawker) -> None:
    lines = hawker("place", "--explain", "web:3").out.splitlines()
    assert lines[0].startswith("NODE") and lines[-1] == "3d8f0000000000"


def test_where_it_shall_be_goes_with_the_order(node: FakeMarket, hawker: Hawker) -> None:
    words = ["--region", "mad,eu", "--label", "disk=ssd", "--label", "zone=a", "--driver", "crun", "--spread", "hard"]
    hawker("place", "--all-or-nothing", "--count", "2", *words, "web:3")
    body = node.call("place").body
    assert (body.count, body.all_or_nothing, body.machine.region) == (2, True, "mad,eu")
    assert body.machine.config.metadata == {
        "hawker_labels": "disk=ssd,zone=a",
        "hawker_driver": "crun",
        "hawker_spread": "hard",
    }


def test_as_json_it_is_what_the_broker_said(hawker: Hawker) -> None:
    shown = msgspec.json.decode(hawker("place", "--dry-run", "-o", "json", "web:3").out)
    assert [bid["verdict"] for bid in shown["bids"]] == ["best", "declines", "not_asked"]
