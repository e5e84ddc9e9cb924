"""Whether a host is there although its daemon is not: a process beside the daemon, which outlives it, answers to the
other nodes of the cluster for as long as the host lives. They ask it once gossip calls the node down.

One question and one answer, a datagram each, over the port of the node's gossip plus `PORT_OFFSET`; both are
authenticated with a key made of the cluster's, and an answer is never longer than its question. Who has no key gets
silence. The daemon holds a lock, which the kernel takes from it however it ends.
"""

import fcntl
import hmac
import os
import select
import signal
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
import click
import msgspec

from hawker import log
from hawker.auth.peer_key import presence_key
from hawker.clock import Clock, SystemClock
from hawker.cluster import host_of, read_cluster
from hawker.errors import CannotStart
from hawker.gossip.contract import Fate, Member
from hawker.ids import NodeId
from hawker.place import Place, default_data_dir
from hawker.token_bucket import Allowance, TokenBuckets

PORT_OFFSET = 3
"""The difference from the port of a node's gossip to the port at which its host answers."""
QUESTION_BYTES = 256
NONCE_BYTES = 16
_MAC_BYTES = 32
_ASKS, _SAYS = b"hawker host?", b"hawker host!"
_ANSWERS = Allowance(200.0, 400.0)
"""The answers to questions of the cluster from one address: each daemon there asks a few times a second at most. Other
questions cost only the MAC that refuses them, so that nobody without a key uses up what the cluster may ask."""
_FLOCK = struct.Struct("hhqqi4x")  # fcntl(2): type, whence, start, length, process
_TICK_MS = 500
_READ_AT_ONCE = 256
_BIND_AGAIN_TICKS = 10
_log = log.bind("hawker.presence")


class HostWord(msgspec.Struct, frozen=True, kw_only=True):
    """The answer that a node's host is up. `away_s` is for how many seconds its daemon has been away; 0 while it is
    there."""

    node: NodeId
    away_s: float = 0.0


def question(key: bytes, nonce: bytes) -> bytes:
    """`nonce` is random, of 16 bytes."""
    padded = (_ASKS + nonce).ljust(QUESTION_BYTES - _MAC_BYTES, b"\0")
    return padded + hmac.digest(key, padded, "sha256")


def read_question(keys: Sequence[bytes], data: bytes) -> tuple[bytes, bytes] | None:
    """The key that sealed a question, and its nonce; None for bytes that are no question of the cluster."""
    if len(data) != QUESTION_BYTES or not data.startswith(_ASKS):
        return None
    padded, mac = data[:-_MAC_BYTES], data[-_MAC_BYTES:]
    for key in keys:
        if hmac.compare_digest(hmac.digest(key, padded, "sha256"), mac):
            return key, padded[len(_ASKS) : len(_ASKS) + NONCE_BYTES]
    return None


def answer(key: bytes, nonce: bytes, word: HostWord) -> bytes:
    said = _SAYS + nonce + msgspec.msgpack.encode(word)
    whole = said + hmac.digest(key, said, "sha256")
    assert len(whole) <= QUESTION_BYTES, "nobody is sent more than he has sent"
    return whole


def read_answer(key: bytes, nonce: bytes, data: bytes) -> HostWord | None:
    """The host's answer to the question with this nonce; None for bytes that are no answer to it."""
    said, mac = data[:-_MAC_BYTES], data[-_MAC_BYTES:]
    head = _SAYS + nonce
    if not said.startswith(head) or not hmac.compare_digest(hmac.digest(key, said, "sha256"), mac):
        return None
    try:
        return msgspec.msgpack.decode(said[len(head) :], type=HostWord)
    except ValueError:
        return None


class DaemonMark:
    """A file in `folder` that a daemon has locked for as long as it lives. Whoever looks takes no lock."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "daemon"

    def hold(self) -> int:
        """Locks the file for a daemon and returns its descriptor, to be kept open. Raises `OSError`."""
        held = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.fcntl(held, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0))
        except OSError:
            os.close(held)
            raise
        return held

    @property
    def is_held(self) -> bool:
        """Whether any process holds it."""
        try:
            asking = os.open(self._file, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind = _FLOCK.unpack(fcntl.fcntl(asking, fcntl.F_OFD_GETLK, asked))[0]
            return bool(kind != fcntl.F_UNLCK)
        finally:
            os.close(asking)


class KnownCluster:
    """The cluster as the node's own file of it says now; it is empty while the node is in none, or the file cannot be
    read."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen: tuple[int, int] | None = None
        self._keys: Sequence[bytes] = ()
        self._place: tuple[str, int] | None = None

    @property
    def keys(self) -> Sequence[bytes]:
        """The cluster's keys to authenticate with."""
        self._read()
        return self._keys

    @property
    def place(self) -> tuple[str, int] | None:
        """Host and port of the node's gossip."""
        self._read()
        return self._place

    def _read(self) -> None:
        try:
            found = self._file.stat()
            seen = (found.st_mtime_ns, found.st_ino)
            if seen == self._seen:
                return
            cluster = read_cluster(self._file)
        except (OSError, CannotStart):
            cluster, seen = None, None
        self._seen = seen
        self._keys = () if cluster is None else tuple(map(presence_key, cluster.keyring.secrets.values()))
        self._place = None if cluster is None else (cluster.advertise, cluster.peer_port)


class HostPresence:
    """The work of the process that answers for a host. `keys` are those of the cluster now."""

    def __init__(self, node: NodeId, keys: Callable[[], Sequence[bytes]], mark: DaemonMark, clock: Clock) -> None:
        self._node = node
        self._keys = keys
        self._mark = mark
        self._now = clock.monotonic
        self._buckets = TokenBuckets(_ANSWERS)
        self._away_since: float | None = None

    def look(self) -> None:
        """Notes whether the daemon is there. To be called each second at least."""
        if self._mark.is_held:
            self._away_since = None
        elif self._away_since is None:
            self._away_since = self._now()

    def reply(self, data: bytes, asker: str) -> bytes | None:
        """The answer to a datagram from the address `asker`; None where it is not answered."""
        asked = read_question(self._keys(), data)
        if asked is None or not self._buckets.take(asker.encode(), self._now()):
            return None
        self.look()
        away_s = 0.0 if self._away_since is None else max(0.001, self._now() - self._away_since)
        return answer(*asked, HostWord(node=self._node, away_s=away_s))


def serve(presence: HostPresence, place: Callable[[], tuple[str, int] | None], waking: socket.socket) -> None:
    """Answer until `waking` is readable. `place` is the host and port of the node's gossip now; None in no cluster."""
    bound: socket.socket | None = None
    at: tuple[str, int] | None = None
    ticks, refused = 0, ""
    while True:
        wanted = place()
        if bound is not None and at != wanted:
            bound.close()
            bound = None
        if bound is None and wanted is not None and ticks % _BIND_AGAIN_TICKS == 0:
            at = wanted
            try:
                bound, refused = _bound_at(wanted[0], wanted[1] + PORT_OFFSET), ""
            except (OSError, OverflowError, UnicodeError) as error:
                if str(error) != refused:
                    refused = str(error)
                    _log.warning("cannot answer for the host", extra={"host": wanted[0], "reason": refused})
        ticks += 1
        poll = select.poll()
        for each in (waking, bound):
            if each is not None:
                poll.register(each, select.POLLIN)
        ready = {number for number, _ in poll.poll(_TICK_MS)}
        presence.look()
        if waking.fileno() in ready:
            break
        if bound is not None and bound.fileno() in ready:
            _answer_some(bound, presence)
    if bound is not None:
        bound.close()


def _answer_some(bound: socket.socket, presence: HostPresence) -> None:
    """What has come, up to a bound: a flood is read as fast as it can be, and pushes out few questions of others."""
    for _ in range(_READ_AT_ONCE):
        try:
            data, asker = bound.recvfrom(QUESTION_BYTES + 1)
        except OSError:  # nothing more has come
            return
        reply = presence.reply(data, asker[0])
        if reply is not None:
            with suppress(OSError):  # who has asked may be gone
                bound.sendto(reply, asker)


def _bound_at(host: str, port: int) -> socket.socket:
    """Where gossip is, so that an answer comes from the address that was asked. Raises `OSError`, `OverflowError`,
    `UnicodeError`."""
    family, kind, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    made = socket.socket(family, kind | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        made.bind(where)
    except BaseException:
        made.close()
        raise
    return made


def _run(data_dir: Path | None, log_level: str) -> int:
    log.configure(log_level)
    place = Place((data_dir or default_data_dir()).resolve())
    node = place.remembered()
    if not place.presence.is_dir() or node is None:
        raise CannotStart(f"{place.presence} is not there: `hawker up` makes it, and starts this in a cluster")
    lock = os.open(place.presence / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _log.info("another one answers for the host", extra={"folder": str(place.presence)})
        return 0
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    cluster = KnownCluster(place.cluster)
    presence = HostPresence(node, lambda: cluster.keys, DaemonMark(place.presence), SystemClock())
    serve(presence, lambda: cluster.place, _woken_by_signals())
    return 0


def _woken_by_signals() -> socket.socket:
    """Readable once a signal to stop has come."""
    waking, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.set_wakeup_fd(wakes.detach(), warn_on_full_buffer=False)
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda number, frame: None)
    return waking


command = click.Command(
    "presence",
    callback=_run,
    help="Answer for this host to its cluster, also while the daemon is away. `hawker up` starts this.",
    params=[
        click.Option(["--data-dir"], type=click.Path(path_type=Path), help="The node's data directory."),
        click.Option(["--log-level"], default="info", help="debug, info, warning or error."),
    ],
)


AWAY = "away"
"""The state of a node whose host is up and whose daemon is not there."""
LOOK_S = 1.0
_TRIES, _WAIT_S = 3, 0.3
_SHOWN_S, _TRUSTED_S = 15.0, 2.0
"""The seconds that a host's word may be old for a node that only shows it, and for a node that starts a spare by it."""
_AT_ONCE = 32
_ERRORS = (OSError, ValueError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)

AskHost = Callable[[Member], Awaitable[HostWord | None]]
"""A member's host; None when it is silent."""


async def nobody(member: Member) -> HostWord | None:
    """Asks nobody and returns None: for a cluster where hosts answer nothing."""
    return None


class HostAsker:
    """`keys` are made of the cluster's, the one to ask with first."""

    def __init__(self, keys: Callable[[], Sequence[bytes]], clock: Clock) -> None:
        self._keys = keys
        self._clock = clock

    async def __call__(self, member: Member) -> HostWord | None:
        keys, port = self._keys(), member.address.rpartition(":")[2]
        if not keys or not port.isdecimal() or int(port) + PORT_OFFSET > 65_535:
            return None
        try:
            async with await anyio.create_connected_udp_socket(host_of(member.address), int(port) + PORT_OFFSET) as udp:
                for _ in range(_TRIES):
                    word = await self._ask(udp, keys[0])
                    if word is not None and word.node == member.node:
                        return word
        except _ERRORS:
            return None
        return None

    async def _ask(self, udp: anyio.abc.ConnectedUDPSocket, key: bytes) -> HostWord | None:
        nonce = self._clock.token_bytes(NONCE_BYTES)
        await udp.send(question(key, nonce))
        with anyio.move_on_after(_WAIT_S):
            while True:
                word = read_answer(key, nonce, await udp.receive())
                if word is not None:
                    return word
        return None


class HostWatch:
    """The knowledge of the hosts of nodes that are down. `lost_after_s`: a daemon that is away for so long counts as a
    lost host; never when it is None."""

    def __init__(
        self, members: Callable[[], Sequence[Member]], ask: AskHost, clock: Clock, lost_after_s: float | None = None
    ) -> None:
        self._members = members
        self._ask = ask
        self._clock = clock
        self._lost_after_s = lost_after_s
        self._words: dict[NodeId, tuple[float, HostWord | None]] = {}

    async def serve(self) -> None:
        """Asks the hosts of nodes that are down, until cancelled. Nobody is asked while every node is there."""
        while True:
            down = [member for member in self._members() if member.fate is Fate.DOWN]
            for gone in self._words.keys() - {member.node for member in down}:
                del self._words[gone]
            for begin in range(0, len(down), _AT_ONCE):
                async with anyio.create_task_group() as tasks:
                    for member in down[begin : begin + _AT_ONCE]:
                        tasks.start_soon(self._look, member)
            await self._clock.sleep(LOOK_S)

    def is_away(self, node: NodeId) -> bool:
        """Whether its host was up when it was asked last."""
        at, word = self._words.get(node, (0.0, None))
        return word is not None and self._clock.monotonic() - at < _SHOWN_S and not self._counts_as_lost(word)

    async def look(self, node: NodeId) -> bool:
        """The answer of `is_away`, asking the host now where it was not asked a moment ago."""
        at, _ = self._words.get(node, (float("-inf"), None))
        if self._clock.monotonic() - at >= _TRUSTED_S:
            for member in self._members():
                if member.node == node and member.fate is Fate.DOWN:
                    await self._look(member)
        return self.is_away(node)

    async def _look(self, member: Member) -> None:
        word = await self._ask(member)
        self._words[member.node] = (self._clock.monotonic(), word)

    def _counts_as_lost(self, word: HostWord) -> bool:
        return self._lost_after_s is not None and word.away_s >= self._lost_after_s
