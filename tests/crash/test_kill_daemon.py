"""The daemon is killed at any moment, while ten machines run and a create, a start and a destroy are under way.

What was acknowledged is kept, what runs is not touched, what was begun is done, and nothing is doubled or left over.
"""

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from hawker.errors import HawkerError
from tests.crash.invariants import check_host, check_machine, pilots, settled
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.shop import HELLO, Shop
from tests.e2e.web import ask

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.slow]

RUNNING = 10
ROUNDS = [1, pytest.param(8, marks=pytest.mark.long(reason="eight deaths; the first of them is the short form"))]
LATEST_S = 0.12  # all three operations are over by then
SEED = 20_240
SMALL = {"image": HELLO, "guest": {"memory_mb": 64}, "restart": {"policy": "no"}}
APP = "besieged"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Real time: the node is another process."""
    return "asyncio"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with running_node(tmp_path / "besieged", "--ephemeral", "--shared-cpu-ratio", "64") as node:
        yield node


@dataclass(slots=True)
class Round:
    """What was under way, and what of it was acknowledged."""

    key: str
    stopped: str
    doomed: str
    acknowledged: set[str] = field(default_factory=set)

    async def create(self, shop: Shop) -> None:
        await shop.order(SMALL, key=self.key)
        self.acknowledged.add("create")

    async def start(self, shop: Shop) -> None:
        await shop.start(self.stopped)
        self.acknowledged.add("start")

    async def destroy(self, shop: Shop) -> None:
        await shop.destroy(self.doomed)
        self.acknowledged.add("destroy")


async def prepared(shop: Shop, number: int) -> Round:
    """A machine to start and one to destroy."""
    stopped, doomed = await shop.run(SMALL), await shop.run(SMALL)
    await shop.stop(stopped.id)
    await shop.wait(stopped.id, "stopped")
    await settled(shop, stopped.id)
    return Round(f"order-{number}", stopped.id, doomed.id)


async def killed(node: RunningNode, shop: Shop, round: Round, after_s: float) -> None:
    """Let the three operations begin together, and kill the daemon so much later."""

    async def attempt(name: str) -> None:
        with suppress(HawkerError):
            await getattr(round, name)(shop)

    async with anyio.create_task_group() as tasks:
        for name in ("create", "start", "destroy"):
            tasks.start_soon(attempt, name)
        with anyio.move_on_after(after_s):
            await anyio.sleep_forever()
        node.kill()


@pytest.mark.parametrize("rounds", ROUNDS)
async def test_a_killed_daemon_loses_nothing_and_touches_nothing(rounds: int, node: RunningNode) -> None:
    chance = random.Random(SEED)
    async with node.client() as client:
        shop = await Shop(client, APP).open()
        machines = [await shop.run(SMALL) for _ in range(RUNNING)]
        bystanders = {machine.id: pilots(machine.id) for machine in machines}
    for number in range(rounds):
        async with node.client() as client:
            shop = Shop(client, APP)
            round = await prepared(shop, number)
            await killed(node, shop, round, chance.uniform(0, LATEST_S))
        for machine in machines:
            assert machine.id in ask(machine.private_ip).body, "it answers while no daemon is there"
        node.start()
        async with node.client() as client:
            shop = Shop(client, APP)
            await check_bystanders(shop, bystanders)
            await check_round(shop, round)
            await check_host(shop, node)


async def check_bystanders(shop: Shop, bystanders: dict[str, list[int]]) -> None:
    for machine_id, before in bystanders.items():
        assert (await check_machine(shop, machine_id)).state == "started"
        assert pilots(machine_id) == before
        assert [event.status for event in await shop.events(machine_id)] == ["created", "started"]


async def check_round(shop: Shop, round: Round) -> None:
    """Each operation is done if it was acknowledged, else done or as if never asked for; the create is asked again."""
    made = await shop.order(SMALL, key=round.key)
    ends = {"create": (made.id, "started", None), "start": (round.stopped, "started", "stopped"),
            "destroy": (round.doomed, "destroyed", "started")}  # fmt: skip
    for name, (machine_id, done, before) in ends.items():
        await settled(shop, machine_id)
        state = (await check_machine(shop, machine_id)).state
        assert state == done or (state == before and name not in round.acknowledged), (name, state)
    expected = RUNNING + 2 + (round.doomed in await ids(shop))
    assert len(await ids(shop)) == expected, "no order was filled twice"
    for machine_id in (made.id, round.stopped, round.doomed):
        await remove(shop, machine_id)


async def ids(shop: Shop) -> list[str]:
    return [machine.id for machine in await shop.machines()]


async def remove(shop: Shop, machine_id: str) -> None:
    if (await shop.get(machine_id)).state != "destroyed":
        await shop.destroy(machine_id)
        await shop.gone(machine_id)
    assert pilots(machine_id) == []
