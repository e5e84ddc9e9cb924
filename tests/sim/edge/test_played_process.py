"""An edge process that is played: what its daemon tells it is kept for the next one, and who has its sockets."""

import anyio

from hawker.edge.machine_socket import MachineSocket
from hawker.feed import EdgeLogLine, ToWorker
from hawker.ids import AppName
from hawker.proof.edge_checks import EdgeLedger
from hawker.sim.edge.played_host import EdgeKit, PlayedHost
from hawker.sim.edge.played_process import PlayedFlowGate, PlayedFlows, PlayedLink, PlayedMachineSocket
from hawker.sim.edge.wires import Wires
from hawker.sim.harness.loop import LoopClock
from tests.sim.edge.test_wires import in_virtual_time


def test_a_link_says_to_its_daemon_which_process_speaks() -> None:
    heard: list[tuple[ToWorker, int]] = []

    def take(message: ToWorker, link: PlayedLink) -> bool:
        heard.append((message, link.number))
        return True

    line = EdgeLogLine(app=AppName("shop"), code="PR01", text="nobody")
    assert PlayedLink(LoopClock(), take, 3).send(line) and heard == [(line, 3)]


def test_both_ends_of_flows_reach_machines_by_played_sockets() -> None:
    assert PlayedFlows.machine_end is PlayedFlowGate.machine_end is PlayedMachineSocket
    assert issubclass(PlayedMachineSocket, MachineSocket)


def test_doors_for_datagrams_are_those_of_the_processes_that_are_there() -> None:
    async def play(wires: Wires) -> None:
        clock = LoopClock(1)
        ledger = EdgeLedger(clock.monotonic, lambda found: None)
        async with anyio.create_task_group() as tasks:
            host = PlayedHost(1, wires, ledger, clock, tasks, EdgeKit(), lambda machine: None)
            host.processes, host.udp_ports = 2, (53,)
            await host.begin([])
            assert set(wires.datagrams._bound[host.address, 53]) == {0, 1}
            host.end(1)
            assert set(wires.datagrams._bound[host.address, 53]) == {0}
            host.end()
            tasks.cancel_scope.cancel()

    in_virtual_time(play)
