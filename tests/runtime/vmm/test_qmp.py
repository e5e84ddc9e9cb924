"""The QMP client, against a server that says what a test wants it to say."""

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hawker.errors import Unavailable
from hawker.runtime.vmm.qmp import QmpAbsent, QmpRefused, monitor

pytestmark = pytest.mark.anyio

GREETING = b'{"QMP": {"version": {}, "capabilities": ["oob"]}}\r\n'
Script = Callable[[socket.socket], None]


@contextmanager
def serving(path: Path, script: Script) -> Iterator[None]:
    """One client is served; the socket listens on for others."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        client, _ = listener.accept()
        with client:
            script(client)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
        thread.join(timeout=60)
    finally:
        listener.close()


def question(client: socket.socket) -> dict[str, object]:
    line = b""
    while not line.endswith(b"\n"):
        got = client.recv(1)
        if not got:
            return {}
        line += got
    asked: dict[str, object] = json.loads(line)
    return asked


def greet(client: socket.socket) -> None:
    client.sendall(GREETING)
    asked = question(client)
    assert asked["execute"] == "qmp_capabilities"
    client.sendall(json.dumps({"return": {}, "id": asked["id"]}).encode() + b"\r\n")


async def test_an_answer_is_the_one_to_the_question(tmp_path: Path) -> None:
    def script(client: socket.socket) -> None:
        greet(client)
        asked = question(client)
        client.sendall(b'{"return": {"of": "another"}, "id": 999}\r\n')
        client.sendall(json.dumps({"return": {"of": "this"}, "id": asked["id"]}).encode() + b"\n")

    with serving(tmp_path / "s", script):
        async with monitor(tmp_path / "s") as qemu:
            assert await qemu.ask("query", dict[str, str]) == {"of": "this"}


async def test_a_refusal_is_in_qemu_s_words(tmp_path: Path) -> None:
    def script(client: socket.socket) -> None:
        greet(client)
        asked = question(client)
        error = {"error": {"class": "GenericError", "desc": "no such disk"}, "id": asked["id"]}
        client.sendall(json.dumps(error).encode() + b"\n")

    with serving(tmp_path / "s", script):
        async with monitor(tmp_path / "s") as qemu:
            with pytest.raises(QmpRefused, match="refuses block_resize: no such disk"):
                await qemu.run("block_resize")


async def test_an_event_that_came_during_a_command_is_not_lost(tmp_path: Path) -> None:
    def script(client: socket.socket) -> None:
        greet(client)
        asked = question(client)
        client.sendall(b'{"event": "STOP"}\n{"event": "MIGRATION", "data": {"status": "setup"}}\n')
        client.sendall(json.dumps({"return": {}, "id": asked["id"]}).encode() + b"\n")
        client.sendall(b'{"event": "MIGRATION", "data": {"status": "completed"}}\n')
        question(client)

    with serving(tmp_path / "s", script):
        async with monitor(tmp_path / "s") as qemu:
            await qemu.run("migrate")
            assert (await qemu.event("MIGRATION")).status == "setup"
            assert (await qemu.event("MIGRATION")).status == "completed"


async def test_a_descriptor_goes_with_its_command(tmp_path: Path) -> None:
    got: list[bytes] = []

    def script(client: socket.socket) -> None:
        greet(client)
        data, fds, _, _ = socket.recv_fds(client, 4096, 4)
        os.write(fds[0], b"by qemu")
        got.append(data)
        client.sendall(json.dumps({"return": {}, "id": json.loads(data)["id"]}).encode() + b"\n")

    with (tmp_path / "file").open("w+b") as file, serving(tmp_path / "s", script):
        async with monitor(tmp_path / "s") as qemu:
            await qemu.run("getfd", {"fdname": "memory"}, fd=file.fileno())
        assert os.pread(file.fileno(), 100, 0) == b"by qemu" and b'"fdname":"memory"' in got[0]


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (b"no json\n", "cannot be read"),
        (b'{"return": 3, "id": "three"}\n', "cannot be read"),
        (b"[" * 100_000 + b"\n", "cannot be read"),
        (b"x" * ((1 << 20) + 70_000), "without end"),
        (b'{"event": "RESET"', "ended, or hung up"),
        (b"", "ended, or hung up"),
    ],
)
async def test_a_message_of_no_monitor_is_unavailable(tmp_path: Path, said: bytes, complaint: str) -> None:
    def script(client: socket.socket) -> None:
        greet(client)
        question(client)
        try:
            client.sendall(said)
        except OSError:
            return  # it had heard enough

    with serving(tmp_path / "s", script):
        async with monitor(tmp_path / "s") as qemu:
            with pytest.raises(Unavailable, match=complaint):
                await qemu.run("query-status")


async def test_silence_ends_with_the_deadline(tmp_path: Path) -> None:
    def script(client: socket.socket) -> None:
        greet(client)
        question(client)
        question(client)

    with serving(tmp_path / "s", script):
        async with monitor(tmp_path / "s") as qemu:
            with pytest.raises(Unavailable, match=r"does not answer stop within 0\.05 s"):
                await qemu.run("stop", timeout_s=0.05)


async def test_a_second_client_is_told_that_another_is_served(tmp_path: Path) -> None:
    def script(client: socket.socket) -> None:
        greet(client)
        question(client)

    with serving(tmp_path / "s", script):
        async with monitor(tmp_path / "s"):
            with pytest.raises(Unavailable, match="serves another client"):
                async with monitor(tmp_path / "s", timeout_s=0.05):
                    raise AssertionError("it was not served")


async def test_a_peer_that_greets_wrongly_is_no_monitor(tmp_path: Path) -> None:
    def script(client: socket.socket) -> None:
        client.sendall(b'{"return": {}}\n')

    with serving(tmp_path / "s", script), pytest.raises(Unavailable, match="does not speak QMP"):
        async with monitor(tmp_path / "s"):
            raise AssertionError("it was believed")


async def test_nobody_there_is_absent(tmp_path: Path) -> None:
    with pytest.raises(QmpAbsent, match="is not there"):
        async with monitor(tmp_path / "s"):
            raise AssertionError("there was somebody")


async def test_a_link_to_another_s_socket_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "other")
    with serving(tmp_path / "other", lambda client: None):
        with pytest.raises(Unavailable, match="tampered"):
            async with monitor(tmp_path / "link"):
                raise AssertionError("it was followed")
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).connect(str(tmp_path / "other"))
