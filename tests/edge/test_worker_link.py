"""The edge's end of `edge.sock`: it goes on without the worker, and begins with what was kept."""

import anyio

from hawker.clock import SystemClock
from hawker.edge.worker_link import AWAY, WorkerLink
from hawker.feed import AllMachines, AskReport, AskRoute, CloseMachine, MachineRoute
from hawker.host.own_user import WRITES
from hawker.ids import MachineId
from tests.edge.edge_kit import PlayedHost, route
from tests.ports import free_port
from tests.waiting import eventually


class Heard:
    """Keeps `FeedReader`."""

    def __init__(self) -> None:
        self.machines: list[MachineId] = []

    def whole(self, message: AllMachines) -> None:
        self.machines = [machine.id for machine in message.machines]

    def changed(self, machine: MachineRoute) -> None:
        self.machines.append(machine.id)

    def gone(self, machine_id: MachineId) -> None:
        self.machines.remove(machine_id)

    def close(self, message: CloseMachine) -> None: ...

    def ask(self, message: AskReport) -> None: ...

    def explain(self, message: AskRoute) -> None: ...


async def test_an_edge_process_that_begins_without_a_worker_knows_what_was_told_last(host: PlayedHost) -> None:
    machine = route(free_port(), 1)
    await host.publish(machine)
    kept, heard = host.folder / WRITES / "routes", Heard()
    await eventually(lambda: kept.exists() and machine.id.encode() in kept.read_bytes())
    (host.folder / "edge.sock").unlink()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(WorkerLink(host.folder, SystemClock()).serve, heard)
        await eventually(lambda: heard.machines == [machine.id])
        tasks.cancel_scope.cancel()


async def test_a_wake_without_a_worker_says_so(host: PlayedHost) -> None:
    assert await WorkerLink(host.folder, SystemClock()).wake(MachineId("1"), rested=False) == AWAY
