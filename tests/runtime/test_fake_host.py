"""Facts about the fake host itself: one place per machine, faults in order, signals recorded."""

import math
import signal

import msgspec
import pytest

from hawker.clock import ManualClock
from hawker.errors import Unavailable
from hawker.ids import InstanceId, MachineId
from hawker.runtime.driver import Exit, OutputChunk, Phase, ProcessPhase
from hawker.runtime.fake_host import (
    FakeExecSession,
    FakeFault,
    FakeHost,
    FakeProcess,
    Instance,
    Script,
    at_most,
    contents,
    last_lines,
    read_command,
)
from hawker.runtime.spec import Ends, FileSpec, InstanceLimits, InstanceSpec, ProcessSpec


@pytest.mark.parametrize(
    "argv, expected",
    [
        (("true",), Script()),
        (("/bin/false",), Script(code=1)),
        (("exit", "7"), Script(code=7)),
        (("sleep", "2"), Script(runs_s=2.0)),
        (("sleep", "infinity"), Script(runs_s=math.inf)),
        (("/usr/sbin/nginx", "-g", "daemon off;"), Script(runs_s=math.inf)),
        (("echo", "a", "b"), Script(output=((1, b"a b\n"),))),
        (("printf", r"a\n"), Script(output=((1, b"a\n"),))),
        (("cat",), Script(runs_s=math.inf, echoes=True)),
        (("env",), Script(output=((1, b"NAME=world\n"),))),
        (("/nope", "x"), Script(code=127, missing="exec /nope: no such file or directory")),
    ],
)
def test_simple_commands(argv: tuple[str, ...], expected: Script) -> None:
    assert read_command(argv, {"NAME": "world"}) == expected


@pytest.mark.parametrize(
    "text, expected",
    [
        ("echo hi; exit 3", Script(output=((1, b"hi\n"),), code=3)),
        ("echo hello $NAME ${NAME}", Script(output=((1, b"hello world world\n"),))),
        ("echo out; echo err >&2", Script(output=((1, b"out\n"), (2, b"err\n")))),
        ("sleep 1; sleep 2 && exit 4", Script(runs_s=3.0, code=4)),
        ("false && echo no", Script(code=1)),
        ("exit 2; echo no", Script(code=2)),
        ("echo up; exec sleep infinity; echo no", Script(output=((1, b"up\n"),), runs_s=math.inf)),
        ("exec cat", Script(runs_s=math.inf, echoes=True)),
    ],
)
def test_shell_lines(text: str, expected: Script) -> None:
    assert read_command(("/bin/sh", "-c", text), {"NAME": "world"}) == expected


pytestmark = pytest.mark.anyio


def _session(*argv: str) -> FakeExecSession:
    return FakeExecSession(ManualClock(), read_command(argv, {}))


def _chunks(*pieces: bytes) -> list[OutputChunk]:
    return [OutputChunk(position, 0.0, 1, 0, data) for position, data in enumerate(pieces)]


async def test_output_then_the_status() -> None:
    session = _session("sh", "-c", "echo out; echo err >&2; exit 3")
    assert [piece async for piece in session.output()] == [(1, b"out\n"), (2, b"err\n")]
    assert (await session.wait()).exit_code == 3


async def test_a_command_takes_its_time() -> None:
    clock = ManualClock()
    began = clock.now()
    assert (await FakeExecSession(clock, Script(runs_s=8.0)).wait()).exited_at == began + 8.0


async def test_a_signal_ends_what_runs_and_nothing_else() -> None:
    running, done = _session("sleep", "infinity"), _session("true")
    await running.signal(signal.SIGTERM)
    await done.signal(signal.SIGTERM)
    assert (await running.wait()).exit_code == 143
    assert (await done.wait()).exit_code == 0


async def test_input_after_its_end_is_dropped() -> None:
    session = _session("cat")
    await session.send(b"kept")
    await session.send_eof()
    await session.send(b"late")
    assert [piece async for piece in session.output()] == [(1, b"kept")]


def test_output_is_cut_to_a_size_but_never_to_nothing() -> None:
    chunks = _chunks(b"aaaa", b"bb", b"c")
    assert at_most(chunks, 6) == chunks[:2]
    assert at_most(chunks, 1) == chunks[:1]


@pytest.mark.parametrize("tail, text", [(0, b""), (1, b"c\n"), (2, b"b\nc\n"), (9, b"a\nb\nc\n"), (None, b"a\nb\nc\n")])
def test_the_tail_is_counted_in_lines(tail: int | None, text: bytes) -> None:
    assert b"".join(chunk.data for chunk in last_lines(_chunks(b"a\nb\n", b"c\n"), tail)) == text


MACHINE = MachineId("0123456789abcd")


def _spec(*argv: str) -> InstanceSpec:
    return InstanceSpec(
        machine_id=MACHINE,
        instance_id=InstanceId("I1"),
        hostname="host",
        processes=(ProcessSpec(argv=argv or ("server",), env={}),),
        files=(FileSpec(path="/a", content=b"words"),),
        limits=InstanceLimits(cpus=1, cpu_weight=100, memory_mib=64, pids=10),
    )


@pytest.fixture
def host() -> FakeHost:
    return FakeHost(ManualClock())


def _launched(host: FakeHost, *argv: str) -> Instance:
    instance = host.place(_spec(*argv))
    host.launch(instance)
    return instance


def test_an_instance_without_its_directory_is_found_by_nobody_until_it_is_ended(host: FakeHost) -> None:
    instance = _launched(host)
    host.lose_directory(MACHINE)
    assert host.look(MACHINE) is None and host.orphans == {MACHINE} and not instance.ended.is_set()
    host.lose_directory(MACHINE)
    host.remove(MACHINE)
    assert not host.orphans


def test_every_launch_has_a_process_id_of_its_own(host: FakeHost) -> None:
    assert _launched(host).pid != _launched(host).pid


def test_an_instance_that_is_due_has_ended_when_somebody_looks(host: FakeHost) -> None:
    _launched(host, "sleep", "0")
    found = host.look(MACHINE)
    assert found is not None and found.phase is Phase.EXITED and found.ended.is_set()


def test_faults_befall_calls_in_the_order_scripted(host: FakeHost) -> None:
    first, second = FakeFault(Unavailable("one")), FakeFault(delay_s=2.0)
    host.script("start", first, second)
    assert host.fault("stop") == FakeFault()
    assert [host.fault("start"), host.fault("start"), host.fault("start")] == [first, second, FakeFault()]


@pytest.mark.parametrize("number", [signal.SIGWINCH, signal.SIGCHLD, signal.SIGCONT])
def test_signals_that_end_nothing_are_only_recorded(host: FakeHost, number: signal.Signals) -> None:
    instance = _launched(host)
    host.deliver(instance, number)
    assert instance.phase is Phase.RUNNING
    assert host.signals(MACHINE) == [number]


def test_removing_a_running_machine_ends_who_waits_for_it(host: FakeHost) -> None:
    instance = _launched(host)
    host.remove(MACHINE)
    assert instance.exit is not None and instance.exit.signal == signal.SIGKILL
    assert (host.machines(), host.look(MACHINE), host.signals(MACHINE)) == ([], None, [])


def test_ending_what_does_not_run_is_no_change(host: FakeHost) -> None:
    host.end(MACHINE, 1)
    instance = _launched(host, "exit", "3")
    host.end(MACHINE, 9)
    assert instance.exit is not None and instance.exit.exit_code == 3


def test_files_are_known_by_path() -> None:
    assert contents(_spec().files) == {"/a": b"words"}


# --- processes


def _told(*commands: str, held: bool = False) -> InstanceSpec:
    processes = tuple(ProcessSpec(argv=("sh", "-c", text), env={}, held=held) for text in commands)
    return msgspec.structs.replace(_spec(), processes=processes, ends=Ends.TOLD)


def test_one_process_is_ended_from_outside(host: FakeHost) -> None:
    instance = host.place(_told("sleep infinity", "sleep infinity"))
    host.launch(instance)
    host.end_process(MACHINE, 1, 137, signal=9, oom_killed=True)
    states = [process.told() for process in instance.processes]
    assert states[0].exit is None and states[1].exit is not None
    assert (states[1].exit.oom_killed, states[1].exit.process) == (True, 1)
    assert instance.phase is Phase.RUNNING


def test_one_process_ended_from_outside_ends_a_machine_that_ends_with_the_first(host: FakeHost) -> None:
    both = msgspec.structs.replace(_told("sleep infinity", "sleep infinity"), ends=Ends.FIRST)
    instance = host.place(both)
    host.launch(instance)
    host.end_process(MACHINE, 1, 5)
    assert instance.exit is not None and (instance.exit.exit_code, instance.exit.process) == (5, 1)
    assert instance.processes[0].last_exit is not None and instance.processes[0].last_exit.signal == 9


def test_runs_end_in_the_order_of_the_clock() -> None:
    clock = ManualClock()
    host = FakeHost(clock)
    instance = host.place(_told("sleep 3; exit 3", "sleep 1; exit 1", "sleep infinity"))
    host.launch(instance)
    began = clock.now()
    clock.advance(10.0)
    host.look(MACHINE)
    ends = [process.last_exit for process in instance.processes]
    assert [(end.exit_code, end.exited_at - began) if end else None for end in ends] == [(3, 3.0), (1, 1.0), None]


def test_a_held_process_runs_when_it_is_begun(host: FakeHost) -> None:
    instance = host.place(_told("echo up; sleep infinity", held=True))
    host.launch(instance)
    assert instance.chunks == []
    host.begin(instance, 0)
    assert [(chunk.process, chunk.data) for chunk in instance.chunks] == [(0, b"up\n")]


def test_a_machine_that_rests_is_stopped_as_it_ended_last(host: FakeHost) -> None:
    instance = host.place(_told("exit 3"))
    host.launch(instance)
    host.look(MACHINE)
    instance.stopping = True
    host.deliver(instance, 15)
    assert instance.exit is not None and instance.exit.exit_code == 3


def test_a_machine_where_nothing_ever_ran_is_stopped_by_the_signal(host: FakeHost) -> None:
    instance = host.place(_told("exit 3", held=True))
    host.launch(instance)
    instance.stopping = True
    host.deliver(instance, 15)
    assert instance.exit is not None and instance.exit.exit_code == 143


SLEEPS = ProcessSpec(argv=("sleep", "5"), env={}, name="web")
CAT = ProcessSpec(argv=("cat", "/f"), env={}, name="web", root="/r", files=(FileSpec(path="/f", content=b"own"),))


def test_a_process_is_held_until_its_first_run() -> None:
    process = FakeProcess(SLEEPS, 1)
    assert (process.told().state, process.told().run, process.ends_at) == (ProcessPhase.HELD, 0, math.inf)


def test_a_run_has_a_number_a_pid_and_an_end() -> None:
    process = FakeProcess(SLEEPS, 1)
    process.begin(100.0, {})
    told = process.told()
    assert (told.name, told.state, told.run, told.pid, told.started_at) == ("web", ProcessPhase.RUNNING, 1, 3, 100.0)
    assert process.ends_at == 105.0


def test_the_last_exit_is_kept_through_the_next_run() -> None:
    process, exit = FakeProcess(SLEEPS, 0), Exit(exit_code=3, exited_at=105.0)
    process.begin(100.0, {})
    process.end(exit)
    assert (process.told().state, process.told().exit, process.told().pid) == (ProcessPhase.EXITED, exit, None)
    process.begin(106.0, {})
    assert (process.told().run, process.told().exit, process.told().last_exit) == (2, None, exit)


def test_a_container_sees_its_own_files() -> None:
    assert FakeProcess(CAT, 0).begin(1.0, {"/f": b"the machine's"}).output == ((1, b"own"),)
