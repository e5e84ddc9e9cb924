"""Network policies over the API."""

from typing import Any

import msgspec
import pytest

from hawker.api.codec import BodyCodec
from hawker.api.contract.app import AppParams
from hawker.api.contract.network_policy import (
    DELETE_POLICY,
    GET_POLICY,
    LIST_POLICIES,
    PUT_POLICY,
    NetworkPolicy,
    NetworkPolicyRequest,
    PolicyParams,
)
from hawker.errors import Fault, NotFound, Unprocessable
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.sim.node.world import MemoryWorld

pytestmark = pytest.mark.anyio
HERE = AppParams(app_name=APP)
WEB = {"action": "allow", "direction": "ingress", "ports": [{"protocol": "tcp", "port": 80}]}


async def put(worker: SimWorker, **given: Any) -> NetworkPolicy:
    """As it would be read from the wire."""
    sent = {"name": "web", "selector": {"all": True}, "rules": [WEB], **given}
    body = BodyCodec(NetworkPolicyRequest, strict=True).decode(msgspec.json.encode(sent))
    return await worker.api.call(PUT_POLICY, params=HERE, body=body)


def at(policy_id: str) -> PolicyParams:
    return PolicyParams(app_name=APP, policy_id=policy_id)


async def test_a_policy_is_made_shown_changed_listed_and_removed(worker: SimWorker) -> None:
    made = await put(worker)
    shown = msgspec.json.decode(msgspec.json.encode(made))
    assert (shown["name"], shown["selector"], shown["rules"]) == ("web", {"all": True}, [WEB])
    assert await worker.api.call(GET_POLICY, params=at(made.id)) == made
    other = await put(worker, id=made.id, selector={"metadata": {"role": "db"}})
    assert (other.id, other.created_at) == (made.id, made.created_at)
    assert await worker.api.call(LIST_POLICIES, params=HERE) == (other,)
    await worker.api.call(DELETE_POLICY, params=at(made.id))
    assert await worker.api.call(LIST_POLICIES, params=HERE) == ()


async def test_a_change_is_in_force_once_it_is_answered(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    made = await put(worker)
    assert [fence.machine_id for fence in stall.policies.standing] == [machine_id]
    await worker.api.call(DELETE_POLICY, params=at(made.id))
    assert stall.policies.standing == ()


async def test_a_change_that_the_host_refuses_is_kept_and_said_to_be_so(worker: SimWorker, stall: MemoryWorld) -> None:
    await worker.started()
    stall.policies.broken = 1
    with pytest.raises(Fault, match="kept and not in force yet"):
        await put(worker)
    listed = await worker.api.call(LIST_POLICIES, params=HERE)
    assert len(listed) == 1


async def test_a_host_that_cannot_have_any_refuses_them_and_keeps_none(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.policies.refusal = "this host's kernel: modprobe br_netfilter"
    with pytest.raises(Unprocessable, match="not served by this host's kernel: modprobe"):
        await put(worker)
    assert await worker.api.call(LIST_POLICIES, params=HERE) == ()


def rule(**given: Any) -> dict[str, Any]:
    return {**WEB, **given}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"name": ""}, "^name"),
        ({"name": "x" * 64}, "^name"),
        ({"selector": {}}, "^selector"),
        ({"selector": {"all": False}}, "^selector"),
        ({"selector": {"all": True, "metadata": {"a": "b"}}}, "^selector"),
        ({"selector": {"machines": [{"id": "banana"}]}}, r"^selector\.machines\[0\]\.id"),
        ({"selector": {"machines": [{"id": f"{n:014x}"} for n in range(257)]}}, "^selector"),
        ({"selector": {"metadata": {str(n): "x" for n in range(33)}}}, "^selector"),
        ({"selector": {"metadata": {"a": "x" * 70_000}}}, r"^selector\.metadata"),
        ({"selector": {"everything": True}}, r"^selector\.everything is not a known field"),
        ({"rules": []}, "^rules: 0 are not between 1 and 64"),
        ({"rules": [WEB] * 1_000}, "^rules: 1000 are not between 1 and 64"),
        ({"rules": [rule(action="deny")]}, r"^rules\[0\]\.action"),
        ({"rules": [rule(direction="sideways")]}, r"^rules\[0\]\.direction"),
        ({"rules": [rule(ports=[{"protocol": "icmp"}])]}, r"ports\[0\]\.protocol"),
        ({"rules": [rule(ports=[{"protocol": "tcp", "port": 0}])]}, r"^rules\[0\]\.ports\[0\]\.port: 0"),
        ({"rules": [rule(ports=[{"protocol": "tcp", "port": 65536}])]}, r"\.port: 65536"),
        ({"rules": [rule(ports=[{"protocol": "udp", "port": -1}])]}, r"\.port: -1"),
        ({"rules": [rule(ports=[{"protocol": "tcp", "port": 10**30}])]}, "port"),
        ({"rules": [rule(ports=[{"protocol": "tcp", "port": "80; drop"}])]}, "port"),
        ({"rules": [WEB, rule(ports=[{"protocol": "tcp", "port": 1}] * 257)]}, r"^rules\[1\]\.ports: 257 are more"),
        ({"rules": [rule(source="10.0.0.0/8")]}, r"^rules\[0\]\.source is not a known field"),
    ],
)
async def test_a_policy_that_cannot_be_enforced_is_refused_by_name(
    worker: SimWorker, given: dict[str, Any], named: str
) -> None:
    with pytest.raises(Unprocessable, match=named):
        await put(worker, **given)
    assert await worker.api.call(LIST_POLICIES, params=HERE) == ()


async def test_absent_ports_are_all_and_an_empty_list_is_none(worker: SimWorker, stall: MemoryWorld) -> None:
    await worker.started()
    made = await put(worker, rules=[{"action": "allow", "direction": "ingress"}])
    assert made.allowed[0].ports is None and not stall.policies.standing
    made = await put(worker, id=made.id, rules=[rule(ports=[])])
    assert made.allowed[0].ports == () and stall.policies.standing[0].ingress == frozenset()


async def test_a_missing_policy_is_not_found(worker: SimWorker) -> None:
    with pytest.raises(NotFound, match="network policy not found"):
        await worker.api.call(GET_POLICY, params=at("nope"))
    with pytest.raises(NotFound, match="network policy not found"):
        await worker.api.call(DELETE_POLICY, params=at("nope"))
    with pytest.raises(NotFound, match="network policy not found"):
        await put(worker, id="nope")
    with pytest.raises(NotFound, match="app not found"):
        await worker.api.call(LIST_POLICIES, params=AppParams(app_name="ghost"))
