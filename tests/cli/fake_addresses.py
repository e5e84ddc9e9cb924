"""The part of the fake node that answers about addresses and network policies of apps."""

from datetime import UTC, datetime
from typing import Any

from hawker.api.contract.app import IpAssignment, IpAssignments, IpNetwork
from hawker.api.contract.network_policy import NetworkPolicy, PolicyMachine, PolicyPort, Rule, Selector
from hawker.api.contract.port import EdgeAddress
from hawker.api.route import Call
from hawker.policy import Direction, Transport

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def ip(address: str, kind: str, *, shared: bool = False, network: str = "") -> IpAssignment:
    return IpAssignment(
        id="01I",
        ip=address,
        type=kind,
        region="global",
        service_name="",
        shared=shared,
        created_at=AT,
        network=IpNetwork(name=network, org_slug="personal") if network else None,
    )


IPS = (ip("203.0.113.5", "v4"), ip("fdaa::3", "private_v6", network="lab"), ip("2001:db8::1", "v6", shared=True))


def policy(name: str, selector: Selector, *rules: Rule) -> NetworkPolicy:
    return NetworkPolicy(id="0a1", name=name, selector=selector, allowed=rules, created_at=AT, updated_at=AT)


def allow(direction: Direction, *ports: PolicyPort) -> Rule:
    return Rule(action="allow", direction=direction, ports=ports)


POLICIES = (
    policy(
        "front",
        Selector(metadata={"role": "web"}),
        allow(Direction.INGRESS, PolicyPort(protocol=Transport.TCP, port=80)),
        allow(Direction.INGRESS, PolicyPort(protocol=Transport.UDP)),
    ),
    policy(
        "closed",
        Selector(machines=(PolicyMachine(id="3d8f0000000001"),)),
        allow(Direction.INGRESS),
        Rule(action="allow", direction=Direction.EGRESS),
    ),
    policy("quiet", Selector(all=True), allow(Direction.EGRESS, PolicyPort(protocol=Transport.TCP, port=443))),
)


class FakeAddresses:
    ips: tuple[IpAssignment, ...] = IPS
    edge_addresses: tuple[EdgeAddress, ...] = ()

    async def _list_ips(self, call: Call[Any, Any, Any]) -> IpAssignments:
        return IpAssignments(ips=self.ips)

    async def _list_edge_addresses(self, call: Call[Any, Any, Any]) -> tuple[EdgeAddress, ...]:
        return self.edge_addresses

    async def _assign_ip(self, call: Call[Any, Any, Any]) -> IpAssignment:
        return IPS[0]

    async def _release_ip(self, call: Call[Any, Any, Any]) -> None:
        return None

    async def _list_policies(self, call: Call[Any, Any, Any]) -> tuple[NetworkPolicy, ...]:
        return POLICIES

    async def _put_policy(self, call: Call[Any, Any, Any]) -> NetworkPolicy:
        return POLICIES[0]

    async def _delete_policy(self, call: Call[Any, Any, Any]) -> None:
        return None
