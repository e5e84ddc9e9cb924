"""A played host around a real edge: what its daemon does for it, and what is left when one of the two is gone."""

import anyio

from hawker.ids import AppName, MachineId
from hawker.machine import State
from hawker.proof.edge_checks import EdgeLedger, SentRequest
from hawker.sim.edge.played_client import PlayedClient
from hawker.sim.edge.played_host import GATE_PORT, EdgeKit, PlayedHost
from hawker.sim.edge.played_machine import PlayedMachine
from hawker.sim.edge.wires import Wires
from hawker.sim.harness.loop import LoopClock
from tests.sim.edge.test_wires import in_virtual_time

DOOR = 8001


async def status(wires: Wires, ledger: EdgeLedger, number: int) -> int | None:
    request = SentRequest(id=f"r{number}", app=AppName("shop"), method="GET", sent_at=0.0, patience_s=0.0)
    ledger.sent(request)
    transport, client = await wires.connect(PlayedClient, "10.0.0.1", DOOR)
    transport.write(f"GET /r{number}/1/ok HTTP/1.1\r\nHost: shop.test\r\nConnection: close\r\n\r\n".encode())
    return await client.answer()


def test_a_request_wakes_a_machine_also_by_an_edge_that_was_replaced_and_not_without_a_daemon() -> None:
    async def play(wires: Wires) -> None:
        clock = LoopClock(1)
        ledger = EdgeLedger(clock.monotonic, lambda found: None)
        async with anyio.create_task_group() as tasks:
            host = PlayedHost(1, wires, ledger, clock, tasks, EdgeKit(), lambda machine: None)
            machine = PlayedMachine(
                id=MachineId("m1"), app=AppName("shop"), node=host.id, address="10.1.0.1", public_port=DOOR, network=7
            )
            host.machines[machine.id] = machine
            machine.listen(wires, ledger)
            await host.begin([DOOR])
            await clock.sleep(1)
            assert await status(wires, ledger, 1) == 200
            await host.stop(machine)
            assert machine.state is State.STOPPED
            assert await status(wires, ledger, 2) == 200 and machine.number == 2
            host.end()
            host.away()
            await host.begin([DOOR])
            assert await status(wires, ledger, 3) == 200, "the new edge knows what the old one did"
            host.back()
            await host.stop(machine)
            await clock.sleep(1)
            host.away()
            assert await status(wires, ledger, 4) == 503, "nobody wakes it"
            host.end()
            tasks.cancel_scope.cancel()

    in_virtual_time(play)


def test_requests_reach_the_gate_by_either_of_two_edge_processes_also_after_one_or_their_number_was_replaced() -> None:
    async def play(wires: Wires) -> None:
        clock = LoopClock(1)
        ledger = EdgeLedger(clock.monotonic, lambda found: None)
        async with anyio.create_task_group() as tasks:
            host = PlayedHost(1, wires, ledger, clock, tasks, EdgeKit(), lambda machine: None)
            host.processes = 2
            machine = PlayedMachine(
                id=MachineId("m1"), app=AppName("shop"), node=host.id, address="10.1.0.1", public_port=DOOR, network=7
            )
            host.machines[machine.id] = machine
            machine.listen(wires, ledger)
            await host.begin([DOOR])
            await clock.sleep(1)
            assert [await status(wires, ledger, number) for number in (1, 2)] == [200, 200]
            assert [edge.counters.values.get("hops", 0) for edge in host.edges].count(1) == 1, "one came by a hop"
            gated = host.gate_of(machine.app).port - GATE_PORT
            host.end(gated)
            assert len(host.edges) == 1
            assert [await status(wires, ledger, number) for number in (3, 4)] == [503, 503], "its gate is gone"
            await host.begin([DOOR])
            await clock.sleep(3)
            assert [await status(wires, ledger, number) for number in (5, 6)] == [200, 200]
            host.end()
            host.processes = 1
            await host.begin([DOOR])
            await clock.sleep(1)
            assert len(host.edges) == 1 and host.gate_of(machine.app).port == GATE_PORT
            assert await status(wires, ledger, 7) == 200
            host.end()
            tasks.cancel_scope.cancel()

    in_virtual_time(play)


def test_a_host_without_power_ends_what_ran_and_starts_it_again() -> None:
    async def play(wires: Wires) -> None:
        clock = LoopClock(1)
        ledger = EdgeLedger(clock.monotonic, lambda found: None)
        async with anyio.create_task_group() as tasks:
            host = PlayedHost(1, wires, ledger, clock, tasks, EdgeKit(), lambda machine: None)
            machine = PlayedMachine(
                id=MachineId("m1"), app=AppName("shop"), node=host.id, address="10.1.0.1", public_port=DOOR, network=7
            )
            host.machines[machine.id] = machine
            machine.listen(wires, ledger)
            await host.begin([DOOR])
            host.power_off()
            assert not host.edges and not wires.listens("10.1.0.1", 8080)
            await host.power_on([DOOR])
            await clock.sleep(1)
            assert machine.up and machine.number == 2
            assert await status(wires, ledger, 1) == 200
            host.end()
            tasks.cancel_scope.cancel()

    in_virtual_time(play)
