"""What the gossip room offers: members, and messages to them, as values and protocols; and whoever uses it, as gossip
calls it: what a caller's code raises is logged, and ends nothing.
"""

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Protocol, TypeAlias

import msgspec
from anyio.abc import ByteStream, TaskStatus

from hawker import log
from hawker.errors import Fault, HawkerError
from hawker.gossip.keyring import GossipKeyring
from hawker.ids import NodeId
from hawker.value_object import ValueObject


class Fate(StrEnum):
    """The belief about a member. `LEFT` said so itself; `DOWN` was silent for too long."""

    ALIVE = "alive"
    SUSPECT = "suspect"
    DOWN = "down"
    LEFT = "left"


class NodeMeta(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a member says of itself. `api` is the base URL of its peer API, `catalog` its schema's
    fingerprint, `version` the program's. Unknown fields are tolerated: peers may be newer. `floats`: it takes a part of
    the region's floating addresses."""

    region: str
    """The region that the node is in."""
    api: str
    catalog: str = ""
    version: str = ""
    floats: bool = False
    edges: int = 1
    """The number of processes that the node's edge has, 1 to 8."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One node as this one knows it. `address` is HOST:PORT of its gossip, `incarnation` is raised by the member itself
    to refute what is said of it, `epoch` is that of its catalog stream. `since` is Unix seconds of the last change of
    fate; `rtt_s` the smoothed round trip, 0 when never measured; `skew_s` by how much its wall clock was ahead of this
    node's when it answered last. `meta` is None until it was heard."""

    node: NodeId
    address: str
    incarnation: int
    fate: Fate
    epoch: int = 0
    since: float = 0.0
    rtt_s: float = 0.0
    skew_s: float = 0.0
    meta: NodeMeta | None = None


OnMember: TypeAlias = Callable[[Member], None]
"""Called in the event loop after each change of a member's fate, address or meta; must not block."""
OnMessage: TypeAlias = Callable[[NodeId, bytes], None]
"""Called in the event loop with each message of another node, which was authenticated; must not block."""
OnRequest: TypeAlias = Callable[[NodeId, bytes], Awaitable[bytes]]
"""Answers a request of another node that came over a stream."""

OnForget: TypeAlias = Callable[[NodeId, int], None]
"""Called when an operator had a node forgotten, this one included: what it said in epochs up to this one is void. A
node that hears it of itself begins a newer epoch and declares it."""


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Something that an operator should look at. `code` is `twin` (two nodes with one id), `skew` (clocks that differ
    by more than a minute) or `cluster` (a node of another cluster that has our key)."""

    code: str
    node: NodeId
    text: str
    """The trouble in words, for an operator."""


OnTrouble: TypeAlias = Callable[[Trouble], None]

DATAGRAM_BYTES = 1100
"""The longest message that fits one datagram; a longer one goes over a stream."""


class Mesh(Protocol):
    """This node among the others. Everything sent is sealed; who sent what is certain up to the cluster's key."""

    @property
    def me(self) -> Member: ...

    def members(self) -> Sequence[Member]:
        """All members that are known, this node included, also those that are down and not yet forgotten."""

    def send(self, to: NodeId, message: bytes) -> None:
        """Best effort: it may be lost, doubled or late, and is never changed. Does not block. Queues are bounded, the
        oldest goes. Longer than `DATAGRAM_BYTES` goes over a stream, up to 1 MiB."""

    async def ask(self, to: NodeId, message: bytes, *, timeout_s: float) -> bytes:
        """The answer to one request over a stream (each up to 64 MiB). Raises `Unavailable`, `DeadlineExceeded`."""

    def declare(self, *, epoch: int | None = None, meta: NodeMeta | None = None) -> None:
        """Tell everybody something new about this node."""

    async def leave(self) -> None:
        """Say goodbye, so that nobody suspects this node. Bounded."""


class MeshTransport(Protocol):
    """The transport of datagrams and streams: sockets, or the memory of one process. An address is HOST:PORT."""

    @property
    def address(self) -> str:
        """The address at which the transport is bound; complete once it serves."""

    def send(self, address: str, datagram: bytes) -> None:
        """Does not block, promises nothing."""

    async def dial(self, address: str) -> ByteStream:
        """Opens a stream to `address`. Raises `Unavailable`. Its caller sets the deadline."""

    async def serve(
        self,
        on_datagram: Callable[[str, bytes], None],
        on_stream: Callable[[ByteStream], Awaitable[None]],
        *,
        task_status: TaskStatus[None],
    ) -> None:
        """Hears datagrams and streams, until cancelled. It counts as started once it is bound; raises `CannotStart`
        when it cannot be."""


_log = log.bind("hawker.gossip")


def _silent(*_: object) -> None:
    """For those who do not care."""


async def _nothing(_: NodeId, __: bytes) -> bytes:
    raise Fault("this node answers no requests")


class Listener(ValueObject, frozen=True, kw_only=True):
    """All are called in the event loop and must not block; `on_request` may wait."""

    on_member: OnMember = _silent
    on_message: OnMessage = _silent
    on_request: OnRequest = _nothing
    on_forget: OnForget = _silent
    on_keyring: Callable[[GossipKeyring], None] = _silent
    on_trouble: OnTrouble = _silent

    def member(self, member: Member) -> None:
        _guarded("member", lambda: self.on_member(member))

    def message(self, sender: NodeId, message: bytes) -> None:
        _guarded("message", lambda: self.on_message(sender, message))

    def forget(self, node: NodeId, fence: int) -> None:
        _guarded("forget", lambda: self.on_forget(node, fence))

    def keyring(self, keyring: GossipKeyring) -> None:
        _guarded("keyring", lambda: self.on_keyring(keyring))

    def trouble(self, trouble: Trouble) -> None:
        _guarded("trouble", lambda: self.on_trouble(trouble))

    async def request(self, sender: NodeId, message: bytes) -> bytes:
        """The answer to a request of `sender`. Raises a `HawkerError`, whatever it was."""
        try:
            return await self.on_request(sender, message)
        except HawkerError:
            raise
        except Exception as error:
            _log.exception("request of a node failed", extra={"node": sender})
            raise Fault("the node that was asked failed; its log says why") from error


def _guarded(what: str, call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:  # noqa: BLE001
        _log.exception("listener failed", extra={"what": what})
