"""A node that is small: it fills an order or refuses it at once, and says what is missing."""

from collections.abc import AsyncIterator, Iterator

import pytest

from hawker.api.contract.node import NODE_INFO
from hawker.errors import Conflict, NoRoom
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.shop import HELLO, Shop

pytestmark = [pytest.mark.anyio, pytest.mark.root]

SMALL = ("--cpus", "1", "--memory-mib", "600", "--shared-cpu-ratio", "4", "--machine-pids", "24")
HALF = {"image": HELLO, "guest": {"memory_mb": 256, "cpus": 1}}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with running_node(tmp_path_factory.mktemp("small"), "--ephemeral", *SMALL) as node:
        yield node


@pytest.fixture
async def stall(small: RunningNode, _numbers: Iterator[int]) -> AsyncIterator[Shop]:
    async with small.client() as client:
        shop = await Shop(client, f"stall-{next(_numbers)}").open()
        yield shop
        await shop.close()


async def test_an_order_that_does_not_fit_is_refused_with_what_is_missing(stall: Shop) -> None:
    for _ in range(2):
        await stall.order(HALF)
    with pytest.raises(NoRoom) as refusal:
        await stall.order(HALF)
    assert (refusal.value.status, refusal.value.code) == (422, "insufficient_capacity")
    assert (refusal.value.scope, refusal.value.shortfall) == ("region", {"memory_mb": 168})
    assert len(await stall.machines()) == 2


async def test_a_stopped_machine_gives_its_room_to_others_and_may_find_it_taken(stall: Shop) -> None:
    first = await stall.run(HALF)
    await stall.run(HALF)
    await stall.stop(first.id)
    await stall.wait(first.id, "stopped")
    third = await stall.run(HALF)
    with pytest.raises(Conflict, match="insufficient memory available"):
        await stall.start(first.id)
    assert (await stall.get(first.id)).state == "stopped"
    await stall.destroy(third.id)
    await stall.gone(third.id)
    await stall.start(first.id)
    assert (await stall.wait(first.id, "started")).state == "started"


async def test_shared_cpus_are_oversold_and_performance_cpus_are_not(stall: Shop) -> None:
    def of(kind: str, cpus: int) -> dict[str, object]:
        return {"image": HELLO, "guest": {"cpu_kind": kind, "cpus": cpus, "memory_mb": 64}}

    with pytest.raises(NoRoom) as refusal:
        await stall.order(of("performance", 2))
    assert refusal.value.shortfall == {"cpus": 1}
    await stall.order(of("shared", 4))
    with pytest.raises(NoRoom) as refusal:
        await stall.order(of("shared", 1))
    assert refusal.value.shortfall == {"cpus": 1}
    with pytest.raises(NoRoom):
        await stall.order(of("performance", 1))


async def test_resources_machines_hold_are_told(stall: Shop) -> None:
    machine = await stall.run(HALF)
    info = await stall.client.call(NODE_INFO)
    assert (info.used.memory_mb, info.used.shared_cpus, info.machines.get("started")) == (256, 1, 1)
    await stall.destroy(machine.id)
    await stall.gone(machine.id)
    info = await stall.client.call(NODE_INFO)
    assert (info.used.memory_mb, info.used.shared_cpus, info.used.disk_mb) == (0, 0, 0)


async def test_a_region_that_is_not_here_names_the_nearest(stall: Shop) -> None:
    with pytest.raises(NoRoom) as refusal:
        await stall.order({"image": HELLO}, region="mars")
    assert (refusal.value.scope, refusal.value.nearest) == ("region", "local")


async def test_the_number_of_processes_is_limited(stall: Shop, toolbox_image: str) -> None:
    machine = await stall.run({"image": toolbox_image, "guest": {"memory_mb": 128}})
    answer = await stall.shell(machine.id, "for i in $(seq 40); do sleep 5 & done; echo all")
    assert answer.stdout != "all\n"
    assert "fork" in answer.stderr.lower()
    assert await stall.said(machine.id, "echo", "fine") == "fine\n"
