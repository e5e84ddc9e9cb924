"""Facts about what is written on a machine's link."""

from ipaddress import IPv4Address

import pytest

from hawker.host.machine_link import NetworkPlan, read_label
from hawker.ids import MachineId

MACHINE = MachineId("0123456789abcd")


@pytest.mark.parametrize("ipv4", [None, IPv4Address("10.213.0.1")])
@pytest.mark.parametrize("network_id", [0, 7, (1 << 32) - 1])
def test_a_label_says_the_whole_plan(network_id: int, ipv4: IPv4Address | None) -> None:
    plan = NetworkPlan(MACHINE, network_id, ipv4)
    assert read_label(plan.label) == plan


@pytest.mark.parametrize(
    "text",
    [None, "", "uplink of the office", "0123456789abcd", "0123456789abcd 7 -", "0123456789abcd 00000007 1.2.3.4.5"],
)
def test_foreign_text_on_a_link_is_no_label(text: str | None) -> None:
    assert read_label(text) is None
