"""What hosts hear of each other by rows: later, in order, and of other regions less."""

import asyncio

from hawker.ids import AppName, MachineId, NodeId
from hawker.sim.edge.played_catalog import PlayedCatalog
from hawker.sim.edge.played_machine import PlayedMachine
from hawker.sim.harness.loop import LoopClock


def found(catalog: PlayedCatalog, table: str) -> int:
    return len(catalog.rows(f"SELECT node FROM {table}"))


def test_rows_are_read_at_once_here_and_elsewhere_once_they_are_heard() -> None:
    async def play() -> None:
        clock, regions = LoopClock(1), ("mad", "mad", "ams")
        one, near, far = (
            PlayedCatalog(clock, NodeId(f"{number:08x}"), region) for number, region in enumerate(regions)
        )
        machine = PlayedMachine(
            id=MachineId("m1"), app=AppName("shop"), node=one.node, address="10.1.0.1", public_port=80, network=7
        )
        one.say(machine.rows(), [near, far])
        assert found(one, "machines") == 1 and found(near, "machines") == found(far, "served_machines") == 0
        near.hear(one.node)
        far.hear(one.node)
        assert found(near, "machines") == found(near, "services") == found(far, "served_machines") == 1
        assert found(far, "machines") == 0, "they are for their region"
        one.say((), [near, far])
        one.say(machine.rows(), [near])
        far.hear(one.node)
        near.hear(one.node)
        assert found(far, "served_machines") == 0 and found(near, "machines") == 1

    asyncio.run(play())
