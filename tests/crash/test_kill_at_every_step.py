"""The real daemon is killed before and after every step of every flow, each time in the middle of what it took up from
the last time; then it is started once more, and the operation is done, once.

One run meets all its crashes in a row, so each boot is both the recovery from one crash and the way to the next.
"""

import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from hawker.api.bodies import ExitEvent, Machine
from hawker.errors import HawkerError
from hawker.worker.lifecycle import FLOWS
from tests.crash.invariants import check_host, check_machine, settled
from tests.e2e.images import toolbox, write_layout
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.shop import HELLO, Shop
from tests.e2e.web import ask
from tests.waiting import wait_for

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.slow]

DIES_WITHIN_S = 20.0
APP = "besieged"
CONFIG = {"image": HELLO, "restart": {"policy": "no"}}

Order = Callable[[Shop], Awaitable[object]]


def points(name: str) -> list[str]:
    """Where to kill, in the order in which a run comes by."""
    (flow,) = (flow for flow in FLOWS if flow.name == name)
    return [f"{name}.{step.name}.{edge}" for step in flow.steps for edge in ("before", "after")]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Real time: the node is another process."""
    return "asyncio"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with running_node(tmp_path_factory.mktemp("besieged")) as node:
        yield node


async def in_shop(node: RunningNode, order: Order) -> None:
    async with node.client() as client:
        await order(Shop(client, APP))


async def ordered(node: RunningNode, *, stopped: bool = False) -> Machine:
    """A machine to begin with."""
    async with node.client() as client:
        shop = Shop(client, APP)
        with suppress(HawkerError):
            await shop.open()
        machine = await shop.run(CONFIG)
        if stopped:
            await shop.stop(machine.id)
            await shop.wait(machine.id, "stopped")
        await settled(shop, machine.id)
        return machine


async def besiege(node: RunningNode, where: Sequence[str], order: Order) -> None:
    """Give an order to a node that dies at each of these places in turn, then start one that does not."""
    node.kill()
    node.launch(failpoint=where[0])
    wait_for(lambda: node.ready or not node.alive)
    with suppress(HawkerError):  # the node may be dead before it can answer
        await in_shop(node, order)
    for point in where[1:]:
        assert node.ended(DIES_WITHIN_S) == -signal.SIGKILL, f"before {point}"
        node.launch(failpoint=point)
    assert node.ended(DIES_WITHIN_S) == -signal.SIGKILL
    node.start()


async def survivor(node: RunningNode, machine_id: str) -> tuple[Machine, list[ExitEvent]]:
    """The machine once all is over, its history checked."""
    async with node.client() as client:
        shop = Shop(client, APP)
        await settled(shop, machine_id)
        machine = await check_machine(shop, machine_id)
        await check_host(shop, node)
        return machine, await shop.exits(machine_id)


async def test_create_and_pull(node: RunningNode, tmp_path: Path) -> None:
    await ordered(node)
    image = write_layout(tmp_path / "layout", toolbox(tmp_path / "root"))
    first, *rest = points("create")

    async def order(shop: Shop) -> Machine:
        return await shop.order({"image": image}, key="order-1")

    await besiege(node, [first, *points("pull"), *rest], order)
    async with node.client() as client:
        shop = Shop(client, APP)
        made = await order(shop)
        machine, exits = await survivor(node, made.id)
        assert (machine.state, exits) == ("started", [])
        assert [each.id for each in await shop.machines()].count(made.id) == 1
        assert sum(each.image_ref.digest == made.image_ref.digest for each in await shop.machines()) == 1
        assert await shop.said(made.id, "echo", "alive") == "alive\n"


async def test_undo_of_create(node: RunningNode, tmp_path: Path) -> None:
    """Neither the image nor the config names a command, which is found out at the last step."""
    await ordered(node)
    image = write_layout(tmp_path / "layout", toolbox(tmp_path / "root", {}))
    made: list[Machine] = []

    async def order(shop: Shop) -> None:
        made.append(await shop.order({"image": image}))

    await besiege(node, [f"create.{step}.undo" for step in ("launch", "rootfs", "image")], order)
    machine, exits = await survivor(node, made[0].id)
    assert (machine.state, exits) == ("destroyed", [])
    async with node.client() as client:
        last = (await Shop(client, APP).events(made[0].id))[-1]
        assert last.status == "launch_failed" and last.request and "command" in last.request.error


async def test_stop(node: RunningNode) -> None:
    made = await ordered(node)
    await besiege(node, points("stop"), lambda shop: shop.stop(made.id))
    machine, exits = await survivor(node, made.id)
    assert machine.state == "stopped"
    assert [(exit.exit_code, exit.requested_stop) for exit in exits] == [(0, True)]


async def test_start(node: RunningNode) -> None:
    made = await ordered(node, stopped=True)
    await besiege(node, points("start"), lambda shop: shop.start(made.id))
    machine, exits = await survivor(node, made.id)
    assert (machine.state, len(exits)) == ("started", 1)


async def test_restart(node: RunningNode) -> None:
    made = await ordered(node)
    await besiege(node, points("restart"), lambda shop: shop.restart(made.id))
    machine, exits = await survivor(node, made.id)
    assert (machine.state, machine.version) == ("started", made.version)
    assert [(exit.exit_code, exit.requested_stop) for exit in exits] == [(0, True)]


async def test_update(node: RunningNode) -> None:
    made = await ordered(node)
    await besiege(node, points("update"), lambda shop: shop.update(made.id, {**CONFIG, "env": {"NEW": "yes"}}))
    machine, exits = await survivor(node, made.id)
    assert machine.state == "started" and machine.version != made.version
    assert len(exits) == 1
    async with node.client() as client:
        assert "NEW=yes\n" in await Shop(client, APP).said(made.id, "/bin/hello", "env")


async def test_rest(node: RunningNode) -> None:
    """What follows an exit by itself, which may happen while no daemon is there to see it."""
    made = await ordered(node)

    async def leave(shop: Shop) -> None:
        ask(made.private_ip, "/exit/7", method="POST")

    await besiege(node, points("rest"), leave)
    machine, exits = await survivor(node, made.id)
    assert machine.state == "stopped"
    assert [(exit.exit_code, exit.requested_stop) for exit in exits] == [(7, False)]


async def test_destroy(node: RunningNode) -> None:
    made = await ordered(node)
    await besiege(node, points("destroy"), lambda shop: shop.destroy(made.id))
    machine, exits = await survivor(node, made.id)
    assert (machine.state, len(exits)) == ("destroyed", 1)
    async with node.client() as client:
        assert made.id not in [each.id for each in await Shop(client, APP).machines()]
