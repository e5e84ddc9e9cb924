import pytest

from hawker.api.contract.network_policy import NetworkPolicyRequest, PolicyMachine, PolicyPort, Rule, Selector
from hawker.cli.exits import ExitStatus
from hawker.policy import Direction, Transport
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode


def allow(direction: Direction, *ports: tuple[Transport, int | None]) -> Rule:
    listed = tuple(PolicyPort(protocol=protocol, port=port) for protocol, port in ports)
    return Rule(action="allow", direction=direction, ports=listed)


def test_policies_are_listed(hawker: Hawker) -> None:
    heading, *rows = hawker("policies", "list", "-a", "shop").out.splitlines()
    assert heading.split() == ["ID", "NAME", "MACHINES", "INGRESS", "EGRESS"]
    assert [row.split()[1:] for row in rows] == [
        ["front", "role=web", "tcp/80,udp", "-"],
        ["closed", "3d8f0000000001", "none", "any"],
        ["quiet", "all", "-", "tcp/443"],
    ]


def test_a_policy_is_set_and_its_id_printed(hawker: Hawker, node: FakeNode) -> None:
    words = ("front", "--metadata", "role=web", "--ingress", "tcp/80", "--ingress", "udp", "--egress", "none")
    assert hawker("policies", "set", "-a", "shop", *words).out == "0a1\n"
    assert node.call("put_policy").body == NetworkPolicyRequest(
        name="front",
        selector=Selector(metadata={"role": "web"}),
        allowed=(
            allow(Direction.INGRESS, (Transport.TCP, 80), (Transport.UDP, None)),
            allow(Direction.EGRESS),
        ),
    )


def test_a_policy_that_is_there_gets_another_content(hawker: Hawker, node: FakeNode) -> None:
    hawker("policies", "set", "-a", "shop", "x", "--id", "0a1", "--machine", "3d8f0000000001", "--egress", "tcp/443")
    body = node.call("put_policy").body
    assert (body.id, body.selector) == ("0a1", Selector(machines=(PolicyMachine(id="3d8f0000000001"),)))


def test_without_a_selector_it_is_for_all(hawker: Hawker, node: FakeNode) -> None:
    hawker("policies", "set", "-a", "shop", "x", "--egress", "tcp/443")
    assert node.call("put_policy").body.selector == Selector(all=True)


def test_a_policy_is_removed(hawker: Hawker, node: FakeNode) -> None:
    assert hawker("policies", "remove", "-a", "shop", "0a1").status == 0
    assert node.call("delete_policy").params.policy_id == "0a1"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "say what is allowed"),
        (("--ingress", "80"), "'80' is not a port"),
        (("--ingress", "tcp/"), "'tcp/' is not a port"),
        (("--ingress", "tcp/x"), "'tcp/x' is not a port"),
        (("--egress", "icmp"), "'icmp' is not a port"),
        (("--egress", "none", "--egress", "udp/53"), "none allows nothing beside it"),
        (("--ingress", "udp", "--machine", "a", "--metadata", "b=c"), "exclude each other"),
        (("--ingress", "udp", "--metadata", "b"), "'b' is not KEY=VALUE"),
    ],
)
def test_a_senseless_policy_is_refused_before_anybody_is_asked(
    hawker: Hawker, node: FakeNode, words: tuple[str, ...], said: str
) -> None:
    answer = hawker("policies", "set", "-a", "shop", "x", *words)
    assert answer.status == ExitStatus.USAGE and said in answer.err and not node.calls
