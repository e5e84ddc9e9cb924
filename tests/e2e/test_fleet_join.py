"""Three real nodes on loopback addresses: they join, sell for each other, lose one and have it back."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from hawker.api.client import Client
from hawker.api.contract.cluster import (
    ADD_KEY,
    CORDON_NODE,
    FORGET_NODE,
    LIST_KEYS,
    LIST_NODES,
    REMOVE_KEY,
    UNCORDON_NODE,
    USE_KEY,
    FleetNode,
    KeyParams,
    NodeParams,
)
from hawker.api.contract.machine import Machine
from hawker.cli.exits import ExitStatus
from hawker.errors import Conflict, Unavailable
from hawker.feed import HOP_OFFSET
from tests.e2e.running_node import HAWKER, RunningNode
from tests.e2e.shop import Shop
from tests.e2e.test_process_driver import shell
from tests.ports import free_ports
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

WITHIN_S = 150.0
HOSTS = ("127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.6")


def peer_port(host: str) -> int:
    """For a node's gossip. Those after it that it listens at too are as free, up to the gate of its edge."""
    return free_ports(HOP_OFFSET + 1, host)


@dataclass(frozen=True, slots=True)
class Host:
    """One node, as the others reach it."""

    node: RunningNode
    address: str
    port: int

    def join(
        self, other: RunningNode, *words: str, token: str | None = None, at: str | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Only write what is learned; the node is started like any other."""
        command = [HAWKER, "join", at or other.url, "--token-file", "-", "--data-dir", str(self.node.data_dir)]
        own = ["--advertise", self.address, "--peer-port", str(self.port), "--no-start"]
        return subprocess.run(
            [*command, *own, *words],
            env=self.node.environment,
            input=token or other.token,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


@contextmanager
def host(place: Path, number: int) -> Iterator[Host]:
    """Not up yet. At the end it is gone, and all that it had."""
    place.mkdir()
    flags = ("--driver", "process", "--region", "mad", "--label", f"host={number}")
    node = RunningNode(place, *flags)
    try:
        yield Host(node, HOSTS[number], peer_port(HOSTS[number]))
    finally:
        strays = node.withdraw()
    assert not strays, f"left on the host: {strays}"


@contextmanager
def three_hosts(place: Path, prepare: Callable[[Host], None] = lambda host: None) -> Iterator[tuple[Host, Host, Host]]:
    """The first has begun a cluster, and runs; the others have not joined yet. `prepare` is called with each before it
    begins."""
    with host(place / "0", 0) as first, host(place / "1", 1) as second, host(place / "2", 2) as third:
        for each in (first, second, third):
            prepare(each)
        first.node.start("--advertise", first.address, "--peer-port", str(first.port))
        yield first, second, third


async def states(client: Client) -> dict[str, str]:
    return {node.id: node.state for node in (await client.call(LIST_NODES)).nodes}


async def the_node(client: Client, node_id: str) -> FleetNode:
    return next(node for node in (await client.call(LIST_NODES)).nodes if node.id == node_id)


async def order_at(shop: Shop, number: int, script: str) -> Machine:
    """At the host of that label, once the broker has heard of it."""
    return await shop.run_somewhere(shell(script, metadata={"hawker_labels": f"host={number}"}))


async def test_three_hosts_join_sell_for_each_other_and_lose_one(tmp_path: Path) -> None:
    with three_hosts(tmp_path) as (first, second, third):
        ids = _joined(first, second, third)
        async with first.node.client() as one, third.node.client() as other:
            for client in (one, other):
                await eventually(lambda: _all_alive(client, ids), WITHIN_S)  # noqa: B023
            assert (await the_node(one, third.node.node_id)).labels == {"host": "2"}

            # Ordered at the first, made at the third, seen from everywhere.
            shop = await Shop(one, "shop").open()
            far = await order_at(shop, 2, "echo far; exec sleep 600")
            near = await order_at(shop, 0, "echo near; exec sleep 600")
            await eventually(lambda: _has(Shop(other, "shop"), far.id, near.id), WITHIN_S)
            await eventually(lambda: _has_one_machine(other, third.node.node_id), WITHIN_S)
            await shop.logged(far.id, "far\n")
            assert await shop.said(far.id, "echo", "hello") == "hello\n"

            # Cordoned at the first, by the third itself.
            params = NodeParams(node_id=third.node.node_id)
            assert (await one.call(CORDON_NODE, params=params)).cordoned
            assert (await the_node(other, third.node.node_id)).cordoned
            assert not (await one.call(UNCORDON_NODE, params=params)).cordoned

            # With other keys the third is lost: its machine cannot be asked for, the others answer.
            await _rotate(one)
            third.node.lose()
            await eventually(lambda: _is(one, third.node.node_id, "down"), WITHIN_S)
            assert [machine.id for machine in await shop.machines()] == [near.id]
            assert await shop.away() == {far.id}
            with pytest.raises(
                Unavailable, match=f"node {third.node.node_id} in region mad (is down|cannot be reached)"
            ):
                await shop.get(far.id)

            # It comes back, and so does its machine, which never stopped.
            third.node.start()
            await eventually(lambda: _is(one, third.node.node_id, "alive"), WITHIN_S)
            await eventually(lambda: _has(shop, far.id, near.id), WITHIN_S)
            assert (await shop.get(far.id)).state == "started"


@pytest.mark.long(reason="three nodes miss one; a node is forgotten and comes back in test_agent_fleet.py, too")
async def test_a_forgotten_host_comes_back_without_its_catalog(tmp_path: Path) -> None:
    with three_hosts(tmp_path) as (first, second, third):
        ids = _joined(first, second, third)
        async with first.node.client() as one:
            await eventually(lambda: _all_alive(one, ids), WITHIN_S)
            second.node.lose()
            await eventually(lambda: _is(one, second.node.node_id, "down"), WITHIN_S)
            forgotten = await one.call(FORGET_NODE, params=NodeParams(node_id=second.node.node_id))
            assert forgotten.epoch > 0
            await eventually(lambda: _gone(one, second.node.node_id), WITHIN_S)
            for file in second.node.data_dir.glob("catalog.db*"):
                file.unlink()
            second.node.start()
            await eventually(lambda: _all_alive(one, ids), WITHIN_S)
            assert (await the_node(one, second.node.node_id)).labels == {"host": "1"}


async def test_a_node_that_may_not_join_is_told_so_in_one_line(tmp_path: Path) -> None:
    with host(tmp_path / "0", 0) as first, host(tmp_path / "1", 1) as second:
        first.node.start("--ephemeral")
        said = second.join(first.node)
        assert (said.returncode, said.stdout) == (ExitStatus.FAILED, "")
        assert "in no cluster: start it with `hawker up --advertise HOST`" in said.stderr
        first.node.stop()
        first.node.start("--advertise", first.address, "--peer-port", str(first.port))
        said = second.join(first.node, token="fm2_wrong")
        assert said.returncode == ExitStatus.FAILED and "does not take this token" in said.stderr
        token = first.node.token
        first.node.stop()
        said = second.join(first.node, token=token)
        assert said.returncode == ExitStatus.UNAVAILABLE and "cannot reach" in said.stderr
        assert not second.node.place.cluster.exists()


def _joined(first: Host, *others: Host) -> set[str]:
    """The ids of all; the others are started."""
    for each in others:
        said = each.join(first.node)
        assert said.returncode == 0 and f"others reach this node at {each.address}" in said.stderr, said.stderr
        each.node.start()
    return {each.node.node_id for each in (first, *others)}


async def _rotate(client: Client) -> None:
    """Add, use, remove: each once the one before is everywhere."""
    await client.call(ADD_KEY)
    for route, number in ((USE_KEY, "2"), (REMOVE_KEY, "1")):

        async def done() -> bool:
            try:
                await client.call(route, params=KeyParams(number=number))  # noqa: B023
            except Conflict:
                return False
            return True

        await eventually(done, WITHIN_S)
    assert [(key.number, key.primary) for key in (await client.call(LIST_KEYS)).keys] == [(2, True)]


async def _all_alive(client: Client, ids: set[str]) -> bool:
    found = (await client.call(LIST_NODES)).nodes
    return {node.id for node in found if node.state == "alive" and node.capacity is not None} == ids


async def _is(client: Client, node_id: str, state: str) -> bool:
    return (await states(client)).get(node_id) == state


async def _gone(client: Client, node_id: str) -> bool:
    return node_id not in await states(client)


async def _has_one_machine(client: Client, node_id: str) -> bool:
    """As the catalog has it, which hears of it by gossip."""
    return (await the_node(client, node_id)).machines == 1


async def _has(shop: Shop, *ids: str) -> bool:
    return {machine.id for machine in await shop.machines()} == set(ids)
