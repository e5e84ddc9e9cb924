import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from math import inf
from pathlib import Path

import anyio
import pytest

from hawker.clock import ManualClock
from hawker.host.systemd import Notifier, handed_over
from tests.fixtures.activation import activated

ASK = """
import os, subprocess
from hawker.errors import CannotStart
from hawker.host.systemd import handed_over
try:
    listener = handed_over(os.environ, os.getpid())
except CannotStart as error:
    print("refused:", error)
else:
    print(listener.getsockname()[1], listener.gettimeout(), os.get_inheritable(listener.fileno()))
    print(sorted(name for name in os.environ if name.startswith("LISTEN_")))
    print(subprocess.run(["ls", "/proc/self/fd/3"], capture_output=True, close_fds=False).returncode)
"""


def told(*descriptors: int) -> list[str]:
    """What a process sees that systemd started with these descriptors."""
    command = activated([sys.executable, "-c", ASK], *descriptors)
    done = subprocess.run(command, pass_fds=descriptors, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.splitlines()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


# The socket that is handed over.


def test_a_listening_socket_is_taken_and_kept_from_children(listener: socket.socket) -> None:
    taken, left, seen_by_child = told(listener.fileno())
    assert taken == f"{listener.getsockname()[1]} 0.0 False"
    assert (left, seen_by_child) == ("[]", "2")


def test_an_ipv6_socket_is_taken_too() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
        assert told(listener.fileno())[0].startswith(f"{listener.getsockname()[1]} ")


@pytest.mark.parametrize("environ", [{}, {"LISTEN_PID": "7", "LISTEN_FDS": "0"}, {"LISTEN_PID": "7"}])
def test_nothing_is_handed_over_to_one_who_was_not_activated(environ: dict[str, str]) -> None:
    assert handed_over(environ, 7) is None
    assert environ == {}


def test_sockets_meant_for_another_process_are_left_alone() -> None:
    environ = {"LISTEN_PID": "8", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "hawker.socket"}
    assert handed_over(environ, 7) is None
    assert environ == {}, "or a child would take it for its own"


def test_two_sockets_are_refused(listener: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as second:
        (line,) = told(listener.fileno(), second.fileno())
    assert line.startswith("refused: systemd handed over 2 sockets") and "ListenStream" in line


def test_a_socket_that_does_not_listen_is_refused() -> None:
    with socket.socket() as idle:
        (line,) = told(idle.fileno())
    assert "no listening TCP socket" in line and "ListenStream" in line


def test_a_datagram_socket_is_refused() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        assert "no listening TCP socket" in told(datagrams.fileno())[0]


def test_a_unix_socket_is_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        assert "no listening TCP socket" in told(listener.fileno())[0]


def test_a_file_is_refused(tmp_path: Path) -> None:
    number = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    try:
        assert "is no socket" in told(number)[0]
    finally:
        os.close(number)


def test_a_descriptor_that_is_not_there_is_refused() -> None:
    command = [sys.executable, "-c", ASK]
    script = 'export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@"'
    done = subprocess.run(
        ["/bin/bash", "-c", script, "bash", *command], capture_output=True, text=True, timeout=120, check=True
    )
    assert "is no socket" in done.stdout


# What systemd is told.


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as endpoint:
        endpoint.bind(str(tmp_path / "notify"))
        endpoint.setblocking(False)
        yield endpoint


def test_ready_and_stopping_are_told(manager: socket.socket) -> None:
    environ = {"NOTIFY_SOCKET": manager.getsockname()}
    notifier = Notifier.of(environ, 7)
    notifier.ready("serving http://127.0.0.1:4280")
    notifier.stopping()
    assert environ == {}
    assert manager.recv(200) == b"READY=1\nSTATUS=serving http://127.0.0.1:4280"
    assert manager.recv(200).startswith(b"STOPPING=1\n")


def test_an_abstract_address_is_understood() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as endpoint:
        endpoint.bind(f"\0hawker-test-{os.getpid()}")
        Notifier.of({"NOTIFY_SOCKET": f"@hawker-test-{os.getpid()}"}, 7).ready("well")
        endpoint.setblocking(False)
        assert endpoint.recv(200) == b"READY=1\nSTATUS=well"


def test_a_manager_that_does_not_listen_stops_nobody(manager: socket.socket, tmp_path: Path) -> None:
    Notifier(str(tmp_path / "nobody")).ready("well")
    Notifier().stopping()
    for _ in range(5000):  # more than its queue holds
        Notifier(manager.getsockname()).stopping()


@pytest.mark.parametrize(
    ("environ", "watchdog_s"),
    [
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "30000000"}, 30.0),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 30.0),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, inf),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "0"}, inf),
        ({"NOTIFY_SOCKET": "/n"}, inf),
        ({"WATCHDOG_USEC": "30000000"}, inf),
    ],
)
def test_the_watchdog_is_the_one_for_this_process(environ: dict[str, str], watchdog_s: float) -> None:
    assert Notifier.of(environ, 7).watchdog_s == watchdog_s
    assert environ == {}


@pytest.mark.anyio
async def test_a_watched_daemon_says_that_it_lives(manager: socket.socket) -> None:
    clock, began = ManualClock(), ManualClock().now()
    notifier = Notifier(manager.getsockname(), watchdog_s=30.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(notifier.keep_alive, clock)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    beats = 1
    assert manager.recv(200) == b"WATCHDOG=1"
    while True:
        try:
            assert manager.recv(200) == b"WATCHDOG=1"
        except BlockingIOError:
            break
        beats += 1
    assert beats >= (clock.now() - began) / 15


@pytest.mark.anyio
async def test_a_daemon_that_nobody_watches_is_silent(manager: socket.socket) -> None:
    await Notifier(manager.getsockname()).keep_alive(ManualClock())
    with pytest.raises(BlockingIOError):
        manager.recv(200)
