"""Asks the hosts of nodes that gossip calls down whether they are there: a daemon that is away is no lost host."""

from collections.abc import Awaitable, Callable, Sequence

import anyio

from hawker.clock import Clock
from hawker.cluster import host_of
from hawker.fleet.presence import NONCE_BYTES, PORT_OFFSET, HostWord, question, read_answer
from hawker.gossip.contract import Fate, Member
from hawker.ids import NodeId

AWAY = "away"
"""The state of a node whose host is up and whose daemon is not there."""
LOOK_S = 1.0
_TRIES, _WAIT_S = 3, 0.3
_SHOWN_S, _TRUSTED_S = 15.0, 2.0
"""How old a host's word may be for who only shows it, and for who starts a spare by it."""
_AT_ONCE = 32
_ERRORS = (OSError, ValueError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)

AskHost = Callable[[Member], Awaitable[HostWord | None]]
"""A member's host; None when it is silent."""


async def nobody(member: Member) -> HostWord | None:
    """Where hosts answer nothing."""
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
    """What is known of the hosts of nodes that are down. `lost_after_s`: a daemon that is away for so long counts as a
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
        """Until cancelled. Nobody is asked while every node is there."""
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
        """As `is_away`, asking now where nobody was asked a moment ago."""
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
