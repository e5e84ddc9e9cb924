"""A machine whose node is lost after a move is taken back by the node that it came from, on two real nodes; the lost
one returns with the machine running, and gives it up. Who is killed when is played by `tests/chaos/moves`."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio.to_thread
import pytest

from hawker.api.contract.machine import Machine
from hawker.errors import HawkerError
from tests.e2e.command_line import CommandLine, Done
from tests.e2e.shop import Shop
from tests.e2e.test_fleet_join import WITHIN_S, Host, states
from tests.e2e.test_moves import begun, hosts, moved, owns, said, with_ledger
from tests.e2e.two_hosts import met
from tests.waiting import eventually

__all__ = ["hosts"]
pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.slow]


@pytest.mark.long(
    reason="a host is lost; tests/worker/moves and the simulator of moves in `make check` are the short form"
)
async def test_a_machine_of_a_lost_node_comes_back_and_the_node_gives_it_up_when_it_returns(
    hosts: tuple[Host, Host], toolbox_image: str
) -> None:
    await met(hosts)
    async with hosts[0].node.client() as first:
        shop = Shop(first, "lost")
        await shop.open()
        machine = await with_ledger(shop, toolbox_image)
    here, there = hosts if owns(hosts[0], machine) else (hosts[1], hosts[0])
    async with here.node.client() as client:
        shop = Shop(client, "lost")
        before = await said(shop, machine)
        assert (await moved(shop, machine, there.node.node_id)).state == "done"
        assert (await shop.wait(machine.id, "started")).id == machine.id

        line = CommandLine(here.node.environment | {"HAWKER_DATA_DIR": str(here.node.data_dir)})
        reclaim = partial(anyio.to_thread.run_sync, partial(line, "machine", "move", machine.id, "--reclaim"))
        there.node.kill()
        await eventually(lambda: _is(shop, there, "away"), WITHIN_S)
        refused: Done = await reclaim()
        assert refused.status == 1 and "nothing is taken back from a node that lives" in refused.err, refused
        there.node.lose()
        await eventually(lambda: _is(shop, there, "down"), WITHIN_S)
        warned: Done = await reclaim()
        assert warned.status == 1 and "is missing here: take it back without that with `--accept-loss`" in warned.err

        given_up = partial(line, "machine", "move", machine.id, "--reclaim", "--accept-loss", "--now")
        done: Done = await anyio.to_thread.run_sync(given_up)
        assert done.status == 0 and "taken back under generation" in done.out, done
        assert (await shop.wait(machine.id, "started")).id == machine.id
        assert owns(here, machine) and await has(shop, machine, before)

        there.node.start()
        await eventually(lambda: not owns(there, machine), WITHIN_S)
        await met(hosts)
        assert (await shop.get(machine.id)).state == "started" and owns(here, machine)
        assert await has(shop, machine, before)


@contextmanager
def unwritable(directory: Path) -> Iterator[None]:
    """Nothing new comes into it, as on a disk that refuses; what is below it goes on."""
    subprocess.run(["chattr", "+i", str(directory)], check=True)
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", str(directory)], check=True)


@pytest.mark.long(
    reason="two more nodes, and one is lost; tests/worker/moves/test_incoming.py refuses the file on a played disk"
)
async def test_a_machine_that_the_other_nodes_disk_refuses_is_granted_says_why_and_is_taken_back_without_loss(
    hosts: tuple[Host, Host], toolbox_image: str
) -> None:
    """The file is there, compared and granted, and cannot be put in its place: the machine is off, and nobody's writes
    are at the other node."""
    await met(hosts)
    async with hosts[0].node.client() as first:
        shop = Shop(first, "refused")
        await shop.open()
        machine = await with_ledger(shop, toolbox_image)
    here, there = hosts if owns(hosts[0], machine) else (hosts[1], hosts[0])
    volumes = there.node.place.volumes
    async with here.node.client() as client:
        shop = Shop(client, "refused")
        before = await said(shop, machine)
        line = CommandLine(here.node.environment | {"HAWKER_DATA_DIR": str(here.node.data_dir)})
        (volumes / ".incoming").mkdir(parents=True, exist_ok=True, mode=0o700)
        with unwritable(volumes):
            move = await begun(shop, machine, there.node.node_id)

            def says_why() -> bool:
                told = line("moves", "show", move.id).out
                return "its disk refuses the file" in told and "--reclaim" in told

            await eventually(lambda: anyio.to_thread.run_sync(says_why), WITHIN_S)
            there.node.lose()
            await eventually(lambda: _is(shop, there, "down"), WITHIN_S)
            back = partial(line, "machine", "move", machine.id, "--reclaim", "--now")
            done: Done = await anyio.to_thread.run_sync(back)
            assert done.status == 0 and "taken back under generation" in done.out, done
        assert (await shop.wait(machine.id, "started")).id == machine.id
        assert owns(here, machine) and await has(shop, machine, before)

        there.node.start()
        await eventually(lambda: not list((volumes / ".incoming").iterdir()), WITHIN_S)
        await met(hosts)
        assert not owns(there, machine) and (await shop.get(machine.id)).state == "started"


async def has(shop: Shop, machine: Machine, number: int) -> bool:
    """Whether the ledger has it still: after each start the machine counts from 1 again."""
    return str(number) in (await shop.said(machine.id, "cat", "/data/ledger")).split()


async def _is(shop: Shop, host: Host, state: str) -> bool:
    try:
        return (await states(shop.client)).get(host.node.node_id) == state
    except HawkerError:
        return False
