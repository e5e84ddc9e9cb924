"""`hawker proxy` against a node whose machines echo."""

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hawker.cli.commands.proxy import Forward, forward_of
from hawker.cli.exits import ExitStatus
from hawker.errors import Unavailable
from hawker.machine import State
from tests.cli.conftest import Hawker
from tests.cli.fake_node import TOKEN, FakeNode, machine
from tests.e2e.running_node import HAWKER

WITHIN_S = 90


@contextmanager
def proxy(url: str, *words: str) -> Iterator[tuple[dict[str, Any], "subprocess.Popen[str]"]]:
    """What it says once it listens, and the process."""
    pipe = subprocess.PIPE
    command = [HAWKER, "--url", url, "--token", TOKEN, "proxy", *words, "-o", "json"]
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
    try:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield json.loads(line), process
    finally:
        process.kill()
        process.communicate()


def connected(said: dict[str, Any]) -> socket.socket:
    host, _, port = said["local"].rpartition(":")
    return socket.create_connection((host, int(port)), WITHIN_S)


def give(connection: socket.socket, data: bytes) -> None:
    connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)


def all_of(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def echoed(said: dict[str, Any], data: bytes) -> bytes:
    with connected(said) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return all_of(connection)


def test_a_connection_reaches_the_port_of_the_machine_that_is_named(node: FakeNode, url: str) -> None:
    node.add("shop", machine(name="db"))
    with proxy(url, "0:5432", "db") as (said, process):
        assert said["app"] == "shop" and said["machine"] == "3d8f0000000001" and said["port"] == 5432
        assert echoed(said, b"hello") == b"hello"
        process.send_signal(signal.SIGINT)
        assert process.wait(WITHIN_S) == 0
    (call,) = node.calls["machine_port"]
    assert call.body.port == 5432 and call.params.machine_id == "3d8f0000000001"


def test_connections_to_an_app_take_turns_among_its_started_machines(node: FakeNode, url: str) -> None:
    asleep = machine("3d8f0000000003", state=State.STOPPED)
    away = machine("3d8f0000000004", host_status="unreachable")
    node.add("shop", machine("3d8f0000000001"), machine("3d8f0000000002"), asleep, away)
    with proxy(url, "0:80", "shop") as (said, _):
        assert "machine" not in said or said["machine"] is None
        answers = [echoed(said, b"x") for _ in range(4)]
    assert answers == [b"x"] * 4
    assert {call.params.machine_id for call in node.calls["machine_port"]} == {"3d8f0000000001", "3d8f0000000002"}


def test_many_connections_at_once_keep_their_bytes_apart(node: FakeNode, url: str) -> None:
    node.add("shop", machine(name="db"))
    sent = [os.urandom(200_000) for _ in range(24)]
    got: dict[int, bytes] = {}
    with proxy(url, "0:5432", "db") as (said, _):

        def exchange(number: int) -> None:
            with connected(said) as connection:
                giver = threading.Thread(target=give, args=(connection, sent[number]))
                giver.start()
                got[number] = all_of(connection)
                giver.join(WITHIN_S)

        threads = [threading.Thread(target=exchange, args=(number,)) for number in range(len(sent))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WITHIN_S)
    assert got == dict(enumerate(sent))


def test_a_port_that_nothing_listens_on_is_said_and_the_connection_is_reset(node: FakeNode, url: str) -> None:
    node.add("shop", machine(name="db"))
    node.failures["machine_port"] = Unavailable("machine db takes no connection on port 5432")
    with proxy(url, "0:5432", "db") as (said, process):
        with connected(said) as connection, pytest.raises(ConnectionResetError):
            all_of(connection)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=WITHIN_S)
    assert err == "error: machine db takes no connection on port 5432\n"


@pytest.mark.parametrize(("text", "found"), [("5432", (5432, 5432)), ("0:80", (0, 80)), ("8080:80", (8080, 80))])
def test_ports_are_one_or_two_numbers(text: str, found: tuple[int, int]) -> None:
    assert forward_of(text) == Forward(*found)


@pytest.mark.parametrize("text", ["", ":", "80:", "x:80", "0", "80:0", "80:65536", "1:2:3", "-1:80", "٣:80"])
def test_a_text_that_is_no_pair_of_ports_is_refused(hawker: Hawker, text: str) -> None:
    done = hawker("proxy", "--", text, "db")
    assert done.status == ExitStatus.USAGE and f"{text!r} " in done.err


def test_the_help_has_one_example_a_line(hawker: Hawker) -> None:
    lines = hawker("proxy", "--help").out.splitlines()
    assert lines[lines.index("  Examples:") + 1].startswith("    hawker proxy 5432 db  ")


def test_a_target_that_cannot_answer_is_said_at_once(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine(name="db", state=State.STOPPED))
    done = hawker("proxy", "0:80", "db")
    assert done.status == ExitStatus.FAILED and "is stopped: start it" in done.err
    done = hawker("proxy", "0:80", "shop")
    assert done.status == ExitStatus.FAILED and "no machine of app shop is started" in done.err
    done = hawker("proxy", "0:80", "nobody")
    assert done.status == ExitStatus.NOT_FOUND and "no machine and no app" in done.err


def test_a_local_port_that_is_taken_is_said(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine(name="db"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = hawker("proxy", f"{taken.getsockname()[1]}:80", "db")
    assert done.status == ExitStatus.FAILED and "cannot listen at 127.0.0.1" in done.err
    assert "cannot listen at example.com" in hawker("proxy", "-b", "example.com", "1:80", "db").err
