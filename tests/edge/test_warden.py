"""The warden: sockets outlive edge processes, which are started again, and ended when they stand still."""

import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import msgspec
import pytest

from hawker.clock import SystemClock
from hawker.edge import warden as warden_module
from hawker.edge.warden import GivenDoor, Sockets, WantedDoors, Warden, listen_at, memory_bytes, pause_s
from tests.edge.edge_kit import HOST
from tests.ports import free_port
from tests.waiting import LONG_S, wait_for

CLOCK = SystemClock()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that says its word once is not taken for one that stands still, and each has time to end."""
    monkeypatch.setattr(warden_module, "BEATS_MISSED", 600)
    monkeypatch.setattr(warden_module, "_LAST_WORDS_S", dict.fromkeys(warden_module._LAST_WORDS_S, 60.0))


def test_sockets_are_kept_while_they_are_wanted_and_refusals_are_said_once() -> None:
    port, taken = free_port(), socket.create_server((HOST, free_port()))
    sockets, other = Sockets(), taken.getsockname()[1]
    assert set(sockets.want([(HOST, port), (HOST, other)])) == {(HOST, port), (HOST, other)}
    assert sockets.refused == {(HOST, other): "in use by another program of this host"}
    kept = sockets.bound[HOST, port]
    assert sockets.want([(HOST, port), (HOST, other)]) == [] and sockets.bound[HOST, port] is kept
    taken.close()
    assert sockets.want([(HOST, port), (HOST, other)]) == [(HOST, other)], "what was refused is tried again"
    sockets.want([])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, port))


def test_a_port_of_datagrams_is_bound_beside_that_of_connections_and_refused_where_it_is_taken() -> None:
    port, sockets, datagrams = free_port(), Sockets(), Sockets(udp=True)
    assert sockets.want([(HOST, port)]) == datagrams.want([(HOST, port)]) == [(HOST, port)]
    assert datagrams.bound[HOST, port][0].type == socket.SOCK_DGRAM
    others = Sockets(udp=True)
    assert others.want([(HOST, port)]) and others.refused == {(HOST, port): "in use by another program of this host"}
    for each in (sockets, datagrams):
        each.want([])


def test_an_address_that_is_not_the_hosts_is_refused() -> None:
    with pytest.raises(OSError, match="assign"):
        listen_at("203.0.113.77", free_port())


def test_short_lives_are_followed_by_pauses() -> None:
    assert [pause_s(lives) for lives in (0, 2, 3, 4)] == [0.0, 0.0, 0.25, 0.5] and pause_s(100) == 10.0


PROGRAM = """
import socket, sys, time, pathlib, msgspec
from hawker.clock import SystemClock
from hawker.edge.warden import WantedDoors, CHANNEL_FD
channel = socket.socket(fileno=CHANNEL_FD)
pathlib.Path(sys.argv[1]).open("a").write("life ")
channel.send(msgspec.msgpack.encode(WantedDoors(doors=(("127.0.0.1", int(sys.argv[2])),))))
data, fds, _, _ = socket.recv_fds(channel, 65536, 4)
listener = socket.socket(fileno=fds[0])
listener.setblocking(True)
while True:
    connection, _ = listener.accept()
    word = connection.recv(100)
    if word == b"die":
        sys.exit(1)
    connection.sendall(b"alive")
"""


def test_a_client_that_waits_while_an_edge_process_ends_is_served_by_the_next_one(tmp_path: Path) -> None:
    port, lives = free_port(), f"{tmp_path}/lives"
    waking, wakes = socket.socketpair()
    warden = Warden((sys.executable, "-c", PROGRAM, lives, str(port)), CLOCK.monotonic)
    thread = Thread(target=warden.run, args=(waking,))
    thread.start()
    try:
        wait_for(lambda: answers(port, b"word"))
        socket.create_connection((HOST, port)).sendall(b"die")
        later = socket.create_connection((HOST, port), timeout=LONG_S)
        later.sendall(b"word")
        assert later.recv(10) == b"alive"
        assert Path(lives).read_text() == "life life "
    finally:
        wakes.send(bytes([signal.SIGTERM]))
        thread.join(LONG_S)
    assert not thread.is_alive()


def test_a_warden_that_begins_anew_hands_its_sockets_on_and_lets_its_edge_process_end(tmp_path: Path) -> None:
    port, ended = free_port(), tmp_path / "ended"
    program = f"import signal, pathlib\nsignal.signal(signal.SIGHUP, lambda *_: (pathlib.Path({str(ended)!r}).touch(), "
    program += "sys.exit(0)))\n"
    waking, wakes = socket.socketpair()
    argv = (sys.executable, "-c", "import sys\n" + program + PROGRAM, f"{tmp_path}/lives", str(port))
    warden = Warden(argv, CLOCK.monotonic)
    thread = Thread(target=warden.run, args=(waking,))
    thread.start()
    wait_for(lambda: answers(port, b"word"))
    wakes.send(bytes([signal.SIGHUP]))
    thread.join(LONG_S)
    assert warden.renewing and ended.exists()
    with socket.create_connection((HOST, port), timeout=10), warden.bound[HOST, port][0] as kept:
        kept.settimeout(10)
        kept.accept()[0].close()


@pytest.mark.parametrize(("number", "renews"), [(signal.SIGHUP, True), (signal.SIGTERM, False)])
def test_a_signal_while_it_waits_to_start_again_is_heeded(number: signal.Signals, renews: bool, tmp_path: Path) -> None:
    waking, wakes = socket.socketpair()
    lives = tmp_path / "lives"
    ends = f"import pathlib; pathlib.Path({str(lives)!r}).open('a').write('life ')"
    with waking, wakes:
        warden = Warden((sys.executable, "-S", "-c", ends), lambda: len(lives.read_text()) if lives.exists() else 0.0)
        thread = Thread(target=warden.run, args=(waking,))
        thread.start()
        wait_for(lambda: lives.exists() and lives.read_text() == 3 * "life ")
        wakes.send(bytes([number]))
        thread.join(LONG_S)
        assert not thread.is_alive()
    assert warden.renewing is renews and len(lives.read_text().split()) == 3


def test_an_edge_process_that_needs_too_much_memory_is_replaced(tmp_path: Path) -> None:
    port, lives = free_port(), tmp_path / "lives"
    grows = PROGRAM.replace('connection.sendall(b"alive")', 'kept = bytearray(96 << 20); connection.sendall(b"alive")')
    waking, wakes = socket.socketpair()
    warden = Warden((sys.executable, "-c", grows, str(lives), str(port)), CLOCK.monotonic, most_bytes=96 << 20)
    thread = Thread(target=warden.run, args=(waking,))
    thread.start()
    try:
        wait_for(lambda: answers(port, b"word"))
        wait_for(lambda: lives.read_text().startswith("life life "))
        assert not warden.renewing
    finally:
        wakes.send(bytes([signal.SIGTERM]))
        thread.join(LONG_S)
    assert not thread.is_alive()


def test_process_that_is_started_again_is_given_no_door_before_it_asks_and_every_door_once_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It closes what it has not asked for, and what another process says must not count as its own word."""
    ends = list[socket.socket]()

    def start(argv: Sequence[str], channel: socket.socket) -> SimpleNamespace:
        ends.append(channel.dup())
        ends[-1].setblocking(False)
        return SimpleNamespace(pid=os.getpid())

    monkeypatch.setattr(warden_module, "_start", start)
    door = ("127.0.0.1", free_port())
    warden = Warden((), time.monotonic, processes=2)
    lives = warden._lives

    def asks(life: int, end: socket.socket) -> bool:
        """Whether it is given the door."""
        end.send(msgspec.msgpack.encode(WantedDoors(doors=(door,))))
        warden._hear(lives[life])
        return is_given(end)

    def is_given(end: socket.socket) -> bool:
        with suppress(BlockingIOError):
            data, fds, _, _ = socket.recv_fds(end, 1 << 16, 8)
            for fd in fds:
                os.close(fd)
            return msgspec.msgpack.decode(data, type=GivenDoor).port == door[1] and len(fds) == 1
        return False

    for life in lives:
        life.begin(())
    assert asks(0, ends[0]) and asks(1, ends[1])
    lives[1].begin(())
    assert not asks(0, ends[0]) and not is_given(ends[2])
    assert asks(1, ends[2])
    assert not asks(1, ends[2])
    warden._sockets.want(())


def test_the_memory_of_a_process_is_known_until_it_has_ended() -> None:
    assert memory_bytes() > 10 << 20 and memory_bytes(2**22 + 1) == 0


def answers(port: int, word: bytes) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=10) as connection:
            connection.sendall(word)
            return connection.recv(10) == b"alive"
    except OSError:
        return False


LEAVES = """
import signal, socket, sys, pathlib, time, msgspec
from hawker.clock import SystemClock
from hawker.edge.warden import WantedDoors, CHANNEL_FD

def leave(*_):
    channel = socket.socket(fileno=CHANNEL_FD)
    channel.send(msgspec.msgpack.encode(WantedDoors()))
    channel.send(msgspec.msgpack.encode(WantedDoors(leaving=True)))
    channel.shutdown(socket.SHUT_RDWR)
    while not pathlib.Path(sys.argv[1] + ".end").exists():
        time.sleep(0.01)
    sys.exit(0)

signal.signal(signal.SIGHUP, leave)
"""


def test_an_edge_process_that_leaves_goes_on_beside_the_next_one_until_the_warden_ends(tmp_path: Path) -> None:
    port, lives = free_port(), f"{tmp_path}/lives"
    argv = (sys.executable, "-c", LEAVES + PROGRAM, lives, str(port))
    first, waking = renewed(argv, port)
    (pid,) = first.leaving
    assert memory_bytes(pid) > 0, "it lives"
    sockets = Sockets(first.bound)
    second = Warden(argv, CLOCK.monotonic, sockets, leaving=first.leaving)
    woken, wakes = socket.socketpair()
    thread = Thread(target=second.run, args=(woken,))
    thread.start()
    try:
        wait_for(lambda: answers(port, b"word"))
        assert Path(lives).read_text() == "life life " and second.leaving == {pid}
        Path(f"{lives}.end").touch()
        wait_for(lambda: not second.leaving)
    finally:
        wakes.send(bytes([signal.SIGTERM]))
        thread.join(LONG_S)
    waking.close()


def test_a_warden_that_ends_takes_those_that_leave_with_it(tmp_path: Path) -> None:
    port = free_port()
    warden, waking = renewed((sys.executable, "-c", LEAVES + PROGRAM, f"{tmp_path}/lives", str(port)), port)
    (pid,) = warden.leaving
    warden.end_leaving()
    wait_for(lambda: not memory_bytes(pid))
    for sockets in warden.bound.values():
        for each in sockets:
            each.close()
    waking.close()


def renewed(argv: tuple[str, ...], port: int) -> tuple[Warden, socket.socket]:
    """A warden that has been told to begin anew while somebody is in its edge process. It runs in the main thread, with
    which its edge processes end."""
    waking, wakes = socket.socketpair()
    warden = Warden(argv, CLOCK.monotonic)

    def renew() -> None:
        wait_for(lambda: answers(port, b"word"))
        wakes.send(bytes([signal.SIGHUP]))

    thread = Thread(target=renew)
    thread.start()
    warden.run(waking)
    thread.join(LONG_S)
    wakes.close()
    assert warden.renewing
    return warden, waking
