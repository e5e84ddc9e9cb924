"""vsock as VMMs offer it: their socket comes late, refuses while the guest is not up, and may be anything at all."""

import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from hawker.clock import ManualClock
from hawker.errors import Unavailable
from hawker.runtime.pilot import frames, messages, requests
from hawker.runtime.pilot.frames import FrameKind, FrameParser
from hawker.runtime.pilot.journal_disk import JOURNAL_BYTES
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.pilot.vsock import VsockChannel
from tests.runtime.pilot.liar import DEADLINE_S, HELLO
from tests.runtime.pilot.records import output_record
from tests.runtime.plain import spec
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
CLOCK = ManualClock()
CHANNEL = VsockChannel(CLOCK)
CONNECT = b"CONNECT 1024\n"


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[RunDir]:
    """Of a machine that lives."""
    made = RunDir(tmp_path)
    made.vmm.mkdir()
    with CHANNEL.files(made, spec("unused")) as fds, anyio.fail_after(120):
        assert len(fds) == 1
        yield made


@contextmanager
def vmm(path: Path, answer: bytes, *, refusals: int = 0) -> Iterator[list[bytes]]:
    """It closes the first connections, as while nobody listens in the guest, and says `answer` to the one after; what
    it heard there, once the client has hung up, is in the list."""
    heard = [b""]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            for _ in range(refusals):
                with listener.accept()[0] as refused:
                    assert refused.recv(64).startswith(CONNECT)
            with listener.accept()[0] as stream:
                heard[0] = stream.recv(len(CONNECT), socket.MSG_WAITALL)
                stream.sendall(answer)
                while data := stream.recv(1 << 16):
                    heard[0] += data

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield heard
        finally:
            thread.join(DEADLINE_S)


async def test_a_message_waits_until_the_guest_listens(run: RunDir) -> None:
    pilot = CHANNEL.connect(run)  # there is not even a socket
    requests.send_spec(pilot, b"a run spec")
    with vmm(run.vsock, b"OK 1073741824\n" + HELLO, refusals=3) as heard:
        assert (await pilot.hello()).instance_id == "instance"
        pilot.close()
    assert heard[0].startswith(CONNECT)
    greeting, part = FrameParser().feed(heard[0].removeprefix(CONNECT))
    assert (greeting.kind, part.kind, part.payload) == (FrameKind.HELLO, FrameKind.SPEC, b"\1a run spec")


async def test_a_message_before_closing_is_delivered_once_the_guest_listens(run: RunDir) -> None:
    pilot = CHANNEL.connect(run)
    requests.request_stop(pilot, 15, 1.0)
    pilot.close()
    with vmm(run.vsock, b"OK 1\n", refusals=1) as heard:
        await eventually(lambda: heard[0].endswith(messages.stop_request(15, 1.0)))


async def test_a_waiting_caller_is_told_when_the_machine_ends(run: RunDir, tmp_path: Path) -> None:
    ended = RunDir(tmp_path / "ended")
    ended.path.mkdir()
    with CHANNEL.files(ended, spec("unused")):
        pilot = CHANNEL.connect(ended)
    with pytest.raises(Unavailable, match="was lost"):
        await pilot.hello()
    with pytest.raises(Unavailable, match="does not run"):
        CHANNEL.connect(ended)


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"OK\n", b"OK many\n", b"O" * 100, b"\n", b"OK 99999999999\n"]
)
async def test_a_vmm_that_does_not_speak_of_vsock_is_unavailable(run: RunDir, answer: bytes) -> None:
    with vmm(run.vsock, answer):
        async with CHANNEL.connect(run) as pilot:
            with pytest.raises(Unavailable, match="not of vsock"):
                await pilot.hello()


async def test_a_guest_that_hangs_up_is_gone(run: RunDir) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(run.vsock))
        listener.listen()
        async with CHANNEL.connect(run) as pilot:
            stream = await anyio.to_thread.run_sync(lambda: listener.accept()[0])
            stream.sendall(b"OK 1\n" + frames.encode(FrameKind.READY))
            stream.close()
            assert (await pilot.take()).kind == FrameKind.READY
            with pytest.raises(Unavailable, match="was lost"):
                await pilot.take()


async def test_a_link_in_the_socket_s_place_leads_nowhere(run: RunDir, tmp_path: Path) -> None:
    """A VMM that is no longer ours would have us speak to another machine's pilot."""
    with socket.socket(socket.AF_UNIX) as another:
        another.bind(str(tmp_path / "another"))
        another.listen()
        another.setblocking(False)
        run.vsock.symlink_to(tmp_path / "another")
        async with CHANNEL.connect(run) as pilot:
            with anyio.move_on_after(0.1) as waited:
                await pilot.hello()
        assert waited.cancelled_caught
        with pytest.raises(BlockingIOError):
            another.accept()


async def test_output_is_never_later_than_the_host_s_own_time(run: RunDir) -> None:
    with run.journal.open("r+b") as ledger:
        ledger.seek(JOURNAL_BYTES)
        ledger.write(output_record(0, b"said", unix_ns=(1 << 63) - 1))
    assert [(chunk.data, chunk.at) for chunk in CHANNEL.output(run)] == [(b"said", CLOCK.now())]
