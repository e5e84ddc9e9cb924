"""Network policies on real containers: who gets through to whom, also when the daemon dies and the host forgets."""

import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from hawker.api.client import Client
from hawker.api.contract.app import AppParams
from hawker.api.contract.machine import SET_METADATA, MetadataKeyParams, SetMetadataRequest
from hawker.api.contract.network_policy import (
    DELETE_POLICY,
    LIST_POLICIES,
    PUT_POLICY,
    NetworkPolicyRequest,
    PolicyParams,
)
from hawker.api.contract.node import LIST_FINDINGS, REPAIR_FINDINGS
from hawker.errors import HawkerError, Unprocessable
from hawker.host.address import bridge_name
from hawker.host.network_policy import policy_table
from hawker.ids import NodeId
from tests.e2e.command_line import CommandLine
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.shop import HELLO, Shop
from tests.e2e.test_network import barred, fetched
from tests.e2e.web import answers
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root]
NOTHING_IN = {"action": "allow", "direction": "ingress", "ports": []}
WEB_IN = {"action": "allow", "direction": "ingress", "ports": [{"protocol": "tcp", "port": 8080}]}
OTHER_IN = {"action": "allow", "direction": "ingress", "ports": [{"protocol": "tcp", "port": 9}]}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """One that does not compare host and store by itself."""
    with running_node(tmp_path_factory.mktemp("node"), "--ephemeral", "--reconcile-every-s", "86400") as node:
        yield node


async def put(shop: Shop, *rules: dict[str, Any], selector: dict[str, Any] | None = None) -> str:
    sent = {"name": "p", "selector": selector or {"all": True}, "rules": rules}
    body = msgspec.convert(sent, NetworkPolicyRequest)
    return (await shop.client.call(PUT_POLICY, params=AppParams(app_name=shop.app), body=body)).id


async def remove(shop: Shop, policy_id: str) -> None:
    await shop.client.call(DELETE_POLICY, params=PolicyParams(app_name=shop.app, policy_id=policy_id))


def take_away(node: RunningNode) -> None:
    """All that policies have put in force on the host."""
    table = policy_table(NodeId(node.node_id))
    subprocess.run(["nft", "delete", "table", "inet", table], check=True, timeout=60)


def cut_bridge(node: RunningNode, address: str) -> None:
    high, low = address.split(":")[1:3]
    name = bridge_name(NodeId(node.node_id), int(high, 16) << 16 | int(low, 16))
    subprocess.run(["ip", "link", "delete", name], check=True, timeout=60)


@pytest.fixture
async def pair(shop: Shop, toolbox_image: str) -> AsyncIterator[tuple[str, str, str]]:
    """A web server's id and address, and the id of a machine that has a shell to ask it from."""
    web = await shop.run({"image": HELLO})
    await eventually(lambda: answers(web.private_ip))
    client = await shop.run({"image": toolbox_image})
    assert await fetched(shop, client.id, web.private_ip)
    yield web.id, web.private_ip, client.id


async def test_a_policy_lets_through_what_it_allows_and_nothing_else(shop: Shop, pair: tuple[str, str, str]) -> None:
    web, address, client = pair
    only_other = await put(shop, OTHER_IN, selector={"machines": [{"id": web}]})
    assert await barred(shop, client, address)
    assert answers(address), "the host, which asks after its health, still gets through"
    only_web = await put(shop, WEB_IN, selector={"machines": [{"id": web}]})
    assert await fetched(shop, client, address)
    await remove(shop, only_web)
    assert await barred(shop, client, address)
    await remove(shop, only_other)
    assert await fetched(shop, client, address)


async def test_packets_a_machine_may_send_are_limited_too(shop: Shop, pair: tuple[str, str, str]) -> None:
    _, address, client = pair
    only = {"action": "allow", "direction": "egress", "ports": [{"protocol": "tcp", "port": 9}]}
    await put(shop, only, selector={"machines": [{"id": client}]})
    assert await barred(shop, client, address)


async def test_metadata_puts_a_machine_behind_a_fence_and_takes_it_out(shop: Shop, pair: tuple[str, str, str]) -> None:
    web, address, client = pair
    await put(shop, NOTHING_IN, selector={"metadata": {"role": "db"}})
    for role, open in (("db", False), ("web", True)):
        params = MetadataKeyParams(app_name=shop.app, machine_id=web, key="role")
        await shop.client.call(SET_METADATA, params=params, body=SetMetadataRequest(value=role))
        assert await (fetched if open else barred)(shop, client, address)


async def test_a_machine_that_comes_later_or_starts_again_is_behind_the_fence(
    shop: Shop, pair: tuple[str, str, str]
) -> None:
    _, _, client = pair
    await put(shop, NOTHING_IN)
    late = await shop.run({"image": HELLO})
    await eventually(lambda: answers(late.private_ip))
    assert await barred(shop, client, late.private_ip)
    await shop.restart(late.id)
    await shop.wait(late.id, "started")
    await eventually(lambda: answers(late.private_ip))
    assert await barred(shop, client, late.private_ip)


async def test_rules_that_were_removed_are_found_and_put_in_force_again(
    node: RunningNode, client: Client, shop: Shop, pair: tuple[str, str, str]
) -> None:
    _, address, asking = pair
    await put(shop, NOTHING_IN)
    take_away(node)
    assert await fetched(shop, asking, address)
    await eventually(partial(_finds_just, client, "lost network policies"))
    await client.call(REPAIR_FINDINGS)
    assert await barred(shop, asking, address)
    await eventually(partial(_finds_just, client))


async def test_a_bridge_that_is_made_again_shows_its_packets_to_the_rules(
    node: RunningNode, client: Client, shop: Shop, pair: tuple[str, str, str]
) -> None:
    _, address, asking = pair
    await put(shop, NOTHING_IN)
    cut_bridge(node, address)
    await client.call(REPAIR_FINDINGS)
    await eventually(lambda: answers(address))
    assert await barred(shop, asking, address)
    await eventually(partial(_finds_just, client))


@pytest.mark.slow
async def test_a_daemon_that_dies_leaves_the_rules_and_the_next_one_keeps_them(
    tmp_path: Path, toolbox_image: str
) -> None:
    """Also when somebody took them away in between."""
    with running_node(tmp_path / "lasting", "--ephemeral") as node:
        async with node.client() as client:
            shop = await Shop(client, "shop").open()
            web, asking = await shop.run({"image": HELLO}), await shop.run({"image": toolbox_image})
            await eventually(lambda: answers(web.private_ip))
            await put(shop, NOTHING_IN)
        for taken in (False, True):
            node.kill()
            if taken:
                take_away(node)
            node.start()
            async with node.client() as client:
                assert await eventually(partial(_closed, Shop(client, "shop"), asking.id, web.private_ip))


@pytest.mark.slow
@pytest.mark.long(reason="a daemon that dies once, in the test above, is the short form")
async def test_whenever_the_daemon_dies_what_is_recorded_is_what_is_enforced(
    tmp_path: Path, toolbox_image: str
) -> None:
    """It is killed right after a call was sent: before, in or after the transaction, or while the rules are written."""
    with running_node(tmp_path / "lasting", "--ephemeral") as node:
        async with node.client() as client:
            shop = await Shop(client, "shop").open()
            web, asking = await shop.run({"image": HELLO}), await shop.run({"image": toolbox_image})
            await eventually(lambda: answers(web.private_ip))
        for turn in range(6):
            await _dies_at_a_change(node, turn)
            async with node.client() as client:
                shop = Shop(client, "shop")
                recorded = await client.call(LIST_POLICIES, params=AppParams(app_name="shop"))
                await eventually(partial(_is_so, shop, asking.id, web.private_ip, open=not recorded))
                await eventually(partial(_finds_just, client))


async def _dies_at_a_change(node: RunningNode, turn: int) -> None:
    async with node.client() as client:
        shop = Shop(client, "shop")
        policies = await client.call(LIST_POLICIES, params=AppParams(app_name="shop"))
        async with anyio.create_task_group() as calls:
            for policy in policies:
                calls.start_soon(_unheard, partial(remove, shop, policy.id))
            if not policies:
                calls.start_soon(_unheard, partial(put, shop, NOTHING_IN))
            for _ in range(3 + 8 * turn):  # so many turns of this side's loop
                await anyio.lowlevel.checkpoint()
            node.kill()
    node.start()


async def _unheard(call: Callable[[], Awaitable[object]]) -> None:
    with suppress(HawkerError):
        await call()


async def _is_so(shop: Shop, asking: str, address: str, *, open: bool) -> bool:
    return await barred(shop, asking, address) is not open


async def _finds_just(client: Client, *kinds: str) -> bool:
    """Once what was under way is over, such as the end of another test's machine."""
    return [finding.kind for finding in (await client.call(LIST_FINDINGS)).findings] == list(kinds)


async def _closed(shop: Shop, asking: str, address: str) -> bool:
    return await barred(shop, asking, address)


async def test_a_policy_is_set_and_removed_on_the_command_line(
    node: RunningNode, shop: Shop, pair: tuple[str, str, str]
) -> None:
    _, address, asking = pair
    hawker = CommandLine(node.environment | {"HAWKER_DATA_DIR": str(node.data_dir)})
    policy_id = hawker.say("policies", "set", "-a", shop.app, "closed", "--ingress", "none").strip()
    assert await barred(shop, asking, address)
    assert policy_id in hawker.say("policies", "list", "-a", shop.app)
    hawker.say("policies", "remove", "-a", shop.app, policy_id)
    assert await fetched(shop, asking, address)


async def test_a_node_whose_machines_have_no_network_of_their_own_refuses_policies(tmp_path: Path) -> None:
    with running_node(tmp_path / "processes", "--ephemeral", "--driver", "process") as node:
        async with node.client() as client:
            shop = await Shop(client, "shop").open()
            with pytest.raises(Unprocessable, match="not served by this node's driver"):
                await put(shop, NOTHING_IN)
            assert await client.call(LIST_POLICIES, params=AppParams(app_name="shop")) == ()
