"""The pilot program itself: its states, its journal, its ring, and what it makes of hostile bytes."""

import os
import signal
import socket
import subprocess
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hawker import guest
from hawker.ids import InstanceId, MachineId
from hawker.runtime.driver import ExecSpec
from hawker.runtime.pilot import frames, messages
from hawker.runtime.pilot.frames import FrameKind, PayloadReader
from hawker.runtime.pilot.messages import PilotState
from hawker.runtime.spec import GuestLink, InstanceLimits, InstanceSpec, ProcessSpec, RootDisk, VolumeDisk
from tests.guest.pilot import DEADLINE_S, Pilot, pilot, spec
from tests.waiting import wait_for

VMADDR_CID_LOCAL = 1  # of linux/vm_sockets.h, and not in Python's `socket`


def refusal(running: Pilot) -> str:
    return PayloadReader(running.take(FrameKind.REFUSED).payload).string()


def test_wrong_use_is_said_and_has_its_own_status() -> None:
    done = subprocess.run([str(guest.pilot_path())], capture_output=True, check=False)
    assert done.returncode == 125 and b"usage:" in done.stderr


def test_pilot_waits_for_a_spec_and_says_so(tmp_path: Path) -> None:
    with pilot(tmp_path) as waiting:
        hello = waiting.greet()
        assert (hello.version, hello.state, hello.instance_id) == (frames.VERSION, PilotState.AWAITING, "")
        assert waiting.story().pilot_pid == waiting.program.pid


@pytest.mark.parametrize("version", [1, 2, 65535])
def test_a_client_of_a_newer_version_is_answered_in_ours(version: int, tmp_path: Path) -> None:
    """A machine's pilot is spoken to by every hawker that comes after the one that started it."""
    greeting = frames.number(frames.MAGIC, 4) + frames.number(version, 2) + b"what a newer one adds"
    with pilot(tmp_path) as running:
        running.send(FrameKind.HELLO, 0, greeting)
        for part in messages.spec_frames(spec("exit 4")):
            running.stream.sendall(part)
        assert messages.read_hello(running.take(FrameKind.HELLO)).version == frames.VERSION
        assert running.exit().exit_code == 4


def test_a_client_of_no_version_is_refused(tmp_path: Path) -> None:
    with pilot(tmp_path) as waiting:
        waiting.send(FrameKind.HELLO, 0, frames.number(frames.MAGIC, 4) + frames.number(0, 2))
        assert refusal(waiting)
        waiting.program.terminate()


def test_pilot_closes_descriptors_that_its_parent_left_open(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with pilot(tmp_path, writing) as waiting, os.fdopen(reading, "rb") as other_end:
        os.close(writing)
        waiting.greet()
        assert other_end.read() == b""


def test_a_run_is_told_and_recorded_from_spec_to_exit(tmp_path: Path) -> None:
    with pilot(tmp_path) as running:
        running.run(spec("echo out; exit 3"))
        running.take(FrameKind.READY)
        told = running.exit()
        assert running.status() == 3
        story = running.story()
        assert (told.exit_code, story.instance_id) == (3, "instance-1")
        assert story.final_exit == told == story.first_exit
        assert story.ready_at is not None
        assert [(chunk.stream, chunk.data) for chunk in running.output()] == [(1, b"out\n")]


def test_nobody_connected_is_no_reason_to_wait(tmp_path: Path) -> None:
    with pilot(tmp_path) as running:
        running.run(spec("head -c 30000000 /dev/zero; exit 4"))
        running.stream.close()
        assert running.status() == 4
        assert running.story().final_exit is not None


def test_the_ring_stays_within_its_limit(tmp_path: Path) -> None:
    with pilot(tmp_path) as running:
        running.run(spec("head -c 30000000 /dev/zero; exit 0", output_bytes=2 << 20))
        running.status()
        assert all(0 < (tmp_path / name).stat().st_size <= 1 << 20 for name in ("output.0", "output.1"))


def test_a_stop_counts_although_its_sender_is_gone(tmp_path: Path) -> None:
    with pilot(tmp_path) as running:
        running.run(spec("sleep 1000"))
        running.take(FrameKind.READY)
        running.stream.sendall(messages.stop_request(signal.SIGTERM, 5.0))
        running.stream.close()
        assert running.status() == 143


def test_sigterm_is_a_stop(tmp_path: Path) -> None:
    with pilot(tmp_path) as running:
        running.run(spec("sleep 1000"))
        running.take(FrameKind.READY)
        running.program.terminate()
        assert running.exit().signal == signal.SIGTERM


def test_a_stop_before_any_spec_ends_it(tmp_path: Path) -> None:
    with pilot(tmp_path) as waiting:
        waiting.greet()
        waiting.stream.sendall(messages.stop_request(signal.SIGTERM, 5.0))
        assert waiting.status() == 143
        final = waiting.story().final_exit
        assert final is not None and final.reason == "stopped before it started"


def test_a_spec_that_comes_with_a_stop_before_it_is_answered_with_the_exit(tmp_path: Path) -> None:
    with pilot(tmp_path) as waiting:
        waiting.greet()
        parts = messages.spec_frames(spec("exit 3"))
        waiting.stream.sendall(messages.stop_request(signal.SIGTERM, 5.0) + b"".join(parts))
        told = waiting.next()
        assert told.kind == FrameKind.EXIT
        assert messages.read_ending(PayloadReader(told.payload)).reason == "stopped before it started"
        assert waiting.status() == 143


def test_the_same_spec_again_is_answered_with_the_state(tmp_path: Path) -> None:
    with pilot(tmp_path) as running:
        running.run(spec("sleep 1000"))
        running.take(FrameKind.READY)
        for part in messages.spec_frames(spec("sleep 1000")):
            running.stream.sendall(part)
        running.take(FrameKind.READY)


def test_another_spec_is_refused(tmp_path: Path) -> None:
    with pilot(tmp_path) as running:
        running.run(spec("sleep 1000"))
        running.take(FrameKind.READY)
        for part in messages.spec_frames(spec("sleep 1000", instance="instance-2")):
            running.stream.sendall(part)
        assert refusal(running) == "instance instance-1 runs here"


def test_orphans_are_reaped_and_end_with_the_machine(tmp_path: Path) -> None:
    seconds = 1_000_000 + os.getpid()  # of nobody else on this host
    with pilot(tmp_path) as running:
        running.run(spec(f"(setsid sleep {seconds} & true); (true &); echo up; sleep 0.2; exit 0"))
        wait_for(running.output)
        running.status()
    assert b"sleep\0%d" % seconds not in {_command(name) for name in os.listdir("/proc") if name.isdigit()}


def _command(pid: str) -> bytes:
    try:
        return Path("/proc", pid, "cmdline").read_bytes().rstrip(b"\0")
    except OSError:
        return b""


def test_the_rest_gets_two_seconds_when_a_process_ends(tmp_path: Path) -> None:
    with pilot(tmp_path) as running:
        ready = tmp_path / "ready"
        deaf = f"trap '' TERM; : > {ready}; while true; do sleep 0.1; done"
        running.run(spec(deaf, f"until test -e {ready}; do sleep 0.05; done; exit 8"))
        began = time.monotonic()
        assert running.status() == 8
        assert 1.5 < time.monotonic() - began < 60
        final = running.story().final_exit
        assert final is not None and final.process == 1


def test_the_workload_cannot_take_its_descriptors(tmp_path: Path) -> None:
    with pilot(tmp_path) as running:
        running.greet()
        status = Path(f"/proc/{running.program.pid}/fd").stat()
        assert status.st_uid == 0  # not dumpable: its descriptors are root's to see, whoever runs it


def test_the_workload_starts_with_signals_as_they_are(tmp_path: Path) -> None:
    with pilot(tmp_path) as running:
        running.run(spec("grep Sig /proc/self/status; umask; exit 0"))
        running.status()
        said = dict(line.split(b":\t") for line in _said(running).splitlines() if b":\t" in line)
        assert int(said[b"SigBlk"], 16) == 0
        assert int(said[b"SigIgn"], 16) & (1 << (signal.SIGPIPE - 1)) == 0
        assert b"0022" in _said(running)


def _said(running: Pilot) -> bytes:
    return b"".join(chunk.data for chunk in running.output())


@pytest.mark.slow
@pytest.mark.root
def test_a_workload_that_stops_whoever_asks_for_its_sockets_holds_up_nobody(tmp_path: Path) -> None:
    """Without the capability that no machine has, they are asked for as the workload's own user."""
    bare = ("setpriv", "--inh-caps=-sys_ptrace", "--bounding-set=-sys_ptrace", str(guest.pilot_path()))
    stopper = "echo up; exec setpriv --reuid=64321 --clear-groups sh -c 'while :; do kill -STOP -1; done'"
    with socket.create_server(("127.0.0.1", 0)), pilot(tmp_path, command=bare) as running:
        running.run(spec(stopper))
        wait_for(running.output)
        for channel in range(1, 21):
            running.send(FrameKind.LIST, channel)
            running.take(FrameKind.LIST_END)


def test_only_the_host_is_answered_on_vsock(tmp_path: Path) -> None:
    """Where a guest's kernel leads its own processes there, they are hung up on."""
    with ExitStack() as stack:
        try:
            listener, inside = (stack.enter_context(socket.socket(socket.AF_VSOCK)) for _ in range(2))
            inside.settimeout(2.0)
            listener.bind((socket.VMADDR_CID_ANY, socket.VMADDR_PORT_ANY))
            listener.listen()
            inside.connect((VMADDR_CID_LOCAL, listener.getsockname()[1]))
        except OSError as error:
            pytest.skip(f"this kernel leads nobody to its own vsock: {error}")
        inside.settimeout(DEADLINE_S)
        command = (str(guest.pilot_path()), "--listen", str(listener.fileno()))
        program = subprocess.Popen(command, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL)
        stack.enter_context(program)
        stack.callback(program.terminate)
        with suppress(ConnectionResetError):
            assert inside.recv(100) == b""


def test_a_session_beyond_its_credit_is_cut_off(tmp_path: Path) -> None:
    with pilot(tmp_path) as running:
        running.run(spec("sleep 1000"))
        running.take(FrameKind.READY)
        running.stream.sendall(messages.exec_request(1, ExecSpec(argv=("sleep", "1000"))))
        with suppress(OSError):  # it cuts us off before it has read all
            for _ in range(6):
                running.send(FrameKind.STDIN, 1, bytes(frames.PAYLOAD_MAX))
        assert refusal(running) == "protocol error"


def test_output_stops_at_the_credit_and_goes_on_with_more(tmp_path: Path) -> None:
    with pilot(tmp_path) as running:
        running.run(spec("sleep 1000"))
        running.take(FrameKind.READY)
        running.stream.sendall(messages.exec_request(1, ExecSpec(argv=("head", "-c", "400000", "/dev/zero"))))
        got = 0
        while got < frames.OUT_WINDOW:
            got += len(running.take(FrameKind.STDOUT).payload)
        assert got == frames.OUT_WINDOW
        running.send(FrameKind.CREDIT, 1, frames.number(200_000, 4))
        assert running.exit().exit_code == 0


def outfit(instance: str = "instance-1") -> bytes:
    """The run spec of a machine with a kernel of its own."""
    return messages.run_spec(
        InstanceSpec(
            machine_id=MachineId("00000000000001"),
            instance_id=InstanceId(instance),
            hostname="box",
            processes=(ProcessSpec(argv=("true",), env={}),),
            limits=InstanceLimits(cpus=1, cpu_weight=1, memory_mib=1, pids=1),
            root_disk=RootDisk(image="unused", layer="unused"),
            volumes=(VolumeDisk(name="volume", file="unused", target="/data"),),
            link=GuestLink(mac="02:00:00:00:00:03", addresses=("fdaa::3/64",), gateways=("fdaa::1",)),
        ),
        contained=False,
        now=1.0,
    )


def test_requests_for_an_own_kernel_are_refused_on_the_hosts_kernel(tmp_path: Path) -> None:
    """Above all not the clock."""
    with pilot(tmp_path) as running:
        running.run(outfit())
        told = running.exit()
        assert (told.exit_code, told.reason) == (125, "this machine has the host's kernel")
        assert running.status() == 125


@pytest.mark.parametrize(("version", "channel"), [(1, 5), (2, 5), (3, 0)])
def test_version_3_requests_are_refused_to_older_clients(version: int, channel: int, tmp_path: Path) -> None:
    with pilot(tmp_path) as running:
        running.send(FrameKind.HELLO, 0, frames.number(frames.MAGIC, 4) + frames.number(version, 2))
        running.send(FrameKind.MEMORY, channel)
        assert refusal(running) == "protocol error"
        running.program.terminate()


BAD_FRAMES = [
    pytest.param(b"\0\0\0\0", id="no length"),
    pytest.param(b"\xff\xff\xff\xff", id="too long"),
    pytest.param(frames.encode(FrameKind.READY), id="a pilot's own frame"),
    pytest.param(frames.encode(FrameKind.STOP, 0, b"\x0f"), id="a short payload"),
    pytest.param(frames.encode(FrameKind.SIGNAL, 0, b"\xff"), id="no signal"),
    pytest.param(frames.encode(FrameKind.EXEC, 0), id="a session on channel 0"),
]


@pytest.mark.parametrize("bad", BAD_FRAMES)
def test_a_protocol_error_ends_the_connection_and_nothing_else(tmp_path: Path, bad: bytes) -> None:
    with pilot(tmp_path) as running:
        running.run(spec("sleep 1000"))
        running.take(FrameKind.READY)
        running.stream.sendall(bad)
        assert refusal(running) == "protocol error"
        with pytest.raises(EOFError):
            running.next()
        assert running.program.poll() is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=400),
            st.builds(frames.encode, st.sampled_from(list(FrameKind)), st.integers(0, 3), st.binary(max_size=200)),
        ),
        max_size=12,
    ),
    st.booleans(),
)
def test_hostile_bytes_never_bring_it_down(tmp_path: Path, pieces: list[bytes], greets: bool) -> None:
    """Not even a signal or an exit of its own: it ends only when a stop says so."""
    pieces = [piece for piece in pieces if len(piece) < 5 or piece[4] not in (FrameKind.STOP, FrameKind.SIGNAL)]
    with pilot(tmp_path) as running:
        running.take(FrameKind.HELLO)  # it is up: a stop before that is a plain end
        if greets:
            running.stream.sendall(messages.hello())
        with suppress(OSError):  # it may cut us off before it has read all
            running.stream.sendall(b"".join(pieces))
        running.stream.close()
        running.program.terminate()
        assert running.status() == 143


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.booleans())
def test_a_spec_with_any_byte_changed_is_refused_or_run(tmp_path: Path, data: st.DataObject, outfitted: bool) -> None:
    encoded = bytearray(outfit() if outfitted else spec(("true",)))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    with pilot(tmp_path) as running:
        running.run(bytes(encoded))
        answer = None
        while answer not in (FrameKind.REFUSED, FrameKind.EXIT):
            answer = running.next().kind
        running.program.terminate()
        assert running.status() >= 0
