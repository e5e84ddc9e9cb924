"""The daemon's own life: how it begins, what it leaves alone when it ends, and what it finds when it comes back."""

import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from hawker.api.client import Client
from hawker.api.contract.node import HEALTH, NODE_INFO, NodeInfo
from hawker.errors import Fault, Unauthorized
from hawker.log import Secret
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.shop import HELLO, Shop
from tests.e2e.web import told
from tests.waiting import eventually, wait_for

pytestmark = [pytest.mark.anyio, pytest.mark.root]

INTERRUPT = pytest.param(signal.SIGINT, marks=pytest.mark.long(reason="the other signal is the short form"))
STOPS_WITHIN_S = 30.0  # half of what the longest call would take


@pytest.fixture
def lasting(tmp_path: Path) -> Iterator[RunningNode]:
    """A node whose machines stay when it stops."""
    with running_node(tmp_path / "lasting") as node:
        yield node


def exists(pid: int) -> bool:
    """Whether it still runs: a zombie only waits to be read."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def test_the_ready_line_is_all_that_is_on_stdout(lasting: RunningNode) -> None:
    lasting.stop()
    assert lasting.output == f"ready {lasting.url}\n"
    assert lasting.url.startswith("http://127.0.0.1:")
    assert '"message":"ready"' in lasting.errors


def test_the_token_is_the_owners_alone(node: RunningNode) -> None:
    assert stat.S_IMODE((node.data_dir / "token").stat().st_mode) == 0o600
    assert stat.S_IMODE(node.data_dir.stat().st_mode) == 0o700


async def test_health_needs_no_token_and_everything_else_does(node: RunningNode) -> None:
    async with Client(node.url) as stranger:
        assert (await stranger.call(HEALTH)).status == "ok"
        with pytest.raises(Unauthorized):
            await stranger.call(NODE_INFO)
    async with Client(node.url, Secret("hwk_wrong")) as stranger:
        with pytest.raises(Unauthorized):
            await stranger.call(NODE_INFO)


async def test_a_node_says_what_it_is(client: Client) -> None:
    info: NodeInfo = await client.call(NODE_INFO)
    assert (info.driver, info.region) == ("container", "local")
    assert info.capacity.cpus == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("number", [signal.SIGTERM, INTERRUPT])
async def test_a_stopped_daemon_leaves_its_machines_running(lasting: RunningNode, number: signal.Signals) -> None:
    async with lasting.client() as client:
        shop = await Shop(client, "shop").open()
        machine = await shop.run({"image": HELLO})
        pid = await shop.pid(machine.id)
    assert lasting.stop(number) < STOPS_WITHIN_S
    assert exists(pid)
    lasting.start()
    async with lasting.client() as client:
        shop = Shop(client, "shop")
        after = await shop.get(machine.id)
        assert (after.state, after.private_ip) == ("started", machine.private_ip)
        assert await shop.pid(machine.id) == pid
        assert await shop.said(machine.id, "/bin/hello", "echo", "still here") == "still here\n"
        assert await shop.exits(machine.id) == []


async def test_a_call_under_way_does_not_hold_up_the_end(lasting: RunningNode) -> None:
    """A command runs when the daemon is told to stop; who waits for it is told."""
    async with lasting.client() as client, anyio.create_task_group() as tasks:
        shop = await Shop(client, "shop").open()
        machine = await shop.run({"image": HELLO})

        async def call() -> None:
            with pytest.raises(Fault, match="the node stopped before the call came to its end"):
                await shop.exec(machine.id, "/bin/hello", "sleep", "60")

        tasks.start_soon(call)
        await eventually(lambda: _sleeps(shop, machine.id))
        assert await anyio.to_thread.run_sync(lasting.stop) < STOPS_WITHIN_S


async def _sleeps(shop: Shop, machine_id: str) -> bool:
    return "sleep" in str(await shop.processes(machine_id))


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
async def test_an_exit_while_the_daemon_is_away_is_found_with_its_code(lasting: RunningNode, killed: bool) -> None:
    async with lasting.client() as client:
        shop = await Shop(client, "shop").open()
        resting = await shop.run({"image": HELLO, "restart": {"policy": "no"}})
        again = await shop.run({"image": HELLO, "restart": {"policy": "on-failure"}})
        gone = await shop.run({"image": HELLO, "restart": {"policy": "no"}, "auto_destroy": True})
        pids = [await shop.pid(each.id) for each in (resting, again, gone)]
    if killed:
        lasting.kill()
    else:
        lasting.stop()
    for machine in (resting, again, gone):
        told(machine.private_ip, "/exit/7", method="POST")
    wait_for(lambda: not any(map(exists, pids)))
    lasting.start()
    async with lasting.client() as client:
        shop = Shop(client, "shop")
        assert (await shop.wait(resting.id, "stopped")).state == "stopped"
        assert [exit.exit_code for exit in await shop.exits(resting.id)] == [7]
        await eventually(lambda: _codes(shop, again.id))  # a start looks for missed exits for ten seconds
        assert (await shop.wait(again.id, "started")).state == "started"
        assert await _codes(shop, again.id) == [7]
        assert await shop.pid(again.id) not in pids
        await shop.gone(gone.id)


async def _codes(shop: Shop, machine_id: str) -> list[int]:
    return [exit.exit_code for exit in await shop.exits(machine_id)]


def test_an_ephemeral_node_destroys_its_machines_at_its_end(tmp_path: Path) -> None:
    """`running_node` fails if anything of the node is left on the host."""

    async def fill(node: RunningNode) -> list[int]:
        async with node.client() as client:
            shop = await Shop(client, "shop").open()
            machines = [await shop.run({"image": HELLO}) for _ in range(3)]
            await shop.stop(machines[0].id)
            return [await shop.pid(machine.id) for machine in machines[1:]]

    with running_node(tmp_path / "ephemeral", "--ephemeral") as node:
        pids = anyio.run(fill, node)
        node.stop()
        assert not any(map(exists, pids))
        assert list((node.data_dir / "machines").iterdir()) == []
