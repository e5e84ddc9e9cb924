"""The framing of serial ports, as a plain process speaks it on a socket pair: connections follow one another there."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hawker.runtime.driver import ExecSpec
from hawker.runtime.pilot import frames, messages, serial_ports
from hawker.runtime.pilot.frames import FrameKind, PayloadReader
from hawker.runtime.pilot.messages import PilotState
from tests.guest.pilot import Pilot, pilot, spec
from tests.guest.port import Port

OTHER = b"nonce  2"


@contextmanager
def on_a_port(files: Path) -> Iterator[tuple[Pilot, socket.socket]]:
    with pilot(files, way_in="port") as running:
        assert isinstance(running.stream, socket.socket)
        yield running, running.stream


def connected(running: Pilot, wire: socket.socket, nonce: bytes = OTHER) -> Pilot:
    """A new client of the same port."""
    return Pilot(running.program, Port(wire, nonce), running.files)


def refusal(running: Pilot) -> str:
    return PayloadReader(running.take(FrameKind.REFUSED).payload).string()


def test_port_says_nothing_until_a_connection_begins(tmp_path: Path) -> None:
    with on_a_port(tmp_path) as (running, wire):
        wire.sendall(messages.hello())
        assert connected(running, wire).greet().state == PilotState.AWAITING
        running.program.terminate()


def test_a_connection_is_answered_with_its_nonce_and_a_hello(tmp_path: Path) -> None:
    with on_a_port(tmp_path) as (running, wire):
        wire.sendall(serial_ports.begin(OTHER))
        answer = wire.recv(65536)
        while len(answer) < 15:
            answer += wire.recv(65536)
        assert answer.startswith(serial_ports.begin(OTHER))
        assert answer[10 + 4] == FrameKind.HELLO
        running.program.terminate()


def test_any_byte_gets_through_both_ways(tmp_path: Path) -> None:
    every = bytes(range(1, 256)).decode("utf-8", "surrogateescape")
    with on_a_port(tmp_path) as (running, wire):
        client = connected(running, wire)
        client.run(spec(("sh", "-c", 'printf "%s" "$0"; exit 5', every)))
        assert client.exit().exit_code == 5
        running.status()
        assert b"".join(chunk.data for chunk in running.output()) == bytes(range(1, 256))


def test_sessions_carry_any_byte(tmp_path: Path) -> None:
    noise = bytes(range(256)) * 700
    with on_a_port(tmp_path) as (running, wire):
        client = connected(running, wire)
        client.run(spec("sleep 1000"))
        client.take(FrameKind.READY)
        client.stream.sendall(messages.exec_request(3, ExecSpec(argv=("cat",))))
        got = b""
        for at in range(0, len(noise), 50_000):
            client.send(FrameKind.STDIN, 3, noise[at : at + 50_000])
            while len(got) < min(at + 50_000, len(noise)):
                got += client.take(FrameKind.STDOUT).payload
        assert got == noise
        running.program.terminate()


def test_a_new_connection_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    with on_a_port(tmp_path) as (running, wire):
        first = connected(running, wire, b"nonce  1")
        first.run(spec("sleep 1000"))
        first.take(FrameKind.READY)
        first.stream.sendall(messages.exec_request(1, ExecSpec(argv=("sh", "-c", "echo up; exec sleep 1000"))))
        first.take(FrameKind.STDOUT)
        second = connected(running, wire)
        hello = second.greet()
        assert (hello.state, hello.instance_id) == (PilotState.RUNNING, "instance-1")
        second.stream.sendall(messages.exec_request(1, ExecSpec(argv=("echo", "mine"))))
        assert second.take(FrameKind.STDOUT).payload == b"mine\n"
        running.program.terminate()


def test_a_stop_counts_although_its_sender_has_ended_the_connection(tmp_path: Path) -> None:
    with on_a_port(tmp_path) as (running, wire):
        client = connected(running, wire)
        client.run(spec("sleep 1000"))
        client.take(FrameKind.READY)
        client.stream.sendall(messages.stop_request(signal.SIGTERM, 5.0))
        client.stream.close()
        assert running.status() == 143


def test_a_connection_that_begins_behind_a_stop_does_no_harm(tmp_path: Path) -> None:
    """Before any spec: its greeting has no instance to name."""
    stop = messages.hello() + messages.stop_request(signal.SIGTERM, 5.0)
    with on_a_port(tmp_path) as (running, wire):
        wire.sendall(serial_ports.begin(b"nonce  1") + serial_ports.escape(stop) + serial_ports.begin(OTHER))
        assert running.status() == 143


def test_a_protocol_error_ends_the_connection_and_not_the_port(tmp_path: Path) -> None:
    with on_a_port(tmp_path) as (running, wire):
        client = connected(running, wire, b"nonce  1")
        client.greet()
        client.send(FrameKind.READY)
        assert refusal(client) == "protocol error"
        with pytest.raises(EOFError):
            client.next()
        assert connected(running, wire).greet().state == PilotState.AWAITING
        running.program.terminate()


BROKEN = [
    pytest.param(b"\xfe\x7f", id="an unknown escape"),
    pytest.param(b"\xfe", id="half an escape"),
    pytest.param(b"\xfe\x01abc", id="half a nonce"),
    pytest.param(b"\xfe\x01abc\x80", id="a byte that no nonce has"),
    pytest.param(serial_ports.END * 3, id="ends of nothing"),
    pytest.param(b"\xff" * 300_000, id="a flood"),
    pytest.param(serial_ports.begin(b"nonce  3") * 100, id="a flood of connections"),
]


@pytest.mark.parametrize("broken", BROKEN)
def test_frame_cut_off_before_a_connection_is_nobody_s(tmp_path: Path, broken: bytes) -> None:
    with on_a_port(tmp_path) as (running, wire):
        connected(running, wire, b"nonce  1").greet()
        wire.sendall(broken)
        client = connected(running, wire)
        client.run(spec("exit 6"))
        assert client.exit().exit_code == 6


def test_a_port_that_nobody_holds_costs_nothing(tmp_path: Path) -> None:
    """It stays "hung up", of which poll would tell again and again."""
    with on_a_port(tmp_path) as (running, wire):
        client = connected(running, wire)
        client.run(spec("sleep 1.5; exit 7"))
        client.take(FrameKind.READY)
        wire.shutdown(socket.SHUT_RDWR)
        _, status, usage = os.wait4(running.program.pid, 0)
        running.program.returncode = os.waitstatus_to_exitcode(status)
        assert running.program.returncode == 7
        assert usage.ru_utime + usage.ru_stime < 1.0, "an end that is polled for costs the whole second and a half"


def test_client_that_does_not_read_is_dropped_and_the_next_is_served(tmp_path: Path) -> None:
    with on_a_port(tmp_path) as (running, wire):
        client = connected(running, wire, b"nonce  1")
        client.run(spec("sleep 1000"))
        client.take(FrameKind.READY)
        for _ in range(3000):  # each answer is larger than its question
            client.send(FrameKind.SPEC, 0, b"\1" + spec("true", instance="instance-2"))
        assert connected(running, wire).greet().state == PilotState.RUNNING
        running.program.terminate()


def test_requests_for_an_own_kernel_are_refused_on_a_port(tmp_path: Path) -> None:
    with on_a_port(tmp_path) as (running, wire):
        client = connected(running, wire)
        client.run(spec("sleep 1000"))
        client.take(FrameKind.READY)
        for kind, payload in (
            (FrameKind.CLOCK, frames.number(0, 8)),
            (FrameKind.FREEZE, frames.string("/") + frames.number(1, 4)),
            (FrameKind.THAW, frames.string("/")),
            (FrameKind.GROW, frames.string("/")),
            (FrameKind.MEMORY, b""),
            (FrameKind.USAGE, frames.string("/")),
        ):
            client.send(kind, 9, payload)
            assert refusal(client) == "this machine has the host's kernel"
        running.program.terminate()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=60),
            st.sampled_from([b"\xfe", b"\xfe\x00", b"\xfe\x01", b"\xfe\x02", serial_ports.begin(b"nonce  4")]),
            st.just(messages.hello()),
        ),
        max_size=30,
    )
)
def test_hostile_bytes_never_bring_it_down(tmp_path: Path, pieces: list[bytes]) -> None:
    with on_a_port(tmp_path) as (running, wire):
        with suppress(OSError):
            wire.sendall(b"".join(pieces))
        assert connected(running, wire).greet().state == PilotState.AWAITING
        running.program.terminate()
        assert running.status() == 143
