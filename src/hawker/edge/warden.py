"""The parent of a host's edge: binds addresses, starts the edge process, starts it again when it ends or stands still.

After SIGHUP the program begins anew, with its sockets, and so does the edge process: this is how a new version is taken
up. It never accepts a connection and parses nothing that a client sent, so it has no reason to die; what waits in the
backlog of its sockets while an edge process is replaced is served by the next one. It holds the lock of the edge, so
there is one; it outlives the daemon, as pilots do. The edge process ends with it: a machine has one gate.
"""

import array
import ctypes
import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from errno import EADDRINUSE
from functools import partial
from math import inf

import msgspec

from hawker import log

CHANNEL_FD = 0
"""The descriptor at which an edge process finds its warden."""
BEATS_MISSED = 5
"""So many seconds without a word of an edge process are a loop that stands still."""
_BACKLOG = 4096
_DATAGRAM = 1 << 20
_TICK_MS = 1000
_STARTS_WITHIN = 30  # ticks, until the first word of an edge process
_AT_ONCE, _FIRST_WAIT_S, _LONGEST_WAIT_S = 3, 0.25, 10.0
_LAST_WORDS_S = {signal.SIGTERM: 3.0, signal.SIGHUP: 7.0}
"""More than the edge process takes for those who are in there."""
_PR_SET_PDEATHSIG = 1
SOFT_BYTES, HARD_BYTES = 1 << 30, 2 << 30
"""Of memory of an edge process: above the first it lets no newcomer in, above the second it is replaced."""
_LOOK_AT_MEMORY_S, _LARGE_S = 1.0, 60.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_log = log.bind("hawker.warden")
_libc = ctypes.CDLL(None, use_errno=True)


def memory_bytes(pid: int | str = "self") -> int:
    """Of a process's memory what is in RAM; 0 when it has ended."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


class MemoryWatch:
    """Whether the process is too large to let newcomers in: `large`. `used` is how many bytes it has; what was freed is
    given back to the kernel by `give_back` before that is said. `now` is a monotonic clock."""

    def __init__(self, now: Callable[[], float], used: Callable[[], int], give_back: Callable[[], object]) -> None:
        self._now = now
        self._used = used
        self._give_back = give_back
        self._looked_at = -inf
        self._since: float | None = None

    def large(self) -> bool:
        self._look()
        return self._since is not None

    def too_long(self) -> bool:
        """Whether it has been for so long that another process serves everybody better."""
        self._look()
        return self._since is not None and self._now() - self._since >= _LARGE_S

    def _look(self) -> None:
        now = self._now()
        if now < self._looked_at + _LOOK_AT_MEMORY_S:
            return
        self._looked_at = now
        if self._used() > SOFT_BYTES:
            self._give_back()
        large = self._used() > SOFT_BYTES
        self._since = (now if self._since is None else self._since) if large else None


def give_back() -> None:
    """To the kernel, what the allocator keeps for later."""
    _libc.malloc_trim(0)


class WantedDoors(msgspec.Struct, frozen=True, kw_only=True):
    """From an edge process, each second at least: where it wants to listen, for connections and for datagrams. When it
    is `leaving` it stays, for those who are in there, and the next one may begin."""

    doors: tuple[tuple[str, int], ...] = ()
    """Addresses and ports, of TCP."""
    datagrams: tuple[tuple[str, int], ...] = ()
    """Addresses and ports, of UDP."""
    leaving: bool = False


class GivenDoor(msgspec.Struct, frozen=True, kw_only=True):
    """To an edge process: a socket that listens, with `udp` for datagrams, comes with it, unless it was `refused`."""

    address: str
    """As it was wanted."""
    port: int
    """As it was wanted."""
    refused: str = ""
    udp: bool = False


class Sockets:
    """The sockets that listen, by address and port; they outlive edge processes. `taken` are those of the warden before
    this one; with `udp` they are for datagrams."""

    def __init__(self, taken: "Mapping[tuple[str, int], socket.socket] | None" = None, *, udp: bool = False) -> None:
        self.bound = dict(taken or {})
        self.udp = udp
        self.refused: dict[tuple[str, int], str] = {}

    def want(self, doors: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """Close what is not wanted any more, bind what is new, try again what was refused. Returns what has changed."""
        wanted = set(doors)
        for door in self.bound.keys() - wanted:
            self.bound.pop(door).close()
        before, self.refused = self.refused, {}
        new = sorted(wanted - self.bound.keys())
        for door in new:
            try:
                self.bound[door] = datagrams_at(*door) if self.udp else listen_at(*door)
            except OSError as error:
                self.refused[door] = _why(error)
        return [door for door in new if door in self.bound or before.get(door) != self.refused[door]]


def listen_at(address: str, port: int) -> socket.socket:
    """Raises `OSError` when the address is not the host's or somebody else listens there."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((address, port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError):
        listener.close()
        raise
    return listener


def datagrams_at(address: str, port: int) -> socket.socket:
    """Raises `OSError` when the address is not the host's or somebody else has the port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    taker = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        if family == socket.AF_INET6:
            taker.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        taker.bind((address, port))
    except (OSError, OverflowError):
        taker.close()
        raise
    return taker


def _why(error: OSError) -> str:
    return "in use by another program of this host" if error.errno == EADDRINUSE else (error.strerror or str(error))


class Warden:
    """`argv` starts an edge process, which finds its channel at `CHANNEL_FD`."""

    def __init__(
        self,
        argv: Sequence[str],
        pause: Callable[[float], bool],
        sockets: Sockets | None = None,
        most_bytes: int = HARD_BYTES,
        datagrams: Sockets | None = None,
        leaving: Iterable[int] = (),
    ) -> None:
        """`leaving` are edge processes of the warden before this one that go on for those who are in there."""
        self._argv = tuple(argv)
        self._most_bytes = most_bytes
        self._pause = pause
        self._sockets = sockets or Sockets()
        self._datagrams = datagrams or Sockets(udp=True)
        self._stopped = False
        self.renewing = False
        self.leaving = set(leaving)

    @property
    def bound(self) -> Mapping[tuple[str, int], socket.socket]:
        return self._sockets.bound

    @property
    def bound_datagrams(self) -> Mapping[tuple[str, int], socket.socket]:
        return self._datagrams.bound

    def run(self, waking: socket.socket) -> int:
        """Until a signal comes, whose number `waking` brings then. After SIGHUP it is `renewing`: whoever takes the
        sockets goes on, and the edge process has ended in peace."""
        short_lives = 0
        while not self._stopped:
            beats = self._one_life(waking)
            short_lives = 0 if beats > BEATS_MISSED else short_lives + 1
            wait_s = pause_s(short_lives)
            if not self._stopped:
                _log.warning("edge process ended", extra={"lived_s": beats, "next_in_s": wait_s})
            if not self._stopped and wait_s and self._pause(wait_s):
                self._heed(waking)
        if not self.renewing:
            self.end_leaving()
        return 0

    def end_leaving(self) -> None:
        """Nobody goes on without a warden."""
        for pid in self._reap():
            os.kill(pid, signal.SIGTERM)

    def _reap(self) -> set[int]:
        """Those that leave and have not ended."""
        self.leaving = {pid for pid in self.leaving if not _has_ended(pid)}
        return self.leaving

    def _heed(self, waking: socket.socket) -> None:
        self._stopped = True
        self.renewing = signals_in(waking) == {signal.SIGHUP}

    def _one_life(self, waking: socket.socket) -> int:
        """How many seconds it was heard of."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _DATAGRAM)
        with ours:
            with theirs:
                child = _start(self._argv, theirs)
            try:
                return self._watch(child, ours, waking)
            finally:
                how = signal.SIGHUP if self.renewing else signal.SIGTERM
                child.send_signal(how)
                if self.renewing and _leaves(ours, _LAST_WORDS_S[how]):
                    self.leaving.add(child.pid)
                else:
                    _end(child, how)

    def _watch(self, child: "subprocess.Popen[bytes]", channel: socket.socket, waking: socket.socket) -> int:
        poll, seconds, missed = select.poll(), 0, 0
        for each in (channel, waking):
            poll.register(each, select.POLLIN)
        told: tuple[set[tuple[str, int]], ...] = (set(), set())
        while True:
            ready = [number for number, _ in poll.poll(_TICK_MS)]
            self._reap()
            if waking.fileno() in ready:
                self._heed(waking)
                return seconds
            if memory_bytes(child.pid) > self._most_bytes:
                _log.error("edge process is too large", extra={"pid": child.pid, "most_mib": self._most_bytes >> 20})
                return seconds
            if channel.fileno() not in ready:
                missed += 1
                if missed >= (BEATS_MISSED if seconds else _STARTS_WITHIN):
                    _log.error("edge process stands still", extra={"pid": child.pid, "seconds": missed})
                    return seconds
                continue
            data = _received(channel)
            if not data:
                return seconds
            missed, seconds = 0, seconds + 1
            wanted = msgspec.msgpack.decode(data, type=WantedDoors)
            self._answer(channel, self._sockets, wanted.doors, told[0])
            self._answer(channel, self._datagrams, wanted.datagrams, told[1])

    def _answer(
        self, channel: socket.socket, sockets: Sockets, wanted: Iterable[tuple[str, int]], told: set[tuple[str, int]]
    ) -> None:
        """`told` is what this edge process was given: a new one is given all that is there."""
        changed = sockets.want(wanted)
        told &= set(wanted)
        for door in {*changed, *(door for door in sockets.bound if door not in told)}:
            listener = sockets.bound.get(door)
            given = GivenDoor(address=door[0], port=door[1], refused=sockets.refused.get(door, ""), udp=sockets.udp)
            fds = [] if listener is None else [listener.fileno()]
            with suppress(OSError):  # it has ended, which is seen next
                _send(channel, msgspec.msgpack.encode(given), fds)
                if listener is not None:
                    told.add(door)


def signals_in(waking: socket.socket) -> frozenset[int]:
    """The numbers of the signals that have come since the last call. Does not wait."""
    try:
        return frozenset(waking.recv(_DATAGRAM, socket.MSG_DONTWAIT))
    except BlockingIOError:
        return frozenset()


def pause_s(short_lives: int) -> float:
    """How long to wait after so many edge processes in a row that were hardly heard of."""
    extra = short_lives - _AT_ONCE
    return min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** min(extra, 8)) if extra >= 0 else 0.0


def _start(argv: Sequence[str], channel: socket.socket) -> "subprocess.Popen[bytes]":
    """It dies with us, whoever kills us: SIGKILL reaches it from the kernel."""
    in_child = partial(_in_child, os.getpid())
    return subprocess.Popen(list(argv), stdin=channel.fileno(), preexec_fn=in_child)  # noqa: PLW1509 - there is one thread


def _in_child(warden: int) -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != warden:
        os._exit(1)


def _leaves(channel: socket.socket, within_s: float) -> bool:
    """Whether the edge process says in this time that it goes on without us. Else it has ended, or is to."""
    channel.settimeout(within_s)
    with suppress(OSError):
        while data := channel.recv(_DATAGRAM):
            if msgspec.msgpack.decode(data, type=WantedDoors).leaving:
                return True
    return False


def _has_ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _end(child: "subprocess.Popen[bytes]", how: signal.Signals) -> None:
    """It was told to."""
    try:
        child.wait(_LAST_WORDS_S[how])
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _received(channel: socket.socket) -> bytes:
    try:
        return channel.recv(_DATAGRAM)
    except OSError:
        return b""


def _send(channel: socket.socket, data: bytes, fds: Sequence[int]) -> None:
    passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    channel.sendmsg([data], passed)
