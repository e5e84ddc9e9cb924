"""Facts about the rules' text. What they do to packets is in test_fencing.py."""

import re
from ipaddress import IPv4Address

import pytest

from hawker.errors import Fault
from hawker.host.network_policy import FilteredPort, PacketFilter, install_policies, mark, policy_rules
from hawker.ids import MachineId, NodeId

pytestmark = pytest.mark.anyio
NODE = NodeId("ab12cd34")
WEB = frozenset({FilteredPort("tcp", 80), FilteredPort("tcp", 443)})


def packet_filter(number: int = 1, **given: object) -> PacketFilter:
    return PacketFilter(machine_id=MachineId(f"{number:014x}"), network_id=7, **given)  # type: ignore[arg-type]


def test_ruleset_begins_by_deleting_the_table_before_it() -> None:
    assert (
        policy_rules(NODE, []).split()
        == "table inet hawker_ab12_fences {} delete table inet hawker_ab12_fences".split()
    )
    assert policy_rules(NODE, [packet_filter(ingress=WEB)]).strip().startswith(policy_rules(NODE, []).strip())


def test_machines_that_may_do_the_same_share_a_chain() -> None:
    text = policy_rules(NODE, [packet_filter(number, ingress=WEB, egress=WEB) for number in range(1, 50)])
    assert text.count("chain only_") == 1 and text.count("jump only_0") == 98


def test_a_chain_lists_ports_by_protocol_and_ends_with_a_refusal() -> None:
    ports = frozenset({FilteredPort("udp", 53), FilteredPort("tcp", 443), FilteredPort("tcp", 80)})
    (chain,) = re.findall(
        r"chain only_0 \{\n(.*?)\n  \}", policy_rules(NODE, [packet_filter(ingress=ports)]), re.DOTALL
    )
    assert [line.strip() for line in chain.splitlines()] == [
        "tcp dport { 80, 443 } return",
        "udp dport { 53 } return",
        "drop",
    ]


def test_a_protocol_without_a_number_is_all_of_it() -> None:
    text = policy_rules(NODE, [packet_filter(egress=frozenset({FilteredPort("udp", None), FilteredPort("udp", 5)}))])
    assert "meta l4proto udp return" in text and "udp dport" not in text


def test_each_direction_is_told_by_what_a_machine_cannot_change() -> None:
    text = policy_rules(NODE, [packet_filter(0xABC, ipv4=IPv4Address("10.0.0.1"), ingress=WEB, egress=frozenset())])
    assert "06:00:00:00:0a:bc : jump" in text
    assert re.search(r"fdaa:0:7:.*/112 : jump", text) and "10.0.0.1 : jump" in text


def test_the_mark_tells_every_list_from_every_other() -> None:
    one, other = packet_filter(1, ingress=WEB), packet_filter(2, ingress=WEB)
    lists = [
        [],
        [one],
        [other],
        [one, other],
        [packet_filter(1, egress=WEB)],
        [packet_filter(1, ingress=frozenset())],
        [packet_filter(1, ingress=WEB, ipv4=IPv4Address("10.0.0.1"))],
        [packet_filter(1, ingress=frozenset({FilteredPort("tcp", 80)}))],
        [packet_filter(1, ingress=frozenset({FilteredPort("udp", 80)}))],
        [packet_filter(1, ingress=frozenset({FilteredPort("tcp", None)}))],
    ]
    assert len({mark(each) for each in lists}) == len(lists)
    assert mark([one, other]) == mark([other, one])
    assert mark([packet_filter(1, ingress=frozenset(sorted(WEB, reverse=True)))]) == mark([one])


@pytest.mark.root
async def test_ruleset_that_nft_refuses_is_a_fault_that_says_why() -> None:
    with pytest.raises(Fault, match="nft refused the rules of network policies"):
        await install_policies(NODE, [packet_filter(ingress=frozenset({FilteredPort("banana", 1)}))])
