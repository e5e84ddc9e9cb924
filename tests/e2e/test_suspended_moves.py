"""Suspended microVMs between two real nodes, under QEMU: deaths of the node that takes a memory in, and the commands
that empty a node. That one moves is in test_moves.py."""

import os
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import anyio.to_thread
import pytest

from hawker.api.contract.cluster import UNCORDON_NODE, NodeParams
from hawker.api.contract.machine import Machine
from hawker.api.contract.machine_operation import SUSPEND_MACHINE
from hawker.api.contract.move import LIST_MOVES, ListMovesQuery
from hawker.chaos.guests import bring_kernels
from hawker.errors import HawkerError
from tests.e2e.command_line import CommandLine, Done
from tests.e2e.shop import Shop
from tests.e2e.test_fleet_join import WITHIN_S, Host
from tests.e2e.test_moves import TOKEN, begun, ended, moved, owns, said, with_ledger, written
from tests.e2e.two_hosts import met, two_hosts
from tests.kernel import kernels
from tests.microvm import lack_of_qemu
from tests.waiting import eventually

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.long(
        reason="emulated machines boot and are resumed; tests/worker/moves/test_arrive.py has the deaths between "
        "played nodes, tests/cli/test_draining.py the commands"
    ),
    pytest.mark.timeout(3600),  # seven deaths of emulated machines' nodes: ten minutes, and more on a busy host
]

ARRIVAL = (
    "arrive.network.before",
    "arrive.rootfs.after",
    "arrive.volume.after",
    "arrive.take_in.before",
    "arrive.take_in.placed",
    "arrive.take_in.taken_in",
    "arrive.take_in.after",
)

ON_DISK, IN_MEMORY = "/data/mark", "/dev/mark"


class Away:
    """A suspended microVM that counts in its memory, and the two hosts between which it goes."""

    def __init__(self, hosts: tuple[Host, Host], shop: Shop, machine: Machine) -> None:
        self.hosts = hosts
        self.shop = shop
        self.machine = machine

    def ends(self) -> tuple[Host, Host]:
        first, second = self.hosts
        return (first, second) if owns(first, self.machine) else (second, first)

    async def suspend(self) -> None:
        await self.shop.client.call(SUSPEND_MACHINE, params=self.shop.params(self.machine.id))
        await self.shop.wait(self.machine.id, "suspended")

    async def is_suspended(self) -> bool:
        try:
            return (await self.shop.get(self.machine.id)).state == "suspended"
        except HawkerError:
            return False

    async def goes_on(self) -> None:
        """With all that it had in its memory, and nothing that it wrote lost or written twice."""
        await self.shop.start(self.machine.id)
        await self.shop.wait(self.machine.id, "started")
        assert (await self.shop.said(self.machine.id, "cat", "/dev/token")).strip() == "memory"
        there = await said(self.shop, self.machine)
        await eventually(lambda: self._has_said(there + 1), WITHIN_S)
        numbers = [int(line) for line in (await self.shop.said(self.machine.id, "cat", "/data/ledger")).split()]
        assert numbers == list(range(1, len(numbers) + 1)), "a program that begins anew counts from 1 again"

    async def _has_said(self, number: int) -> bool:
        return await said(self.shop, self.machine) >= number


@pytest.fixture
async def away(tmp_path: Path, toolbox_image: str) -> AsyncIterator[Away]:
    if reason := lack_of_qemu():
        pytest.skip(reason)
    flags = (("--driver", "qemu"),) * 2
    with two_hosts(tmp_path, flags, lambda host: bring_kernels(host.node.place, kernels())) as hosts:
        await met(hosts)
        async with hosts[0].node.client() as client:
            shop = Shop(client, "moves")
            await shop.open()
            found = Away(hosts, shop, await with_ledger(shop, toolbox_image, memory_mb=256, program=TOKEN))
            marked = await shop.shell(
                found.machine.id, f"echo here | dd of={ON_DISK} conv=fsync && echo here > {IN_MEMORY}"
            )
            assert marked.exit_code == 0, marked
            await found.suspend()
            yield found


async def test_memory_arrives_whoever_dies_while_it_is_taken_in(away: Away) -> None:
    for place in ARRIVAL:
        await _dies(away.hosts, away.machine, place)
    async with away.hosts[0].node.client() as client:
        await Away(away.hosts, Shop(client, "moves"), away.machine).goes_on()


async def _dies(hosts: tuple[Host, Host], machine: Machine, place: str) -> None:
    """The node that takes it in, at that place."""
    source, to = hosts if owns(hosts[0], machine) else (hosts[1], hosts[0])
    to.node.kill()
    _boot(to, place)
    await met(hosts)
    async with source.node.client() as client:
        shop = Shop(client, "moves")
        move = await begun(shop, machine, to.node.node_id)
        assert await anyio.to_thread.run_sync(to.node.ended) == -9, place
        _boot(to)
        done = await ended(shop, move.id)
        assert done.state == "done", (place, done.reason)
        await met(hosts)
        away = Away(hosts, shop, machine)
        await eventually(away.is_suspended, WITHIN_S)
        assert away.ends()[0] is to, place


def _boot(host: Host, failpoint: str | None = None) -> None:
    host.node.launch("--advertise", host.address, "--peer-port", str(host.port), failpoint=failpoint).wait_ready()


async def test_commands_that_empty_a_node_take_a_suspended_machine_along_with_its_memory(away: Away) -> None:
    """A drain to the other node, and an evacuation back."""
    shop = away.shop
    for command in ("drain", "evacuate"):
        source, to = away.ends()
        params = NodeParams(node_id=to.node.node_id)
        await shop.client.call(UNCORDON_NODE, params=params)
        line = CommandLine(source.node.environment | {"HAWKER_DATA_DIR": str(source.node.data_dir)})
        done: Done = await anyio.to_thread.run_sync(partial(line, "node", command, source.node.node_id))
        print(done.out)
        assert done.status == 0, done
        assert away.ends() == (to, source), done.out
        await eventually(away.is_suspended, WITHIN_S)
    moves = (await shop.client.call(LIST_MOVES, query=ListMovesQuery(app=shop.app))).moves
    assert [(move.state, move.mode) for move in moves] == [("done", "cold")] * 2, moves
    await away.goes_on()


async def test_machine_whose_memory_is_torn_at_its_new_node_starts_cold_from_its_disks_and_says_so(away: Away) -> None:
    shop, machine = away.shop, away.machine
    _, to = away.ends()
    move = await moved(shop, machine, to.node.node_id)
    assert (move.state, move.mode) == ("done", "cold"), move.reason
    await eventually(away.is_suspended, WITHIN_S)
    memory = to.node.data_dir / "machines" / machine.id / "run" / "vmm" / "snapshot" / "memory"
    os.truncate(memory, memory.stat().st_size // 2)
    await shop.start(machine.id)
    await shop.wait(machine.id, "started")

    async def says_so() -> bool:
        errors = [event.error or "" for event in await shop.events(machine.id)]
        return any("is started cold: its disks are as they were, its memory is lost" in error for error in errors)

    await eventually(says_so, WITHIN_S)
    await eventually(lambda: written(shop, machine, ON_DISK), WITHIN_S)
    assert (await shop.said(machine.id, "cat", ON_DISK)).strip() == "here"
    assert (await shop.shell(machine.id, f"test -e {IN_MEMORY}")).exit_code == 1, "it was resumed"
