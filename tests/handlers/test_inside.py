from contextlib import AsyncExitStack
from functools import partial

import anyio
import pytest

from hawker.api.contract.exec import (
    EXEC_MACHINE,
    LIST_PROCESSES,
    MACHINE_ATTACH,
    MACHINE_COPY,
    MACHINE_LOGS,
    MACHINE_TERMINAL,
    AttachRequest,
    ExecAnswer,
    ExecRequest,
    Exited,
    Input,
    InputEnd,
    LogsQuery,
    Output,
    ProcessesQuery,
    Resize,
    SendSignal,
    TerminalRequest,
)
from hawker.api.contract.machine import SignalRequest
from hawker.api.contract.machine_operation import CREATE_LEASE, SIGNAL_MACHINE
from hawker.api.contract.node import LogChunk
from hawker.errors import BadRequest, DeadlineExceeded, LeaseHeld, NotFound, OverShare, WrongState
from hawker.fair.table import EXECS_OF_MACHINE, FOLLOWERS_OF_MACHINE
from hawker.handlers.inside import joined
from hawker.ids import MachineId
from hawker.machine import State
from hawker.runtime.driver import OutputChunk
from hawker.sim.node.sim_worker import SimWorker, params
from hawker.sim.node.world import MemoryWorld

pytestmark = pytest.mark.anyio


async def _exec(
    worker: SimWorker, machine_id: str, *command: str, nonce: str | None = None, **body: object
) -> ExecAnswer:
    request = ExecRequest(command=command or None, **body)  # type: ignore[arg-type]
    return await worker.api.call(EXEC_MACHINE, params=params(machine_id), body=request, nonce=nonce)


async def _logs(worker: SimWorker, machine_id: str, **query: object) -> list[LogChunk]:
    wanted = LogsQuery(**query)  # type: ignore[arg-type]
    async with worker.api.stream(MACHINE_LOGS, params=params(machine_id), query=wanted) as chunks:
        return [chunk async for chunk in chunks]


async def test_exec_answers_with_output_and_exit_code(worker: SimWorker) -> None:
    machine_id = await worker.started()
    answer = await _exec(worker, machine_id, "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (answer.stdout, answer.stderr, answer.exit_code, answer.exit_signal) == ("out\n", "err\n", 3, 0)


async def test_exec_takes_a_string_and_input(worker: SimWorker) -> None:
    machine_id = await worker.started()
    assert (await _exec(worker, machine_id, cmd="echo 'a  b'")).stdout == "a  b\n"
    assert (await _exec(worker, machine_id, "cat", stdin="hello")).stdout == "hello"


async def test_exec_of_what_does_not_exist_says_so(worker: SimWorker) -> None:
    machine_id = await worker.started()
    answer = await _exec(worker, machine_id, "/nope")
    assert answer.exit_code == 127 and "no such file" in answer.stderr


async def test_a_command_that_does_not_end_in_time_is_ended(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    before = stall.clock.now()
    with pytest.raises(DeadlineExceeded, match="did not end within 5 s"):
        await _exec(worker, machine_id, "serve", timeout=5)
    assert stall.clock.now() - before == pytest.approx(5, abs=0.1)


@pytest.mark.parametrize("body", [{}, {"cmd": ""}, {"cmd": "echo 'open"}])
async def test_an_unreadable_command_is_refused(worker: SimWorker, body: dict[str, str]) -> None:
    machine_id = await worker.started()
    with pytest.raises(BadRequest):
        await _exec(worker, machine_id, **body)


async def test_exec_needs_a_running_machine_and_its_lease(worker: SimWorker) -> None:
    machine_id = await worker.started()
    lease = await worker.api.call(CREATE_LEASE, params=params(machine_id))
    with pytest.raises(LeaseHeld):
        await _exec(worker, machine_id, "true")
    await _exec(worker, machine_id, "true", nonce=lease.nonce)
    await worker.stop(machine_id, nonce=lease.nonce)
    await worker.reaches(machine_id, State.STOPPED)
    with pytest.raises(WrongState, match="unable to exec machine from current state: 'stopped'"):
        await _exec(worker, machine_id, "true", nonce=lease.nonce)


async def test_processes_are_listed_sorted_as_asked(worker: SimWorker) -> None:
    machine_id = await worker.started(processes=[{"exec": ["web"]}, {"exec": ["job", "now"]}])
    query = ProcessesQuery(sort_by="command", order="asc")
    found = await worker.api.call(LIST_PROCESSES, params=params(machine_id), query=query)
    assert [process.command for process in found] == ["job now", "web"]


async def test_logs_are_what_was_written_and_the_last_lines_of_it(worker: SimWorker) -> None:
    machine_id = await worker.started(init={"exec": ["sh", "-c", "echo one; echo two; serve"]})
    chunks = await _logs(worker, machine_id)
    assert b"".join(chunk.data for chunk in chunks) == b"one\ntwo\n"
    assert b"".join(chunk.data for chunk in await _logs(worker, machine_id, tail=1)) == b"two\n"
    assert await _logs(worker, machine_id, after=chunks[-1].position) == []


async def test_logs_of_a_machine_that_does_not_exist_are_not_found(worker: SimWorker) -> None:
    with pytest.raises(NotFound):
        await _logs(worker, "00000000000000")


async def test_followed_logs_go_on_over_a_restart_until_the_machine_is_gone(worker: SimWorker) -> None:
    machine_id = await worker.started(init={"exec": ["sh", "-c", "echo one; echo two; serve"]})
    seen: list[bytes] = []
    done = anyio.Event()

    async def follow() -> None:
        seen.extend(chunk.data for chunk in await _logs(worker, machine_id, follow=True))
        done.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow)
        await worker.parts.deps.clock.sleep(1)
        await worker.restart(machine_id)
        await worker.reaches(machine_id, State.STARTED)
        await worker.parts.deps.clock.sleep(1)
        assert not done.is_set()
        await worker.destroy(machine_id, force=True)
    assert b"".join(seen) == b"one\ntwo\n" * 2


async def test_a_terminal_passes_input_output_and_the_exit_on(worker: SimWorker) -> None:
    machine_id = await worker.started()
    opening = TerminalRequest(command=("cat",), tty=True)
    async with worker.api.socket(MACHINE_TERMINAL, opening, params=params(machine_id)) as terminal:
        await terminal.send(Resize(rows=50, cols=100))
        await terminal.send(Input(data=b"hello"))
        await terminal.send(InputEnd())
        assert await terminal.receive() == Output(stream=1, data=b"hello")
        assert await terminal.receive() == Exited(exit_code=0, signal=0)
        assert await terminal.receive() is None


async def test_a_terminal_and_a_signal_ask_for_no_lease(worker: SimWorker) -> None:
    machine_id = await worker.started()
    await worker.lease(machine_id, 60)
    opening = TerminalRequest(command=("true",))
    async with worker.api.socket(MACHINE_TERMINAL, opening, params=params(machine_id)) as terminal:
        assert await terminal.receive() == Exited(exit_code=0, signal=0)
    await worker.api.call(SIGNAL_MACHINE, params=params(machine_id), body=SignalRequest(signal="HUP"))
    for route in (SIGNAL_MACHINE, MACHINE_TERMINAL, MACHINE_ATTACH, MACHINE_COPY):
        assert route.summary.endswith("whoever holds its lease") and LeaseHeld not in route.errors


async def test_a_signal_ends_the_command(worker: SimWorker) -> None:
    machine_id = await worker.started()
    opening = TerminalRequest(command=("serve",))
    async with worker.api.socket(MACHINE_TERMINAL, opening, params=params(machine_id)) as terminal:
        await terminal.send(SendSignal(signal="TERM"))
        assert await terminal.receive() == Exited(exit_code=143, signal=15)


async def test_a_signal_that_does_not_exist_is_told_as_such(worker: SimWorker) -> None:
    machine_id = await worker.started()
    opening = TerminalRequest(command=("serve",))
    async with worker.api.socket(MACHINE_TERMINAL, opening, params=params(machine_id)) as terminal:
        await terminal.send(SendSignal(signal="NOPE"))
        with pytest.raises(BadRequest, match="signal"):
            await terminal.receive()


async def test_the_command_ends_when_its_client_goes(worker: SimWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    machine_id = await worker.started()
    driver, sessions = worker.parts.deps.driver, []
    begin = driver.exec

    async def remembered(machine: MachineId, spec: object) -> object:
        sessions.append(await begin(machine, spec))  # type: ignore[arg-type]
        return sessions[-1]

    monkeypatch.setattr(driver, "exec", remembered)
    opening = TerminalRequest(command=("serve",))
    async with worker.api.socket(MACHINE_TERMINAL, opening, params=params(machine_id)):
        await worker.parts.deps.clock.sleep(1)
    with anyio.fail_after(1):
        assert (await sessions[0].wait()).signal == 1


async def test_a_terminal_needs_a_command_and_a_running_machine(worker: SimWorker) -> None:
    machine_id = await worker.started()
    async with worker.api.socket(MACHINE_TERMINAL, TerminalRequest(command=()), params=params(machine_id)) as terminal:
        with pytest.raises(BadRequest, match="command is empty"):
            await terminal.receive()
    off = await worker.stopped()
    async with worker.api.socket(MACHINE_TERMINAL, TerminalRequest(command=("sh",)), params=params(off)) as terminal:
        with pytest.raises(WrongState):
            await terminal.receive()


# Machines of several containers.

CONTAINERS = [
    {"name": "web", "image": "hawker/hello", "exec": ["sh", "-c", "echo I am $ME; serve"], "env": {"ME": "web"}},
    {"name": "db", "image": "hawker/hello", "exec": ["sh", "-c", "echo I am $ME; serve"], "env": {"ME": "db"}},
]


async def test_a_command_runs_in_the_container_that_is_named(worker: SimWorker) -> None:
    machine_id = await worker.started(containers=CONTAINERS)
    assert (await _exec(worker, machine_id, "sh", "-c", "echo $ME", container="db")).stdout == "db\n"
    assert (await _exec(worker, machine_id, "sh", "-c", "echo $ME")).stdout == "web\n"
    with pytest.raises(BadRequest, match="no container 'nope'"):
        await _exec(worker, machine_id, "true", container="nope")


async def test_output_and_processes_say_their_container(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(containers=CONTAINERS)
    await stall.clock.sleep(0.1)
    assert [(chunk.container, chunk.data) for chunk in await _logs(worker, machine_id)] == [
        ("web", b"I am web\n"),
        ("db", b"I am db\n"),
    ]
    found = await worker.api.call(LIST_PROCESSES, params=params(machine_id), query=ProcessesQuery())
    assert [process.container for process in found] == ["web", "db"]


async def test_a_terminal_is_opened_in_the_container_that_is_named(worker: SimWorker) -> None:
    machine_id = await worker.started(containers=CONTAINERS)
    request = TerminalRequest(command=("sh", "-c", "echo $ME"), container="db")
    async with worker.api.socket(MACHINE_TERMINAL, request, params=params(machine_id)) as channel:
        assert await channel.receive() == Output(stream=1, data=b"db\n")


async def test_commands_in_one_machine_are_bounded(worker: SimWorker, stall: MemoryWorld) -> None:
    """Ways into it are left for its stop."""
    machine_id, other = await worker.started(), await worker.started()
    opening = TerminalRequest(command=("serve",))
    async with AsyncExitStack() as terminals:
        for _ in range(EXECS_OF_MACHINE.each):
            await terminals.enter_async_context(worker.api.socket(MACHINE_TERMINAL, opening, params=params(machine_id)))
        await stall.clock.sleep(1)
        with pytest.raises(OverShare, match="commands and terminals in a machine"):
            await _exec(worker, machine_id, "true")
        async with worker.api.socket(MACHINE_ATTACH, AttachRequest(), params=params(machine_id)) as attached:
            with pytest.raises(OverShare, match="commands and terminals in a machine"):
                await attached.receive()
        assert (await _exec(worker, other, "true")).exit_code == 0
    assert (await _exec(worker, machine_id, "true")).exit_code == 0  # there is room again


async def test_followers_of_one_machine_and_of_one_app_are_bounded(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    async with anyio.create_task_group() as tasks:
        for _ in range(FOLLOWERS_OF_MACHINE.each):
            tasks.start_soon(partial(_logs, worker, machine_id, follow=True))
        await stall.clock.sleep(1)
        with pytest.raises(OverShare, match="followers of a machine's log"):
            await _logs(worker, machine_id, follow=True)
        await _logs(worker, machine_id)
        tasks.cancel_scope.cancel()
    async with worker.api.stream(
        MACHINE_LOGS, params=params(machine_id), query=LogsQuery(follow=True)
    ):  # there is room again
        pass


def test_records_of_one_millisecond_are_one() -> None:
    def chunk(position: int, at: float, data: bytes, stream: int = 1) -> OutputChunk:
        return OutputChunk(position=position, at=at, stream=stream, process=0, data=data)

    written = [chunk(n, n / 1e5, b"x") for n in range(1000)]
    found = joined(written)
    assert b"".join(each.data for each in found) == b"x" * 1000 and len(found) <= 12
    assert found[-1].position == 999
    apart = [chunk(0, 0.0, b"a"), chunk(1, 0.0, b"b", stream=2), chunk(2, 0.0, b"c"), chunk(3, 0.5, b"d")]
    assert joined(apart) == apart and joined([]) == []
    assert [len(each.data) for each in joined([chunk(n, 0.0, b"y" * 10_000) for n in range(3)])] == [10_000] * 3
