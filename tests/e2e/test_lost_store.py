"""A node's store set back to a backup, torn, or deleted, while machines run: what each comes to is a fact here, and a
sentence in docs/recovery.md.
"""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import pytest

from hawker.api.client import Client
from hawker.api.contract.machine import Machine
from hawker.api.contract.node import NODE_INFO
from hawker.errors import NotFound, Unavailable
from tests.crash.invariants import check_history, pilots
from tests.e2e.command_line import CommandLine, Done
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.shop import HELLO, Shop
from tests.e2e.web import answers
from tests.waiting import eventually, wait_for

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.slow]

RUNS = {"image": HELLO, "guest": {"memory_mb": 64}}
ONCE = {**RUNS, "restart": {"policy": "no"}}
APP = "shop"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with running_node(tmp_path / "node") as node:
        yield node


@pytest.fixture
def hawker(node: RunningNode) -> CommandLine:
    return CommandLine({**node.environment, "HAWKER_DATA_DIR": str(node.data_dir)})


@dataclass(frozen=True, slots=True)
class Since:
    """Machines, by what was done to them after the backup was taken."""

    untouched: Machine
    started: Machine
    restarted: Machine
    stopped: Machine
    ended: Machine
    destroyed: Machine
    created: Machine


async def before_the_backup(shop: Shop) -> list[Machine]:
    machines = [await shop.run(RUNS), await shop.run(RUNS), await shop.run(RUNS), await shop.run(RUNS)]
    machines += [await shop.run(ONCE), await shop.run(RUNS)]
    await off(shop, machines[1])
    return machines


async def off(shop: Shop, machine: Machine) -> None:
    await shop.stop(machine.id)
    await shop.wait(machine.id, "stopped")


async def after_the_backup(shop: Shop, machines: list[Machine]) -> Since:
    untouched, started, restarted, stopped, ended, destroyed = machines
    await shop.start(started.id)
    await shop.wait(started.id, "started")
    before = pilots(restarted.id)
    await shop.restart(restarted.id)
    await eventually(lambda: pilots(restarted.id) not in ([], before))
    await shop.wait(restarted.id, "started")
    await off(shop, stopped)
    os.kill(pilots(ended.id)[0], signal.SIGKILL)
    await shop.wait(ended.id, "stopped")
    await shop.destroy(destroyed.id)
    await shop.gone(destroyed.id)
    return Since(untouched, started, restarted, stopped, ended, destroyed, await shop.run(RUNS))


async def test_a_restored_node_takes_up_what_runs(node: RunningNode, hawker: CommandLine, tmp_path: Path) -> None:
    copy = str(tmp_path / "node.db")
    async with node.client() as client:
        shop = await Shop(client, APP).open()
        machines = await before_the_backup(shop)
        hawker.say("node", "backup", copy)
        since = await after_the_backup(shop, machines)
    running = [since.untouched, since.started, since.restarted]
    pids = {machine.id: pilots(machine.id) for machine in running}
    assert "in use" in refused(hawker, "node", "restore", copy)
    node.stop()
    hawker.say("node", "restore", copy)
    node.start()
    async with node.client() as client:
        await check_restored(Shop(client, APP), since, pids)
        await eventually(lambda: healthy(hawker))
    assert list(node.data_dir.glob("hawker.db.replaced-*"))


def refused(hawker: CommandLine, *words: str) -> str:
    done = hawker(*words)
    assert done.status == 2, done
    return done.err


def healthy(hawker: CommandLine) -> bool:
    return hawker("node", "doctor") == Done(0, "nothing is wrong\n", "")


async def check_restored(shop: Shop, since: Since, pids: dict[str, list[int]]) -> None:
    for machine in (since.untouched, since.started, since.restarted):
        assert (await shop.get(machine.id)).state == "started"
        assert pilots(machine.id) == pids[machine.id], "it was not touched"
        assert check_history(await shop.events(machine.id))
        assert answers(machine.private_ip)
    assert await shop.exits(since.untouched.id) == []
    for each in (since.ended, since.destroyed):
        await shop.wait(each.id, "stopped")  # a start looks for missed exits for ten seconds, and then goes on
    await eventually(lambda: shop.exits(since.restarted.id))
    (lost,) = await shop.exits(since.restarted.id)
    assert "after the backup" in lost.reason
    (ended,) = await shop.exits(since.ended.id)
    assert (ended.exit_code, (await shop.get(since.ended.id)).state) == (137, "stopped")
    assert (await shop.get(since.destroyed.id)).state == "stopped"
    (gone,) = await shop.exits(since.destroyed.id)
    assert "nothing of it was on the host" in gone.reason
    with pytest.raises(NotFound):
        await shop.get(since.created.id)
    await eventually(lambda: not pilots(since.created.id))
    await shop.start(since.destroyed.id)
    await shop.wait(since.destroyed.id, "started")
    await check_stopped(shop, since.stopped)


async def check_stopped(shop: Shop, machine: Machine) -> None:
    """That this was asked for is not in the backup. Its end is on the host, with the code of a program that was told
    to end, and the restart policy goes by that."""
    await shop.wait(machine.id, "stopped")
    (exit,) = await shop.exits(machine.id)
    assert exit.exit_code == 0 and not exit.requested_stop
    assert (await shop.get(machine.id)).state == "stopped"


@pytest.mark.long(
    reason="a node of its own; the test above restores a backup, tests/store/test_restore.py replaces a damaged store"
)
def test_a_torn_store_is_refused_and_a_backup_mends_it(node: RunningNode, hawker: CommandLine, tmp_path: Path) -> None:
    copy = str(tmp_path / "node.db")
    machine = anyio.run(_one_machine, node)
    hawker.say("node", "backup", copy)
    node.stop()
    tear(node.place.store)
    with pytest.raises(Unavailable, match="damaged"):
        node.start()
    assert node.ended() == 2
    assert "`hawker node restore FILE`" in node.errors
    assert answers(machine.private_ip), "it does not need the node"
    hawker.say("node", "restore", copy)
    node.start()
    wait_for(lambda: healthy(hawker))
    assert hawker.say("machine", "status", machine.id, "--app", APP).count("started")
    assert answers(machine.private_ip)


async def _one_machine(node: RunningNode) -> Machine:
    async with node.client() as client:
        return await (await Shop(client, APP).open()).run(RUNS)


def tear(store: Path) -> None:
    """A page of it overwritten, and no log that could make it good."""
    assert not Path(f"{store}-wal").exists()
    data = bytearray(store.read_bytes())
    data[4096:8192] = os.urandom(4096)
    store.write_bytes(data)


async def test_machines_of_a_deleted_store_run_on_and_are_named(
    node: RunningNode, hawker: CommandLine, tmp_path: Path
) -> None:
    """The new store knows none of them. It touches none, until an operator says so."""
    copy = str(tmp_path / "node.db")
    async with node.client() as client:
        identity = (await client.call(NODE_INFO)).id
        shop = await Shop(client, APP).open()
        running, stopped = await shop.run(RUNS), await shop.run(RUNS)
        await off(shop, stopped)
        hawker.say("node", "backup", copy)
    pids = pilots(running.id)
    node.kill()
    for each in node.data_dir.glob("hawker.db*"):
        each.unlink()
    node.start()
    async with node.client() as client:
        assert (await client.call(NODE_INFO)).id == identity, "its names on the host are its own"
        await check_foreign(hawker, client, running, stopped)
    assert pilots(running.id) == pids and answers(running.private_ip)
    node.stop()
    hawker.say("node", "restore", copy)
    node.start()
    async with node.client() as client:
        shop = Shop(client, APP)
        assert (await shop.get(running.id)).state == "started" and pilots(running.id) == pids
        assert (await shop.get(stopped.id)).state == "stopped"
    wait_for(lambda: healthy(hawker))


async def check_foreign(hawker: CommandLine, client: Client, running: Machine, stopped: Machine) -> None:
    """Also after a repair, and while the node makes machines of its own."""
    foreign = sorted(("foreign instance", machine.id) for machine in (running, stopped))

    def names_just_them(*words: str) -> bool:
        """Once what the boot began is over."""
        said = hawker(*words)
        named = [line.split("  ") for line in said.out.splitlines()[1:]]
        return said.status == 1 and sorted((row[0], row[1]) for row in named) == foreign

    for words in (("node", "doctor"), ("node", "doctor", "--repair")):
        await eventually(partial(names_just_them, *words))
    shop = await Shop(client, "new").open()
    machine = await shop.run(RUNS)
    await eventually(lambda: answers(machine.private_ip))
    await shop.close()


@pytest.mark.long(reason="those that run on are the short form")
def test_machines_of_a_deleted_store_are_ended_when_told(node: RunningNode, hawker: CommandLine) -> None:
    machine = anyio.run(_one_machine, node)
    node.stop()
    node.place.store.unlink()
    node.start()
    wait_for(lambda: machine.id in hawker("node", "doctor").out)
    wait_for(lambda: hawker("node", "doctor", "--repair", "--end-foreign").status == 0)
    wait_for(lambda: pilots(machine.id) == [])
    wait_for(lambda: healthy(hawker))
    wait_for(lambda: list((node.data_dir / "machines").iterdir()) == [])
