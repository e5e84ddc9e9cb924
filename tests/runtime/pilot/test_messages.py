"""What the frames carry, and what is refused before it is sent."""

import pytest

from hawker.errors import BadRequest
from hawker.ids import InstanceId, MachineId
from hawker.runtime.driver import ExecSpec, FileSpec, InstanceSpec, Limits, ListenSocket, ProcessSpec
from hawker.runtime.pilot import frames, messages
from hawker.runtime.pilot.frames import Frame, FrameParser, Kind, Malformed, Reader


def spec(*, content: bytes = b"", stop_signal: str = "SIGINT") -> InstanceSpec:
    return InstanceSpec(
        machine_id=MachineId("00000000000001"),
        instance_id=InstanceId("01J00000000000000000000000"),
        hostname="name",
        processes=(ProcessSpec(argv=("true",), env={"A": "b"}),),
        files=(FileSpec(path="/f", content=content),),
        limits=Limits(cpus=1, cpu_weight=1, memory_mib=1, pids=1),
        stop_signal=stop_signal,
    )


def test_a_large_spec_is_cut_to_frames_and_only_the_last_says_so() -> None:
    encoded = messages.run_spec(spec(content=bytes(200_000)), contained=True)
    parts = [frame for data in messages.spec_frames(encoded) for frame in FrameParser().feed(data)]
    assert b"".join(part.payload[1:] for part in parts) == encoded
    assert [part.payload[0] for part in parts] == [0] * (len(parts) - 1) + [1]


def test_a_spec_too_large_for_the_pilot_is_refused() -> None:
    with pytest.raises(BadRequest, match="at most"):
        messages.run_spec(spec(content=bytes(messages.SPEC_MAX)), contained=True)


def test_a_stop_signal_that_does_not_exist_is_refused() -> None:
    with pytest.raises(BadRequest, match="SIGFOO"):
        messages.run_spec(spec(stop_signal="SIGFOO"), contained=True)


@pytest.mark.parametrize(("name", "number"), [("SIGINT", 2), ("int", 2), ("2", 2), (" SIGKILL ", 9), ("64", 64)])
def test_signals_have_many_names(name: str, number: int) -> None:
    assert messages.signal_number(name) == number


@pytest.mark.parametrize("name", ["", "0", "65", "-1", "SIG", "SIGSIGINT", "²"])
def test_what_is_no_signal_is_refused(name: str) -> None:
    with pytest.raises(BadRequest):
        messages.signal_number(name)


def test_an_exec_request_that_fits_no_frame_is_refused() -> None:
    with pytest.raises(BadRequest, match="too long"):
        messages.exec_request(1, ExecSpec(argv=("x" * frames.FRAME_MAX,)))


def test_hello_from_something_else_is_malformed() -> None:
    for payload in (b"", b"HTTP/1.1 400", frames.number(frames.MAGIC, 4) + b"\1\0\x63\0\0\0\0\0"):
        with pytest.raises(Malformed):
            messages.read_hello(Frame(Kind.HELLO, 0, payload))


def hello(version: int, more: bytes = b"") -> Frame:
    head = frames.number(frames.MAGIC, 4) + frames.number(version, 2)
    return Frame(Kind.HELLO, 0, head + b"\2" + frames.string("instance") + more)


def test_a_pilot_of_a_newer_version_may_say_more() -> None:
    heard = messages.read_hello(hello(7, b"more"))
    assert (heard.version, heard.instance_id) == (7, "instance")


def test_a_pilot_that_is_too_old_is_refused() -> None:
    with pytest.raises(Malformed, match="speaks version 0"):
        messages.read_hello(hello(0))


def test_an_ending_may_say_more() -> None:
    ending = frames.number(1, 8) + frames.number(3, 4) + frames.number(0, 4) + b"\0" + frames.string("") + b"more"
    assert messages.read_ending(Reader(ending)).exit_code == 3


def test_an_ending_is_an_exit() -> None:
    payload = (
        frames.number(1_500_000_000, 8) + frames.number(137, 4) + frames.number(9, 4) + b"\2" + frames.string("why")
    )
    exit = messages.read_ending(Reader(payload))
    assert (exit.exited_at, exit.exit_code, exit.signal, exit.process, exit.reason) == (1.5, 137, 9, 2, "why")


def test_a_process_carries_where_it_listens() -> None:
    numbers = frames.number(7, 4) + frames.number(2_000_000_000, 8) + frames.number(1500, 8) + frames.number(4096, 8)
    found = messages.read_process(
        numbers + frames.string("cmd") + frames.string("/") + frames.strings(("tcp6 [::]:80",))
    )
    assert (found.pid, found.started_at, found.cpu_s, found.rss_bytes, found.cwd) == (7, 2.0, 1.5, 4096, "/")
    assert found.sockets == (ListenSocket(proto="tcp6", address="[::]:80"),)


@pytest.mark.parametrize(("seconds", "milliseconds"), [(-1.0, 0), (0.25, 250), (1e12, 2**32 - 1)])
def test_a_timeout_is_cut_to_what_can_be_sent(seconds: float, milliseconds: int) -> None:
    (frame,) = FrameParser().feed(messages.stop_request(15, seconds))
    assert frame.payload == b"\x0f" + frames.number(milliseconds, 4)
