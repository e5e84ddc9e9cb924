import os
import signal

import anyio
import pytest

from hawker.api.contract.machine import MachineParams
from hawker.api.in_process import InProcessCaller
from hawker.cli.attach import destroy, stay
from hawker.cli.exits import ExitStatus, Failure
from hawker.clock import ManualClock
from hawker.errors import NotFound
from hawker.machine import State
from tests.cli.fake_node import LAUNCHED, STARTED, FakeNode, chunk, exit_event, machine
from tests.waiting import eventually

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
