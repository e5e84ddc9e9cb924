"""Effects of a protocol step: datagrams to send, and events that the owner carries out or passes on. Values only."""

from dataclasses import dataclass, field
from typing import TypeAlias

from hawker.gossip.contract import Member, Trouble
from hawker.gossip.keyring import GossipKeyring
from hawker.ids import NodeId


@dataclass(frozen=True, slots=True)
class Send:
    """`payload` is to be sealed."""

    address: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class MemberChanged:
    """A member's fate, address, epoch or meta."""

    member: Member


@dataclass(frozen=True, slots=True)
class Forgot:
    """An operator had `node` forgotten: its data of epochs up to `fence` is to be dropped and ignored from now on."""

    node: NodeId
    fence: int


@dataclass(frozen=True, slots=True)
class Rekeyed:
    keyring: GossipKeyring


@dataclass(frozen=True, slots=True)
class JoinAccepted:
    """`known` is what the cluster believed of this node before."""

    known: Member | None


@dataclass(frozen=True, slots=True)
class Rejected:
    """This node may not take part; `code` is that of the frame `JoinRefused`: `cluster` or `twin`."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class FallbackPing:
    """Ping this member over a stream, as memberlist falls back to TCP; an answer is told to `Swim.fallback_acked`."""

    node: NodeId
    address: str
    seq: int


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A message for whoever uses gossip."""

    node: NodeId
    message: bytes


@dataclass(frozen=True, slots=True)
class Troubled:
    trouble: Trouble


Event: TypeAlias = (
    MemberChanged | Forgot | Rekeyed | JoinAccepted | Rejected | FallbackPing | MessageReceived | Troubled
)


@dataclass(frozen=True, slots=True)
class Effects:
    sends: list[Send] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)


class EffectBuffer:
    """Collects the effects of one step."""

    def __init__(self) -> None:
        self._outcome = Effects()

    def send(self, address: str, payload: bytes) -> None:
        self._outcome.sends.append(Send(address, payload))

    def tell(self, event: Event) -> None:
        self._outcome.events.append(event)

    def taken(self) -> Effects:
        outcome, self._outcome = self._outcome, Effects()
        return outcome
