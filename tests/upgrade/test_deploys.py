"""We deploy all day, every day: the daemon is replaced again and again under load, by the version before and by this
one, politely and not. No connection is refused, what was acknowledged is kept, nothing is done twice, machines run on.
"""

import shutil
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio
import pytest

from hawker.api.client import Client
from hawker.host.residue import host, left
from hawker.log import Secret
from tests.crash.invariants import check_history, pilots, settled
from tests.e2e.images import toolbox, write_layout
from tests.e2e.shop import HELLO, Shop
from tests.upgrade.builds import Build, earlier_version, this_version
from tests.upgrade.customers import ANSWERED_WITHIN_S, Book, Customer, Order
from tests.upgrade.init_system import InitSystem, init_system
from tests.waiting import eventually, wait_for

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.slow]

DEPLOYS = [3, pytest.param(10, marks=pytest.mark.long(reason="ten deploys; three are the short form"))]
CUSTOMERS = 4
BYSTANDERS = 4
BETWEEN = 12  # calls that are answered between two deploys
WITHIN_S = 600.0
FLAGS = ("--shared-cpu-ratio", "64", "--log-level", "warning")
SMALL = {"guest": {"memory_mb": 64}, "restart": {"policy": "no"}}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Real time: the node is another process."""
    return "asyncio"


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> tuple[Build, Build]:
    """The one before and this one."""
    place = tmp_path_factory.mktemp("builds")
    before = earlier_version(place / "before")
    if before is None:
        pytest.skip("there is no earlier commit that builds: this needs git and a history")
    return before, this_version()


@pytest.fixture
def node(tmp_path: Path, builds: tuple[Build, Build]) -> Iterator[InitSystem]:
    before = host()
    with init_system(tmp_path) as node:
        yield node
        node.close()
        node.start(builds[1], *FLAGS, "--ephemeral")
        node.end()
    wait_for(lambda: not left(before, tmp_path))
    shutil.rmtree(node.data_dir)


def client_of(node: InitSystem) -> Client:
    return Client(node.url, Secret(node.token))


async def deployed(node: InitSystem, builds: tuple[Build, Build], book: Book, times: int) -> None:
    """To the one and the other in turn; every third daemon is killed."""
    for number in range(times):
        enough = book.answers + BETWEEN
        await eventually(partial(_has_answered, book, enough), ANSWERED_WITHIN_S)
        how = signal.SIGKILL if number % 3 == 2 else signal.SIGTERM
        await anyio.to_thread.run_sync(node.replace, builds[(number + 1) % 2], how, *FLAGS)


def _has_answered(book: Book, enough: int) -> bool:
    return book.answers >= enough


async def check_kept(shop: Shop, order: Order) -> None:
    """The machine is as its customer was told; its history has each operation once."""
    await settled(shop, order.machine_id)
    machine = await shop.get(order.machine_id)
    assert machine.state == ("destroyed" if order.destroyed else "started"), order
    events = await shop.events(order.machine_id)
    assert check_history(events) == (not order.destroyed)
    assert len(pilots(order.machine_id)) == int(not order.destroyed)
    assert [event.status for event in events].count("started") == 2, events
    exits = await shop.exits(order.machine_id)
    assert len(exits) == order.stops + order.destroyed
    assert all(exit.requested_stop for exit in exits)
    if not order.destroyed:
        script = ": >> /tmp/words; cat /tmp/words"  # it may be that its only command was cut off before it began
        written = (await shop.said(order.machine_id, "sh", "-c", script)).split()
        assert all(written.count(word) == 1 for word in order.words), (order, written)
        assert all(written.count(word) <= 1 for word in order.doubtful), (order, written)


@pytest.mark.parametrize("deploys", DEPLOYS)
async def test_the_daemon_is_replaced_under_load(
    deploys: int, node: InitSystem, builds: tuple[Build, Build], tmp_path: Path
) -> None:
    image = write_layout(tmp_path / "layout", toolbox(tmp_path / "root"))
    node.start(builds[0], *FLAGS)
    book, closing = Book(), anyio.Event()
    async with client_of(node) as client:
        shop = await Shop(client, "deploys").open()
        idle = [await shop.run({"image": HELLO, **SMALL}) for _ in range(BYSTANDERS)]
        before = {machine.id: pilots(machine.id) for machine in idle}
        customers = [Customer(shop, {"image": image, **SMALL}, f"order-{name}", book) for name in range(CUSTOMERS)]
        with anyio.fail_after(WITHIN_S):
            async with anyio.create_task_group() as tasks:
                for customer in customers:
                    tasks.start_soon(customer.work, closing)
                await deployed(node, builds, book, deploys)
                closing.set()
        orders = [order for customer in customers for order in customer.orders]
        assert len(orders) > deploys, "there was load"
        for order in orders:
            await check_kept(shop, order)
        for machine_id, was in before.items():
            assert pilots(machine_id) == was
            assert [event.status for event in await shop.events(machine_id)] == ["created", "started"]
        kept = {order.machine_id for order in orders if not order.destroyed} | set(before)
        assert {machine.id for machine in await shop.machines()} == kept, "no order was filled twice"
    assert node.lives == deploys + 1
    print(builds[0].name, dict(sorted(book.told.items())))  # with -s, for whoever wants to know
