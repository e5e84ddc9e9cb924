"""The parent of a host's edge: binds addresses, starts the edge processes, starts each again when it ends or stands
still.

After SIGHUP the program begins anew, with its sockets, and so do the edge processes: this is how a new version is taken
up. It never accepts a connection and parses nothing that a client sent, so it has no reason to die; what waits in the
backlog of its sockets while an edge process is replaced is served by the next one. It holds the lock of the edge, so
there is one; it outlives the daemon, as pilots do. The edge processes end with it: a machine has one gate.
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
from operator import attrgetter

import msgspec

from hawker import log

CHANNEL_FD = 0
"""The descriptor at which an edge process finds its warden."""
BEATS_MISSED = 5
"""Seconds without a word of an edge process after which its event loop counts as standing still."""
_BACKLOG = 4096
_DATAGRAM = 1 << 20
_TICK_S = 1.0
_STARTS_WITHIN = 30  # ticks, until the first word of an edge process
_AT_ONCE, _FIRST_WAIT_S, _LONGEST_WAIT_S = 3, 0.25, 10.0
_LAST_WORDS_S = {signal.SIGTERM: 3.0, signal.SIGHUP: 7.0}
"""Seconds that an edge process has to end, by signal: more than it takes for the requests in machines."""
_PR_SET_PDEATHSIG = 1
SOFT_BYTES, HARD_BYTES = 1 << 30, 2 << 30
"""Bytes of memory of an edge process: above the first number it lets no newcomer in, above the second it is
replaced."""
_LOOK_AT_MEMORY_S, _LARGE_S = 1.0, 60.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_log = log.bind("hawker.warden")
_libc = ctypes.CDLL(None, use_errno=True)


def memory_bytes(pid: int | str = "self") -> int:
    """Bytes of a process's memory that are in RAM; 0 when it has ended."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


class MemoryWatch:
    """Watches whether the process is too large to let newcomers in: `large`. `used` gives how many bytes it has; freed
    memory is given back to the kernel by `give_back` before that is said. `now` is a monotonic clock."""

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
        """Whether the process has been large for so long that another process serves everybody better."""
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
    """Give the memory back to the kernel that the allocator keeps for later."""
    _libc.malloc_trim(0)


class WantedDoors(msgspec.Struct, frozen=True, kw_only=True):
    """A message from an edge process, each second at least: the doors at which it wants to listen, for connections and
    for datagrams. When it is `leaving` it stays, for visits in machines, and the next process may begin."""

    doors: tuple[tuple[str, int], ...] = ()
    """Addresses and ports of TCP."""
    datagrams: tuple[tuple[str, int], ...] = ()
    """Addresses and ports of UDP."""
    leaving: bool = False


class GivenDoor(msgspec.Struct, frozen=True, kw_only=True):
    """A message to an edge process: sockets that listen, with `udp` for datagrams, come with it, unless the door was
    `refused`."""

    address: str
    """The IP address, as it was wanted."""
    port: int
    """The port, as it was wanted."""
    refused: str = ""
    udp: bool = False


Doors = Mapping[tuple[str, int], Sequence[socket.socket]]


class Sockets:
    """The sockets that listen, by address and port; they outlive edge processes. There are `each` of them for a door,
    one for each process, and the kernel says by a client's address and port which one it comes to. `taken` are the
    sockets of the warden before this one, of which there may be more, or fewer; with `udp` they are for datagrams."""

    def __init__(self, taken: Doors | None = None, *, udp: bool = False, each: int = 1) -> None:
        self.bound = {door: list(sockets) for door, sockets in (taken or {}).items()}
        self.udp = udp
        self.refused: dict[tuple[str, int], str] = {}
        self._each = each
        self._alone: set[tuple[str, int]] = set()  # where no more could be bound

    def want(self, doors: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """Close the sockets of doors that are not wanted any more, bind new ones, try again those that were refused.
        Returns the doors that have changed."""
        wanted = set(doors)
        for door in self.bound.keys() - wanted:
            for each in self.bound.pop(door):
                each.close()
        before, self.refused = self.refused, {}
        new = sorted(wanted - self.bound.keys())
        for door in new:
            try:
                self.bound[door] = [self._bind(door)]
            except OSError as error:
                self.refused[door] = _why(error)
        for door, sockets in self.bound.items():
            self._share(door, sockets)
        return [door for door in new if door in self.bound or before.get(door) != self.refused[door]]

    def of(self, door: tuple[str, int], process: int) -> list[socket.socket]:
        """The sockets of a process. Those that are too many are shared out, too, so that no client waits at one for
        ever."""
        return self.bound.get(door, [])[process :: self._each]

    def _share(self, door: tuple[str, int], sockets: list[socket.socket]) -> None:
        """The first one is bound alone, so that no other program's is joined."""
        try:
            while len(sockets) < self._each and door not in self._alone:
                sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                sockets.append(self._bind(door, shared=True))
        except OSError as error:
            self._alone.add(door)
            _log.warning("fewer edge processes than wanted listen", extra={"at": door, "reason": error.strerror})

    def _bind(self, door: tuple[str, int], *, shared: bool = False) -> socket.socket:
        return (datagrams_at if self.udp else listen_at)(*door, shared=shared)


def listen_at(address: str, port: int, *, shared: bool = False) -> socket.socket:
    """A socket that listens at this address and port. Raises `OSError` when the address is not the host's or somebody
    else listens there."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((address, port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError):
        listener.close()
        raise
    return listener


def datagrams_at(address: str, port: int, *, shared: bool = False) -> socket.socket:
    """A socket for datagrams at this address and port. Raises `OSError` when the address is not the host's or somebody
    else has the port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    taker = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        if shared:
            taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            taker.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        taker.bind((address, port))
    except (OSError, OverflowError):
        taker.close()
        raise
    return taker


def _why(error: OSError) -> str:
    return "in use by another program of this host" if error.errno == EADDRINUSE else (error.strerror or str(error))


class _Life:
    """One edge process after the other, at the place `number`. Times are those of the warden's clock."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.child: subprocess.Popen[bytes] | None = None
        self.channel: socket.socket | None = None
        self.wanted = WantedDoors()
        self.told: tuple[set[tuple[str, int]], ...] = (set(), set())
        self.begins_at = 0.0
        self.beats = self.missed = self._short = 0

    def begin(self, argv: Sequence[str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _DATAGRAM)
        with theirs:
            self.child, self.channel = _start(argv, theirs), ours
        self.told, self.beats, self.missed = (set(), set()), 0, 0

    def end(self, now: float) -> None:
        assert self.child is not None and self.channel is not None, "it has begun"
        self.child.send_signal(signal.SIGTERM)
        _end(self.child, signal.SIGTERM)
        self.channel.close()
        self.child = self.channel = None
        self._short = 0 if self.beats > BEATS_MISSED else self._short + 1
        wait_s = pause_s(self._short)
        self.begins_at = now + wait_s
        _log.warning("edge process ended", extra={"lived_s": self.beats, "next_in_s": wait_s})

    def stands_still(self) -> bool:
        """A second has passed."""
        self.missed += 1
        return self.missed >= (BEATS_MISSED if self.beats else _STARTS_WITHIN)


class Warden:
    """Keeps edge processes alive, and their sockets. `argv` starts an edge process, which finds its channel at
    `CHANNEL_FD`."""

    def __init__(
        self,
        argv: Sequence[str],
        now: Callable[[], float],
        sockets: Sockets | None = None,
        most_bytes: int = HARD_BYTES,
        datagrams: Sockets | None = None,
        leaving: Iterable[int] = (),
        processes: int = 1,
    ) -> None:
        """`now` is a monotonic clock. `leaving` are edge processes of the warden before this one that go on for visits
        in machines."""
        self._argv = tuple(argv)
        self._most_bytes = most_bytes
        self._now = now
        self._sockets = sockets or Sockets(each=processes)
        self._datagrams = datagrams or Sockets(udp=True, each=processes)
        self._lives = [_Life(number) for number in range(processes)]
        self._stopped = False
        self.renewing = False
        self.leaving = set(leaving)

    @property
    def bound(self) -> Doors:
        return self._sockets.bound

    @property
    def bound_datagrams(self) -> Doors:
        return self._datagrams.bound

    def run(self, waking: socket.socket) -> int:
        """Keep the edge processes alive until a signal comes, whose number `waking` brings then. After SIGHUP it is
        `renewing`: the program that takes the sockets goes on, and the edge processes have ended in peace."""
        tick = self._now() + _TICK_S
        while not self._stopped:
            now = self._now()
            for life in self._lives:
                if life.child is None and life.begins_at <= now:
                    life.begin(self._argv_of(life))
            self._wait(waking, tick)
            if self._now() >= tick:  # the host, or we, may have stood still meanwhile: it is one second all the same
                tick = self._now() + _TICK_S
                self._look_at_all()
        self._end_all()
        if not self.renewing:
            self.end_leaving()
        return 0

    def _argv_of(self, life: _Life) -> tuple[str, ...]:
        several = len(self._lives)
        return self._argv if several == 1 else (*self._argv, "--process", str(life.number), "--of", str(several))

    def end_leaving(self) -> None:
        """End the edge processes that leave: none goes on without a warden."""
        for pid in self._reap():
            os.kill(pid, signal.SIGTERM)

    def _reap(self) -> set[int]:
        """Those that leave and have not ended."""
        self.leaving = {pid for pid in self.leaving if not _has_ended(pid)}
        return self.leaving

    def _wait(self, waking: socket.socket, tick: float) -> None:
        """For a second at most, and hear what comes."""
        poll, lives = select.poll(), {life.channel.fileno(): life for life in self._lives if life.channel is not None}
        for fd in (waking.fileno(), *lives):
            poll.register(fd, select.POLLIN)
        until = min([tick, *(life.begins_at for life in self._lives if life.child is None)])
        for fd, _ in poll.poll(max(0.0, until - self._now()) * 1000 + 1):
            if fd in lives:
                self._hear(lives[fd])
            else:
                self._stopped = True
                self.renewing = signals_in(waking) == {signal.SIGHUP}
        self._reap()

    def _look_at_all(self) -> None:
        for life in self._lives:
            if life.child is None:
                continue
            if life.stands_still():
                _log.error("edge process stands still", extra={"pid": life.child.pid, "seconds": life.missed})
                life.end(self._now())
            elif memory_bytes(life.child.pid) > self._most_bytes:
                too_large = {"pid": life.child.pid, "most_mib": self._most_bytes >> 20}
                _log.error("edge process is too large", extra=too_large)
                life.end(self._now())

    def _hear(self, life: _Life) -> None:
        channel = life.channel
        assert channel is not None, "it was heard"
        data = _received(channel)
        if not data:
            life.end(self._now())
            return
        life.missed, life.beats = 0, life.beats + 1
        life.wanted = msgspec.msgpack.decode(data, type=WantedDoors)
        self._answer(self._sockets, {door for each in self._lives for door in each.wanted.doors}, 0)
        self._answer(self._datagrams, {door for each in self._lives for door in each.wanted.datagrams}, 1)

    def _answer(self, sockets: Sockets, wanted: set[tuple[str, int]], kind: int) -> None:
        """What a process was given is `told`: a new one is given all that is there, and each is told what changed."""
        changed = set(sockets.want(wanted))
        for life in filter(attrgetter("beats"), self._lives):  # one that has not asked yet would close what it is given
            asked = {*(life.wanted.datagrams if kind else life.wanted.doors)}
            told = life.told[kind]
            told &= asked
            for door in asked & {*changed, *(door for door in sockets.bound if door not in told)}:
                self._give(life, sockets, door, told)

    @staticmethod
    def _give(life: _Life, sockets: Sockets, door: tuple[str, int], told: set[tuple[str, int]]) -> None:
        listeners = sockets.of(door, life.number)
        given = GivenDoor(address=door[0], port=door[1], refused=sockets.refused.get(door, ""), udp=sockets.udp)
        if life.channel is None or not (listeners or given.refused):
            return
        with suppress(OSError):  # it has ended, which is seen next
            _send(life.channel, msgspec.msgpack.encode(given), [each.fileno() for each in listeners])
            if listeners:
                told.add(door)

    def _end_all(self) -> None:
        """All at once: how machines are shared out among processes may be another one afterwards."""
        how = signal.SIGHUP if self.renewing else signal.SIGTERM
        there = [(life.child, life.channel) for life in self._lives if life.child is not None]
        for child, _ in there:
            child.send_signal(how)
        for child, channel in there:
            assert channel is not None, "it has begun"
            with channel:
                if self.renewing and _leaves(channel, _LAST_WORDS_S[how]):
                    self.leaving.add(child.pid)
                else:
                    _end(child, how)


def signals_in(waking: socket.socket) -> frozenset[int]:
    """The numbers of the signals that have come since the last call. Does not wait."""
    try:
        return frozenset(waking.recv(_DATAGRAM, socket.MSG_DONTWAIT))
    except BlockingIOError:
        return frozenset()


def pause_s(short_lives: int) -> float:
    """Seconds to wait after so many edge processes in a row that were hardly heard of."""
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
