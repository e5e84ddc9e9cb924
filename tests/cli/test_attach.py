import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from hawker.api.contract.machine import MachineParams, WaitAnswer
from hawker.api.contract.node import LogChunk
from hawker.api.failure import lost, unreachable
from hawker.api.in_process import InProcessCaller
from hawker.api.route import Call
from hawker.cli.attach import destroy, stay, to_its_end
from hawker.cli.exits import ExitStatus, Failure
from hawker.clock import ManualClock
from hawker.errors import DeadlineExceeded, HawkerError, NotFound, Unavailable
from hawker.machine import State
from tests.cli.fake_node import LAUNCHED, STARTED, FakeNode, chunk, exit_event, machine
from tests.waiting import LONG_S, eventually

pytestmark = pytest.mark.anyio

PARAMS = MachineParams(app_name="shop", machine_id="3d8f0000000001")
CHUNKS = (chunk(0, b"out\n"), chunk(1, b"\xff\n", stream=2), chunk(2, b"last\n"))


def node_with(state: State, *events: object) -> FakeNode:
    node = FakeNode()
    node.add("shop", machine(state=state, events=events))
    node.chunks = CHUNKS
    return node


def caller(node: FakeNode) -> InProcessCaller:
    return InProcessCaller(node.handlers(), ManualClock(), "tester")


@pytest.mark.parametrize("state", [State.STOPPED, State.DESTROYED])
async def test_the_status_is_the_workloads_own(state: State, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    node = node_with(state, exit_event(3), STARTED, LAUNCHED)
    assert await stay(caller(node), PARAMS, "01V1", ManualClock()) == 3
    assert capfdbinary.readouterr().out == b"out\nlast\n"


@pytest.mark.parametrize("events", [(LAUNCHED,), (exit_event(127, reason="no such file"), LAUNCHED)])
async def test_a_workload_that_never_ran_has_no_status(events: tuple[object, ...]) -> None:
    with pytest.raises(Failure) as caught:
        await stay(caller(node_with(State.STOPPED, *events)), PARAMS, "01V1", ManualClock())
    assert caught.value.status == ExitStatus.NOT_RUN


async def test_a_machine_is_destroyed_whatever_its_state_unless_it_is_gone() -> None:
    node = node_with(State.STARTED)
    await destroy(caller(node), PARAMS, ManualClock())
    assert node.apps["shop"][PARAMS.machine_id].state is State.DESTROYED
    assert "wait_machine" in node.calls, "it returns when the machine is gone"
    node.failures["delete_machine"] = NotFound("machine not found")
    await destroy(caller(node), PARAMS, ManualClock())


async def test_ctrl_c_stops_the_machine_and_waits_for_its_end() -> None:
    node = node_with(State.STARTED, STARTED, LAUNCHED)
    node.patience_s = 30.0
    statuses: list[int] = []

    async def attached() -> None:
        statuses.append(await stay(caller(node), PARAMS, "01V1", ManualClock()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(attached)
        await eventually(lambda: signal.getsignal(signal.SIGINT) is not signal.default_int_handler and node.calls)
        os.kill(os.getpid(), signal.SIGINT)
    assert statuses == [0]
    assert "stop_machine" in node.calls


URL = "http://127.0.0.1:4280"
LOST = lost(URL, ConnectionResetError("it was closed"))


class Restarted(FakeNode):
    """A node whose daemon is killed after the first line of output, and is up again a moment later."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[HawkerError] = [LOST, unreachable(URL), unreachable(URL)]

    async def _wait_machine(self, call: Call[Any, Any, Any]) -> WaitAnswer:
        if self.errors:
            raise self.errors.pop(0)
        return await super()._wait_machine(call)

    async def _log_chunks(self, after: int, follow: bool) -> AsyncIterator[LogChunk]:
        async for each in super()._log_chunks(after, follow):
            yield each
            if self.errors:
                raise LOST


async def test_a_node_that_restarts_is_waited_for(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    node = Restarted()
    node.add("shop", machine(state=State.STOPPED, events=(exit_event(3), STARTED, LAUNCHED)))
    node.chunks = CHUNKS
    with anyio.fail_after(LONG_S):
        assert await stay(caller(node), PARAMS, "01V1", ManualClock()) == 3
    out, err = capfdbinary.readouterr()
    assert out == b"out\nlast\n" and b"waiting for it to come back" in err
    assert node.errors == []


class Slow(FakeNode):
    """A machine that runs for as many days as there are waits."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock, self._days = clock, 3

    async def _wait_machine(self, call: Call[Any, Any, Any]) -> WaitAnswer:
        if self._days:
            self._days -= 1
            self._clock.advance(86_400.0)
            raise DeadlineExceeded("machine failed to reach desired state, currently started")
        return await super()._wait_machine(call)


async def test_a_workload_may_take_days() -> None:
    clock = ManualClock()
    node = Slow(clock)
    node.add("shop", machine(state=State.STOPPED, events=(exit_event(3), STARTED, LAUNCHED)))
    assert await stay(caller(node), PARAMS, "01V1", clock) == 3


async def ends(error: BaseException | None) -> int:
    if error is not None:
        raise error
    return 3


@pytest.mark.parametrize(
    "error",
    [
        None,
        Failure("machine m did not run", ExitStatus.NOT_RUN),
        Failure("left machine m while it stops", ExitStatus.INTERRUPTED),
        ExceptionGroup("tasks", [Failure("left machine m while it stops", ExitStatus.INTERRUPTED)]),
        BrokenPipeError(),
    ],
)
async def test_a_machine_goes_once_it_has_ended_or_the_user_has_left_it(error: BaseException | None) -> None:
    node = node_with(State.STARTED)
    try:
        assert await to_its_end(caller(node), PARAMS, ends(error), ManualClock(), "attach") == 3
    except type(error or AssertionError()) as raised:
        assert raised is error
    assert node.apps["shop"][PARAMS.machine_id].state is State.DESTROYED


@pytest.mark.parametrize(
    "error",
    [
        LOST,
        Unavailable("the node is stopping"),
        DeadlineExceeded("no answer in time"),
        ExceptionGroup("tasks", [LOST, Unavailable("the node is stopping")]),
    ],
)
async def test_a_machine_that_may_run_on_is_left_and_how_to_go_on_is_said(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    node = node_with(State.STARTED)
    with pytest.raises(type(error)) as caught:
        await to_its_end(caller(node), PARAMS, ends(error), ManualClock(), "attach")
    assert caught.value is error
    assert "delete_machine" not in node.calls
    said = capsys.readouterr().err
    assert "stays when it ends" in said
    for command in ("attach", "rm --force"):
        assert f"`hawker {command} {PARAMS.machine_id}`" in said


async def test_a_machine_that_cannot_be_destroyed_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    node = node_with(State.STOPPED)
    node.failures["delete_machine"] = unreachable(URL)
    assert await to_its_end(caller(node), PARAMS, ends(None), ManualClock(), "attach") == 3
    said = capsys.readouterr().err
    assert "cannot reach" in said and f"`hawker rm --force {PARAMS.machine_id}` destroys it" in said
