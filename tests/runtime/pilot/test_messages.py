"""What the frames carry, and what is refused before it is sent."""

import tracemalloc

import msgspec
import pytest

from hawker.errors import BadRequest
from hawker.ids import InstanceId, MachineId
from hawker.runtime.driver import ExecSpec, ProcessPhase, ProcessSocket, ProcessState
from hawker.runtime.pilot import frames, messages
from hawker.runtime.pilot.frames import Frame, FrameKind, FrameParser, MalformedPilotFrame, PayloadReader
from hawker.runtime.spec import Ends, FileSpec, InstanceLimits, InstanceSpec, ProcessSpec

_MIB = bytes(1 << 20)


def spec(*, content: bytes = b"", stop_signal: str = "SIGINT") -> InstanceSpec:
    return InstanceSpec(
        machine_id=MachineId("00000000000001"),
        instance_id=InstanceId("01J00000000000000000000000"),
        hostname="name",
        processes=(ProcessSpec(argv=("true",), env={"A": "b"}),),
        files=(FileSpec(path="/f", content=content),),
        limits=InstanceLimits(cpus=1, cpu_weight=1, memory_mib=1, pids=1),
        stop_signal=stop_signal,
    )


def test_a_large_spec_is_cut_to_frames_and_only_the_last_says_so() -> None:
    encoded = messages.run_spec(spec(content=bytes(200_000)), contained=True, now=0)
    parts = [frame for data in messages.spec_frames(encoded) for frame in FrameParser().feed(data)]
    assert b"".join(part.payload[1:] for part in parts) == encoded
    assert [part.payload[0] for part in parts] == [0] * (len(parts) - 1) + [1]


def test_a_spec_too_large_for_the_pilot_is_refused() -> None:
    with pytest.raises(BadRequest, match="at most"):
        messages.run_spec(spec(content=bytes(messages.SPEC_MAX)), contained=True, now=0)


@pytest.mark.parametrize("of_process", [False, True])
def test_a_spec_too_large_is_refused_before_it_is_made(of_process: bool) -> None:
    files = tuple(FileSpec(path=f"/{number}", content=_MIB) for number in range(64))
    large = msgspec.structs.replace(spec(), files=files)
    if of_process:
        large = msgspec.structs.replace(with_process(name="web", held=True, files=files), files=())
    tracemalloc.start()
    try:
        with pytest.raises(BadRequest, match="at most"):
            messages.run_spec(large, contained=True, now=0)
        assert tracemalloc.get_traced_memory()[1] < 16 * len(_MIB)
    finally:
        tracemalloc.stop()


def test_a_stop_signal_that_does_not_exist_is_refused() -> None:
    with pytest.raises(BadRequest, match="SIGFOO"):
        messages.run_spec(spec(stop_signal="SIGFOO"), contained=True, now=0)


@pytest.mark.parametrize(("name", "number"), [("SIGINT", 2), ("int", 2), ("2", 2), (" SIGKILL ", 9), ("64", 64)])
def test_signals_have_many_names(name: str, number: int) -> None:
    assert messages.signal_number(name) == number


@pytest.mark.parametrize("name", ["", "0", "65", "-1", "SIG", "SIGSIGINT", "²"])
def test_a_number_that_is_no_signal_is_refused(name: str) -> None:
    with pytest.raises(BadRequest):
        messages.signal_number(name)


def test_an_exec_request_that_fits_no_frame_is_refused() -> None:
    with pytest.raises(BadRequest, match="too long"):
        messages.exec_request(1, ExecSpec(argv=("x" * frames.FRAME_MAX,)))


def test_hello_from_something_else_is_malformed() -> None:
    for payload in (b"", b"HTTP/1.1 400", frames.number(frames.MAGIC, 4) + b"\1\0\x63\0\0\0\0\0"):
        with pytest.raises(MalformedPilotFrame):
            messages.read_hello(Frame(FrameKind.HELLO, 0, payload))


def hello(version: int, more: bytes = b"") -> Frame:
    head = frames.number(frames.MAGIC, 4) + frames.number(version, 2)
    return Frame(FrameKind.HELLO, 0, head + b"\2" + frames.string("instance") + more)


def test_a_pilot_of_a_newer_version_may_say_more() -> None:
    heard = messages.read_hello(hello(7, b"more"))
    assert (heard.version, heard.instance_id) == (7, "instance")


def test_a_pilot_that_is_too_old_is_refused() -> None:
    with pytest.raises(MalformedPilotFrame, match="speaks version 0"):
        messages.read_hello(hello(0))


def test_an_ending_may_say_more() -> None:
    ending = frames.number(1, 8) + frames.number(3, 4) + frames.number(0, 4) + b"\0" + frames.string("") + b"more"
    assert messages.read_ending(PayloadReader(ending)).exit_code == 3


def test_an_ending_is_an_exit() -> None:
    payload = (
        frames.number(1_500_000_000, 8) + frames.number(137, 4) + frames.number(9, 4) + b"\2" + frames.string("why")
    )
    exit = messages.read_ending(PayloadReader(payload))
    assert (exit.exited_at, exit.exit_code, exit.signal, exit.process, exit.reason) == (1.5, 137, 9, 2, "why")


def test_a_process_carries_where_it_listens() -> None:
    numbers = frames.number(7, 4) + frames.number(2_000_000_000, 8) + frames.number(1500, 8) + frames.number(4096, 8)
    found = messages.read_process(
        numbers + frames.string("cmd") + frames.string("/") + frames.strings(("tcp6 [::]:80",))
    )
    assert (found.pid, found.started_at, found.cpu_s, found.rss_bytes, found.cwd) == (7, 2.0, 1.5, 4096, "/")
    assert found.sockets == (ProcessSocket(proto="tcp6", address="[::]:80"),)


@pytest.mark.parametrize(("seconds", "milliseconds"), [(-1.0, 0), (0.25, 250), (1e12, 2**32 - 1)])
def test_a_timeout_is_cut_to_what_can_be_sent(seconds: float, milliseconds: int) -> None:
    (frame,) = FrameParser().feed(messages.stop_request(15, seconds))
    assert frame.payload == b"\x0f" + frames.number(milliseconds, 4)


# --- version 2


def with_process(**fields: object) -> InstanceSpec:
    plain = spec()
    return msgspec.structs.replace(plain, processes=(msgspec.structs.replace(plain.processes[0], **fields),))


def test_a_message_of_version_1_is_said_as_it_was() -> None:
    """A pilot of that version that still runs is sent its own spec again."""
    said = frames.string("01J00000000000000000000000") + frames.string("name") + b"\1\2" + frames.number(5000, 4)
    said += frames.number(4 << 20, 4) + frames.number(1, 4) + frames.string("/f") + frames.number(0o644, 4)
    said += frames.blob(b"") + frames.number(1, 4) + frames.strings(("true",)) + frames.strings(("A=b",))
    said += frames.string("") + frames.string("/") + b"\0" + frames.number(24, 2) + frames.number(80, 2)
    assert messages.run_spec(spec(), contained=True, now=0) == said


@pytest.mark.parametrize(
    "more",
    [
        with_process(held=True),
        with_process(name="web"),
        with_process(name="web", root="/r"),
        msgspec.structs.replace(spec(), ends=Ends.TOLD),
    ],
)
def test_more_follows_what_version_1_could_say_and_is_announced(more: InstanceSpec) -> None:
    plain, encoded = messages.run_spec(spec(), contained=True, now=0), messages.run_spec(more, contained=True, now=0)
    flags = len(frames.string("01J00000000000000000000000") + frames.string("name"))
    assert (plain[flags], encoded[flags]) == (1, 3)
    assert len(encoded) > len(plain) and encoded[flags + 1 :].startswith(plain[flags + 1 :])


def test_a_container_is_told_where_its_root_is_seen_and_its_files() -> None:
    files = (FileSpec(path="/conf", content=b"words"),)
    encoded = messages.run_spec(with_process(name="web", root="/host/r", held=True, files=files), contained=True, now=0)
    assert encoded.endswith(
        b"\0"
        + frames.string("web")
        + frames.string("/.hawker/containers/web")
        + b"\1"
        + frames.number(1, 4)
        + frames.string("/conf")
        + frames.number(0o644, 4)
        + frames.blob(b"words")
    )


def test_only_a_command_beside_another_process_says_so() -> None:
    first, other = (messages.exec_request(1, ExecSpec(argv=("true",), process=index)) for index in (0, 3))
    assert first[-1:] == b"\0" and other[-2:] == b"\4\3"


def test_a_state_is_read() -> None:
    ending = frames.number(2_000_000_000, 8) + frames.number(137, 4) + frames.number(9, 4) + b"\3" + frames.string("")
    head = b"\3" + b"\2" + frames.number(5, 4) + frames.number(77, 4) + frames.number(1_000_000_000, 8)
    index, state = messages.read_state(head + b"\1" + ending + b"\1")
    assert (index, state.state, state.run, state.pid, state.started_at) == (3, ProcessPhase.RUNNING, 5, 77, 1.0)
    assert state.last_exit is not None and state.last_exit.oom_killed and state.exit is None


def test_a_state_before_the_first_run_has_no_time() -> None:
    assert messages.read_state(b"\0\0" + bytes(17)) == (0, ProcessState())


@pytest.mark.parametrize("payload", [b"", b"\0\0", b"\0\4" + bytes(17), b"\0\3" + bytes(16) + b"\1"])
def test_a_word_that_is_no_state_is_malformed(payload: bytes) -> None:
    with pytest.raises(MalformedPilotFrame):
        messages.read_state(payload)


def test_a_process_may_say_its_container() -> None:
    plain = bytes(28) + frames.string("sleep") + frames.string("/") + frames.strings(())
    assert messages.read_process(plain).container == ""
    assert messages.read_process(plain + frames.string("web")).container == "web"
