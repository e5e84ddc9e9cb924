"""Conflicts between nodes: two nodes with one id, a node of another cluster, clocks that differ. Told to the operator.

Two nodes with one id are told apart by their boots. Only an answer to a fresh question proves that the other one lives,
so a recording of a node's former life moves nobody. The newer of the two steps down.
"""

from collections.abc import Callable

from hawker.gossip.contract import Trouble
from hawker.gossip.effects import EffectBuffer, Rejected, Troubled
from hawker.gossip.frames import Ack, Frame, Join, JoinRefused, Ping, encode
from hawker.gossip.members import MemberState
from hawker.gossip.timing import Timing
from hawker.ids import NodeId

_CHALLENGE_S = 1.0
_AGAIN_S = 60.0
_TOLD = 256


class ConflictDetector:
    def __init__(
        self, me: MemberState, cluster: str, out: EffectBuffer, timing: Timing, next_seq: Callable[[], int]
    ) -> None:
        self._me, self._cluster, self._out, self._timing, self._next_seq = me, cluster, out, timing, next_seq
        self._asked: int | None = None
        self._challenge_at = -1e9
        self._told: dict[tuple[str, NodeId], float] = {}

    def foreign(self, sender: NodeId, address: str, now: float) -> None:
        text = f"this is a node of cluster {self._cluster}; check the address, or join it with its own token"
        self._out.send(address, encode(JoinRefused(code="cluster", text=text)))
        self._tell("cluster", sender, f"node {sender} at {address} of another cluster asked to join, with our key", now)

    def refuse(self, sender: NodeId, known: str, address: str, now: float) -> None:
        """It wants to join, and somebody of that name is here and well."""
        text = f"node id {sender} is in use at {known}; if that node is gone, it is let in once that one is down"
        self._out.send(address, encode(JoinRefused(code="twin", text=text)))
        self._tell("twin", sender, f"a second node with id {sender} at {address}, the first is at {known}", now)

    def heard(self, boot: int, address: str, frames: list[Frame], now: float) -> None:
        """From somebody with this node's own id."""
        for frame in frames:
            if isinstance(frame, Join):
                self.refuse(self._me.node, self._me.address, address, now)
            elif isinstance(frame, Ping):
                self._out.send(address, encode(Ack(seq=frame.seq, of=self._me.node)))
            elif isinstance(frame, Ack) and frame.seq == self._asked:
                self._asked = None
                self._verdict(boot, address, now)
                return
        self.challenge(address, now)

    def challenge(self, address: str, now: float) -> None:
        """Ask whoever seems to have our id there."""
        if now < self._challenge_at:
            return
        self._challenge_at = now + _CHALLENGE_S
        self._asked = self._next_seq()
        self._out.send(address, encode(Ping(seq=self._asked, to=self._me.node)))

    def _verdict(self, boot: int, address: str, now: float) -> None:
        if boot < self._me.boot:
            text = f"node id {self._me.node} is in use at {address}, by a process that began earlier"
            self._out.tell(Rejected("twin", text))
        else:
            self._tell("twin", self._me.node, f"a second node with this node's id is at {address}", now)

    def clock(self, peer: MemberState, theirs: float, ours: float, now: float) -> None:
        """What it says of the time, against what we say."""
        if theirs <= 0:
            return
        peer.skew_s = theirs - ours
        if abs(peer.skew_s) > self._timing.skew_s:
            side = "ahead of" if peer.skew_s > 0 else "behind"
            text = f"the clock of {peer.node} is {abs(peer.skew_s):.0f} s {side} ours; one of the two is wrong"
            self._tell("skew", peer.node, text, now)

    def _tell(self, code: str, node: NodeId, text: str, now: float) -> None:
        """Each at most once a minute."""
        if now < self._told.get((code, node), -1e9):
            return
        self._told.pop((code, node), None)
        if len(self._told) >= _TOLD:
            del self._told[next(iter(self._told))]
        self._told[code, node] = now + _AGAIN_S
        self._out.tell(Troubled(Trouble(code=code, node=node, text=text)))
