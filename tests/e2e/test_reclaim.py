"""A machine whose node is lost after a move is taken back by the node that it came from, on two real nodes; the lost
one returns with the machine running, and gives it up. Who is killed when is played by `tests/worker/lifecycle`."""

from functools import partial

import anyio.to_thread
import pytest

from hawker.errors import HawkerError
from tests.e2e.command_line import CommandLine, Done
from tests.e2e.shop import Shop
from tests.e2e.test_fleet_join import WITHIN_S, Host, states
from tests.e2e.test_moves import hosts, moved, owns, said, with_ledger
from tests.e2e.two_hosts import met
from tests.waiting import eventually

__all__ = ["hosts"]
pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.slow]


async def test_a_machine_of_a_lost_node_comes_back_and_the_node_gives_it_up_when_it_returns(
    hosts: tuple[Host, Host], toolbox_image: str
) -> None:
    await met(hosts)
    async with hosts[0].node.client() as first:
        shop = Shop(first, "moves")
        await shop.open()
        machine = await with_ledger(shop, toolbox_image)
    here, there = hosts if owns(hosts[0], machine) else (hosts[1], hosts[0])
    async with here.node.client() as client:
        shop = Shop(client, "moves")
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
        assert owns(here, machine) and await said(shop, machine) >= before

        there.node.start()
        await eventually(lambda: not owns(there, machine), WITHIN_S)
        await met(hosts)
        assert (await shop.get(machine.id)).state == "started" and owns(here, machine)
        assert await said(shop, machine) >= before


async def _is(shop: Shop, host: Host, state: str) -> bool:
    try:
        return (await states(shop.client)).get(host.node.node_id) == state
    except HawkerError:
        return False
