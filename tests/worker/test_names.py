"""What the resolver is told, and how a machine waits for it."""

from pathlib import Path

import anyio
import pytest

from hawker.host.process_guard import ProcessGuard
from hawker.ids import MachineId, NodeId
from hawker.names import BOUND, NamedApp, NamedMachine, is_kept, read_names
from hawker.sim.harness.loop import LoopClock
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.worker.names import NameBook, ResolverWait
from tests.simulated_worker import anyio_backend, stall, worker

__all__ = ["anyio_backend", "stall", "worker"]
pytestmark = pytest.mark.anyio


def book(worker: SimWorker, folder: Path) -> NameBook:
    deps = worker.parts.deps
    return NameBook(folder, deps.store, worker.parts.changes, deps.clock, worker.parts.node, ("192.0.2.53",))


async def test_records_are_names_and_what_others_have_is_beside_them(worker: SimWorker, tmp_path: Path) -> None:
    machine_id = await worker.started(
        metadata={"fly_process_group": "web", "no_name": "x" * 64},
        dns={"skip_registration": True, "nameservers": ["192.0.2.1"]},
    )
    off = await worker.stopped()
    told = book(worker, tmp_path)
    known = told.known()
    by_id = {each.id: each for each in known.machines}
    assert (by_id[MachineId(machine_id)].started, by_id[MachineId(off)].started) == (True, False)
    assert by_id[MachineId(machine_id)].group == "web" and not by_id[MachineId(machine_id)].listed
    assert APP in {each.name for each in known.apps} and known.upstream == ("192.0.2.53",)
    own = by_id[MachineId(machine_id)]
    assert own.metadata == {"fly_process_group": "web"}, "pairs without names are left out"
    assert own.name == worker.record(machine_id).name != ""
    assert told.networks() == {worker.record(machine_id).network.network_id}
    other = NamedMachine(
        id=MachineId("00000000000077"), app=own.app, ip=own.ip, node=NodeId("0000000b"), region="iad", started=True
    )
    lie = NamedMachine(id=own.id, app=own.app, ip=own.ip, node=NodeId("0000000b"), region="iad", started=False)
    told.tell_others([NamedApp(name=own.app, network_id=known.apps[0].network_id)], [other, lie])
    machines = told.known().machines
    assert other in machines and lie not in machines and len(told.known().apps) == len(known.apps)


async def test_the_resolver_is_told_whether_machines_reach_the_api(worker: SimWorker, tmp_path: Path) -> None:
    deps = worker.parts.deps
    open_to_all = NameBook(tmp_path, deps.store, worker.parts.changes, deps.clock, worker.parts.node, api=True)
    assert open_to_all.known().api and not book(worker, tmp_path).known().api


async def test_the_file_follows_the_records_while_it_is_kept(worker: SimWorker, tmp_path: Path) -> None:
    clock, told = worker.parts.deps.clock, book(worker, tmp_path)

    class NoProgram(ProcessGuard):
        async def serve(self) -> None:
            await anyio.sleep_forever()

    guard = NoProgram(tmp_path, tmp_path, clock, "dns")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(told.serve, guard)
        await clock.sleep(1)
        assert read_names(tmp_path) is None and not is_kept(tmp_path), "no machine needs it"
        machine_id = await worker.started()
        await clock.sleep(1)
        known = read_names(tmp_path)
        assert known is not None and [each.id for each in known.machines if each.started] == [machine_id]
        assert is_kept(tmp_path)
        await worker.destroy(machine_id, force=True)
        await clock.sleep(1)
        known = read_names(tmp_path)
        assert known is not None and known.machines == ()
        tasks.cancel_scope.cancel()
    assert not is_kept(tmp_path), "the daemon is away"


async def test_names_are_told_soon_also_where_others_held_up_a_write(worker: SimWorker, tmp_path: Path) -> None:
    class Held(LoopClock):
        """Each write takes a second."""

        looks = 0

        def monotonic(self) -> float:
            self.looks += 1
            return super().monotonic() + self.looks

    clock, deps = Held(), worker.parts.deps
    told = NameBook(tmp_path, deps.store, worker.parts.changes, clock, worker.parts.node)
    first = await worker.started()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(told._keep)
        told._note(MachineId(first))
        await clock.sleep(3)
        second = await worker.started()
        await clock.sleep(3)
        known = read_names(tmp_path)
        assert known is not None and {each.id for each in known.machines} == {first, second}
        tasks.cancel_scope.cancel()


async def test_a_machine_waits_for_the_resolver_and_starts_without_it_in_the_end(
    worker: SimWorker, tmp_path: Path
) -> None:
    clock = worker.parts.deps.clock
    wait, began = ResolverWait(tmp_path, clock), clock.monotonic()
    await wait("hw0000nabcdefg")
    assert clock.monotonic() - began >= 5
    began = clock.monotonic()
    await wait("hw0000nabcdefg")
    assert clock.monotonic() == began, "once was enough"
    (tmp_path / BOUND).write_text("hw0000nabcdefg\n")
    await wait("hw0000nabcdefg")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait, "hw0000nhijklmn")
        await clock.sleep(1)
        (tmp_path / BOUND).write_text("hw0000nabcdefg\nhw0000nhijklmn\n")
    assert clock.monotonic() - began < 2
