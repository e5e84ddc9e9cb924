"""`hawker proxy` to a real machine: its programs answer to connections of this computer's port, as many as come."""

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hawker.chaos.hostile.python_image import PYTHON, REFERENCE
from tests.e2e.command_line import CommandLine
from tests.e2e.running_node import RunningNode
from tests.waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.slow]
WITHIN_S = 90
ECHO = """
import socket, threading
def serve(listener):
    while True:
        threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()
def echo(connection):
    with connection:
        while data := connection.recv(65536):
            connection.sendall(data)
every = socket.create_server(("0.0.0.0", 7))
threading.Thread(target=serve, args=(socket.create_server(("::", 6), family=socket.AF_INET6),), daemon=True).start()
threading.Thread(target=serve, args=(socket.create_server(("127.0.0.1", 8)),), daemon=True).start()
serve(every)
"""


@pytest.fixture(scope="module")
def hawker(node: RunningNode, python_image: Path) -> CommandLine:
    """With a machine `echo` that is started."""
    line = CommandLine(node.environment | {"HAWKER_DATA_DIR": str(node.data_dir)})
    line.say("images", "import", str(python_image), "--as", REFERENCE)
    line.say("run", REFERENCE, "--name", "echo", "--", PYTHON, "-c", ECHO)
    return line


@contextmanager
def led_to(hawker: CommandLine, port: int, target: str = "echo") -> Iterator[int]:
    """The port of this computer. Ctrl-C ends the command."""
    process = hawker.begin("proxy", f"0:{port}", target, "-o", "json")
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()
        yield int(json.loads(line)["local"].rpartition(":")[2])
        process.send_signal(signal.SIGINT)
        assert process.wait(WITHIN_S) == 0
    finally:
        process.kill()
        process.communicate()


def give(connection: socket.socket, data: bytes) -> None:
    connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)


def echoed(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), WITHIN_S) as connection:
        giver = threading.Thread(target=give, args=(connection, data))
        giver.start()
        got = b"".join(iter(lambda: connection.recv(65536), b""))
        giver.join(WITHIN_S)
    return got


def answers(port: int) -> bool:
    with suppress(OSError):
        return echoed(port, b"x") == b"x"
    return False


def heard(hawker: CommandLine, port: int) -> str:
    """What the command says of one connection, which is reset."""
    process = hawker.begin("proxy", f"0:{port}", "echo", "-a", "default", "-o", "json")
    try:
        assert process.stdout is not None
        local = int(json.loads(process.stdout.readline())["local"].rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", local), WITHIN_S) as client, pytest.raises(ConnectionResetError):
            client.recv(1)
        process.send_signal(signal.SIGINT)
        return process.communicate(timeout=WITHIN_S)[1].decode()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("port", [7, 6])
def test_a_port_of_a_machine_is_reached_over_ipv4_and_ipv6(hawker: CommandLine, port: int) -> None:
    sent = os.urandom(5 << 20)
    with led_to(hawker, port) as local:
        wait_for(lambda: answers(local))
        assert echoed(local, sent) == sent


def test_connections_at_once_keep_their_bytes_apart(hawker: CommandLine) -> None:
    sent = [os.urandom(100_000) for _ in range(60)]
    got: dict[int, bytes] = {}
    with led_to(hawker, 7) as local:

        def exchange(number: int) -> None:
            got[number] = echoed(local, sent[number])

        threads = [threading.Thread(target=exchange, args=(number,)) for number in range(len(sent))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WITHIN_S)
    assert got == dict(enumerate(sent))


def test_a_closed_port_and_one_that_listens_on_loopback_are_told_apart(hawker: CommandLine) -> None:
    assert "does a program in it listen there" in heard(hawker, 9)
    assert "its program listens on 127.0.0.1:8 only, let it listen on 0.0.0.0 or ::" in heard(hawker, 8)


def test_a_limited_token_needs_control_of_the_app(hawker: CommandLine, node: RunningNode) -> None:
    narrow = hawker.say("tokens", "create", "--for", "reader", "--app", "default", "--actions", "r").strip()
    reader = CommandLine({**hawker.environment, "HAWKER_URL": node.url, "HAWKER_TOKEN": narrow})
    assert reader.say("machine", "list", "-q")
    assert "does not allow C" in heard(reader, 7)
