import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from hawker.chaos.chance import SeededChance
from hawker.chaos.endings import ToldExits, kill, pilot_of, workload_of
from hawker.ids import EventId, MachineId
from hawker.record import views
from hawker.record.machine import EVENTS, Detail, EventRecord, Network
from hawker.runtime.driver import Exit
from hawker.runtime.pilot.channel import pilot_files
from hawker.runtime.pilot.rundir import RunDir
from hawker.store.contract import Tx
from hawker.store.memory_store import MemoryStore
from tests.waiting import eventually, wait_for
from tests.worker.machines import machine

pytestmark = pytest.mark.anyio
MACHINE = MachineId("00000000000001")
BODY = views.machine(machine(MACHINE, network=Network(private_ip="::1", network_id=1)), [], ())
_PARENT = "import subprocess, sys; subprocess.Popen(['sleep', '60']).wait(); sys.stdin.read()"


@pytest.fixture
def parent(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A process with one child, in the place of a pilot with its workload."""
    run = RunDir(tmp_path / MACHINE / "run")
    run.path.mkdir(parents=True)
    with pilot_files(run) as fds:
        command = [sys.executable, "-c", _PARENT]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=fds)
    run.write_pid(process.pid)
    with process:
        yield process
        process.kill()


def ended(code: int, number: int) -> EventRecord:
    detail = Detail(exit=Exit(exit_code=code, exited_at=1.0))
    return EventRecord(id=EventId(f"E{number}"), type="exit", status="stopped", source="flyd", at=1.0, detail=detail)


async def recorded(*codes: int) -> MemoryStore:
    store = MemoryStore()
    for number, code in enumerate(codes):
        event = ended(code, number)
        await store.write(partial(put, event=event))
    return store


def put(tx: Tx, event: EventRecord) -> None:
    tx.put(EVENTS, f"{MACHINE}/{event.id}", event)


async def test_a_workload_is_ended_with_a_code_that_must_be_recorded(
    tmp_path: Path, parent: "subprocess.Popen[bytes]"
) -> None:
    wait_for(lambda: workload_of(parent.pid))
    endings = ToldExits(tmp_path, SeededChance(1), networked=False)
    assert await endings.end(BODY)
    wait_for(lambda: workload_of(parent.pid) is None)
    (missing,) = endings.unrecorded(await recorded(0))
    assert MACHINE in missing
    code = int(missing.split(" ended with ")[1].split()[0])
    assert code > 128 and endings.unrecorded(await recorded(0, code)) == []


async def test_exit_that_only_a_hurt_pilot_knew_is_not_asked_for(
    tmp_path: Path, parent: "subprocess.Popen[bytes]"
) -> None:
    wait_for(lambda: workload_of(parent.pid))
    endings = ToldExits(tmp_path, SeededChance(1), networked=False)
    assert await endings.end(BODY)
    endings.spoilt.add(MACHINE)
    assert endings.unrecorded(await recorded(0)) == []


async def test_fault_that_kills_a_workload_told_to_end_takes_the_blame(
    tmp_path: Path, parent: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hawker.chaos.endings._MOMENT_S", 60.0)
    wait_for(lambda: workload_of(parent.pid))
    endings = ToldExits(tmp_path, SeededChance(1), networked=False)
    assert await endings.end(BODY)
    endings.interfere(MACHINE)
    endings.interfere(MACHINE)
    assert endings.unrecorded(await recorded(0)) == []


async def test_no_workload_is_there_to_be_ended(tmp_path: Path) -> None:
    for networked in (True, False):
        endings = ToldExits(tmp_path, SeededChance(1), networked=networked)
        assert not await endings.end(BODY)
        assert endings.unrecorded(MemoryStore()) == []


def test_a_pilot_is_found_by_its_lock_and_is_gone_with_it(tmp_path: Path, parent: "subprocess.Popen[bytes]") -> None:
    assert pilot_of(tmp_path, MACHINE) == parent.pid
    assert kill(parent.pid, signal.SIGKILL)
    parent.wait()
    wait_for(lambda: pilot_of(tmp_path, MACHINE) is None)  # a child that it just began has the lock till it is executed
    assert not kill(parent.pid, signal.SIGKILL)


async def test_workloads_that_are_told_at_once_each_have_their_own_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hawker.chaos.endings._ANSWER_S", 60.0)
    asked: list[int] = []

    async def answer(stream: SocketStream) -> None:
        async with stream:
            asked.append(int((await stream.receive()).split(b"/exit/")[1].split()[0]))
            await eventually(lambda: len(asked) == 2)
            await stream.send(b"HTTP/1.1 200 OK\r\n\r\nbye\n")

    async with await anyio.create_tcp_listener(local_host="::1") as listener, anyio.create_task_group() as tasks:
        endings = ToldExits(tmp_path, SeededChance(1), networked=True, port=listener.extra(SocketAttribute.local_port))
        tasks.start_soon(listener.serve, answer)
        async with anyio.create_task_group() as both:
            both.start_soon(endings.end, BODY)
            both.start_soon(endings.end, BODY)
        tasks.cancel_scope.cancel()
    assert sorted(asked) == [1, 2] and endings.unrecorded(await recorded(1, 2)) == []
    assert len(endings.unrecorded(await recorded(1))) == len(endings.unrecorded(await recorded(2))) == 1
