""""""

import os
import signal

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.api.contract.machine import MachineParams
from hawker.api.contract.node import LogChunk
from hawker.api.in_process import InProcessCaller
from hawker.cli.attach import Follower, Prefix, destroy, stay
from hawker.cli.exits import ExitStatus, Failure
from hawker.clock import ManualClock
from hawker.errors import NotFound
from hawker.machine import State
from tests.cli.fake_node import LAUNCHED, STARTED, FakeNode, chunk, exit_event, machine
from tests.waiting import eventually


def of(container: str, data: bytes, stream: int = 1) -> LogChunk:
    return msgspec.structs.replace(chunk(0, data, stream=stream), container=container)


def told(*chunks: LogChunk) -> bytes:
    prefix = Prefix()
    return b"".join(prefix.told(each) for each in chunks)


def test_each_line_says_whose_it_is() -> None:
    assert told(of("web", b"a\nb\n"), of("db", b"c\n")) == b"web | a\nweb | b\ndb | c\n"


def test_a_line_in_pieces_is_one_line() -> None:
    assert told(of("web", b"hal"), of("web", b"lo\n"), of("web", b"a\n")) == b"web | hallo\nweb | a\n"


def test_a_line_that_another_breaks_into_is_ended_first() -> None:
    assert told(of("web", b"hal"), of("db", b"c\n"), of("web", b"lo\n")) == b"web | hal\ndb | c\nweb | lo\n"


def test_streams_are_apart() -> None:
    assert told(of("web", b"out"), of("web", b"err", stream=2)) == b"web | outweb | err"


def test_a_machine_without_containers_is_not_touched() -> None:
    assert told(of("", b"a\nb"), of("", b"c")) == b"a\nbc"


@given(st.lists(st.tuples(st.sampled_from(["web", "db"]), st.binary(max_size=20))))
def test_nothing_is_lost(pieces: list[tuple[str, bytes]]) -> None:
    shown = told(*(of(name, data) for name, data in pieces))
    for name in ("web", "db"):
        shown = shown.replace(f"{name} | ".encode(), b"")
    assert shown.replace(b"\n", b"") == b"".join(data for _, data in pieces).replace(b"\n", b"")


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


async def test_output_goes_as_it_was_to_the_streams_it_came_from(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    await Follower(caller(node_with(State.STOPPED)), PARAMS).print(follow=False)
    assert capfdbinary.readouterr() == (b"out\nlast\n", b"\xff\n")


async def test_the_rest_is_what_was_not_printed_yet() -> None:
    seen: list[LogChunk] = []
    follower = Follower(caller(node_with(State.STOPPED)), PARAMS, seen.append)
    await follower.print(follow=True)
    assert follower.ended.is_set()
    await follower.print_rest()
    assert seen == list(CHUNKS)


async def test_the_rest_of_what_is_gone_is_nothing() -> None:
    node = node_with(State.DESTROYED)
    node.failures["machine_logs"] = NotFound("machine not found")
    await Follower(caller(node), PARAMS).print_rest()


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
    await destroy(caller(node), PARAMS)
    assert node.apps["shop"][PARAMS.machine_id].state is State.DESTROYED
    node.failures["delete_machine"] = NotFound("machine not found")
    await destroy(caller(node), PARAMS)


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
