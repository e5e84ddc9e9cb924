"""The sample image's program: a web server, and the tools that an image without a shell has."""

import http.client
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hawker import guest
from tests.ports import free_port
from tests.waiting import wait_for


@contextmanager
def serving(**env: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    port = free_port()
    program = subprocess.Popen(
        [str(guest.hello_path())], env={"PORT": str(port), **env}, stdout=subprocess.PIPE, text=True
    )
    with program:
        try:
            assert program.stdout is not None and program.stdout.readline() == f"listening on port {port}\n"
            yield program, port
        finally:
            program.kill()


def ask(port: int, path: str, method: str = "GET", host: str = "127.0.0.1") -> tuple[int, str]:
    connection = http.client.HTTPConnection(host, port, timeout=60)
    connection.request(method, path)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def tool(*words: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(guest.hello_path()), *words], capture_output=True, text=True, check=False, input="in\n")


def test_hello_says_which_machine_it_is() -> None:
    with serving(FLY_MACHINE_ID="m1", FLY_REGION="ams", FLY_APP_NAME="shop") as (_, port):
        assert ask(port, "/") == (200, "Hello from machine m1 of app shop in ams!\n")
        assert ask(port, "/health") == (200, "ok\n")
        assert "FLY_REGION=ams\n" in ask(port, "/env")[1]
        assert ask(port, "/burn/1") == (200, "burnt 1 MB\n")
        assert ask(port, "/else")[0] == 404


def test_hello_counts_its_requests_for_prometheus() -> None:
    with serving() as (_, port):
        ask(port, "/")
        assert ask(port, "/metrics")[1].endswith("\n# TYPE hello_requests_total counter\nhello_requests_total 2\n")


def test_hello_serves_both_address_families() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    with serving() as (_, port):
        assert ask(port, "/health", host="::1") == (200, "ok\n")


def test_hello_ends_with_the_code_it_is_told() -> None:
    with serving() as (program, port):
        assert ask(port, "/exit/7", "POST") == (200, "bye\n")
        assert program.wait(60) == 7


def test_looking_at_exit_does_not_end_it() -> None:
    with serving() as (program, port):
        assert ask(port, "/exit/7")[0] == 404
        assert program.poll() is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once_and_cleanly(number: signal.Signals) -> None:
    with serving() as (program, _):
        program.send_signal(number)
        assert program.wait(60) == 0


def test_each_request_is_a_line_of_output() -> None:
    with serving() as (program, port):
        ask(port, "/health")
        assert program.stdout is not None and program.stdout.readline() == "GET /health 200\n"


def test_a_silent_client_holds_up_nobody() -> None:
    with serving() as (_, port), socket.create_connection(("127.0.0.1", port)):
        assert ask(port, "/health") == (200, "ok\n")


def test_clients_that_talk_nonsense_are_dropped() -> None:
    with serving() as (_, port):
        for nonsense in (b"\0" * 5000, b"\r\n\r\n", b"GET\r\n\r\n", os.urandom(4096) + b"\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", port), timeout=60) as client, suppress(OSError):
                client.sendall(nonsense)
                client.shutdown(socket.SHUT_WR)
                while client.recv(4096):
                    pass
        wait_for(lambda: ask(port, "/health") == (200, "ok\n"))


def test_a_taken_port_is_said() -> None:
    with serving() as (_, port):
        second = tool(str(port))
        assert second.returncode == 1 and f"cannot listen on port {port}: " in second.stderr


def test_the_toolbox(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content\n")
    assert tool("echo", "a", "b").stdout == "a b\n"
    assert tool("cat", str(tmp_path / "file")).stdout == "content\n"
    assert tool("cat").stdout == "in\n"
    assert tool("cat", "/nope").returncode == 1
    assert tool("exit", "9").returncode == 9
    assert tool("sleep", "0.01").returncode == 0
    assert tool("id").stdout.startswith(f"uid={os.getuid()} ")
    assert "PATH=" in tool("env").stdout
    assert tool("dance").returncode == 2
