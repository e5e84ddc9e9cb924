"""Clients of UDP before a played host: what they send is answered, and what should have been is told."""

import anyio
import pytest

from hawker.ids import AppName, MachineId
from hawker.machine import State
from hawker.proof.edge_checks import EdgeLedger
from hawker.proof.violation import Invariant, Violation
from hawker.sim.edge.flow_clients import FlowClients
from hawker.sim.edge.played_apps import DATAGRAM_PORTS
from hawker.sim.edge.played_host import EdgeKit, PlayedHost, left_in
from hawker.sim.edge.played_machine import PlayedMachine
from hawker.sim.edge.wires import Wires
from hawker.sim.harness.loop import LoopClock
from tests.sim.edge.test_wires import in_virtual_time


@pytest.mark.parametrize("listens", [True, False])
def test_datagrams_reach_a_machine_through_the_edge_and_are_missed_where_nobody_listens(listens: bool) -> None:
    async def play(wires: Wires) -> None:
        clock, found, said = LoopClock(1), list[Violation](), list[str]()
        ledger = EdgeLedger(clock.monotonic, found.append)
        async with anyio.create_task_group() as tasks:
            host = PlayedHost(1, wires, ledger, clock, tasks, EdgeKit(), lambda machine: None)
            machine = PlayedMachine(
                id=MachineId("m1"),
                app=AppName("talk"),
                node=host.id,
                address="10.1.0.1",
                public_port=DATAGRAM_PORTS["talk"],
                network=7,
                udp=True,
            )
            host.machines[machine.id], host.udp_ports = machine, (DATAGRAM_PORTS["talk"],)
            if listens:
                machine.listen(wires, ledger)
            await host.begin([])
            await clock.sleep(1)
            clients = FlowClients([host], wires, ledger.flows, clock, [], [], lambda app: False, said.append)
            await clients.send(host, "talk", 3, 0.5)
            assert said == [f"f1 talk by {host.id}: {3 if listens else 0} of 3"]
            assert {each.invariant for each in found} == (set() if listens else {Invariant.SERVED})
            assert len(list(left_in(host))) == 2, "the flow lasts, and is counted in the machine"
            if listens:
                await host.stop(machine)
                assert machine.state is State.STOPPED, "a flow holds up no stop"
            await clients.end()
            await clock.sleep(2)
            assert list(left_in(host)) == []
            host.end()
            tasks.cancel_scope.cancel()

    in_virtual_time(play)
