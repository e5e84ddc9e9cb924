import pytest

from hawker.api.contract.app import AssignIpRequest
from hawker.cli.exits import ExitStatus
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode


def test_addresses_are_listed(hawker: Hawker) -> None:
    heading, *rows = hawker("ips", "list", "-a", "shop").out.splitlines()
    assert heading.split() == ["ADDRESS", "TYPE", "REGION", "SERVICE", "GIVEN"]
    assert [row.split()[:2] for row in rows] == [
        ["203.0.113.5", "v4"],
        ["fdaa::3", "private_v6"],
        ["2001:db8::1", "v6"],
    ]
    assert "(lab)" in rows[1] and "(shared)" in rows[2] and "(" not in rows[0]


def test_an_address_is_allocated_and_printed(hawker: Hawker, node: FakeNode) -> None:
    assert hawker("ips", "allocate", "-a", "shop", "v4", "--region", "mad", "--service", "web").out == "203.0.113.5\n"
    assert node.call("assign_ip").body == AssignIpRequest(type="v4", region="mad", service_name="web")
    node.calls.clear()
    hawker("ips", "allocate", "-a", "shop", "private_v6", "--network", "lab")
    assert node.call("assign_ip").body == AssignIpRequest(type="private_v6", network="lab")


def test_an_address_is_released(hawker: Hawker, node: FakeNode) -> None:
    assert hawker("ips", "release", "-a", "shop", "2001:db8::1").status == 0
    assert node.call("release_ip").params.ip == "2001:db8::1"


@pytest.mark.parametrize("kind", ["v5", "egress_v4"])
def test_a_type_that_there_is_not_is_refused_before_anybody_is_asked(hawker: Hawker, node: FakeNode, kind: str) -> None:
    assert hawker("ips", "allocate", "-a", "shop", kind).status == ExitStatus.USAGE and not node.calls
