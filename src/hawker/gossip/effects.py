"""What the protocol wants done: datagrams to send, and what its owner should hear of. Values only."""

from dataclasses import dataclass, field
from typing import TypeAlias

from hawker.gossip.contract import Member, Trouble
from hawker.gossip.keyring import Keyring
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
    """An operator's word about `node`: whoever holds something of its epochs up to `fence` lets it go."""

    node: NodeId
    fence: int


@dataclass(frozen=True, slots=True)
class Rekeyed:
    keyring: Keyring


@dataclass(frozen=True, slots=True)
class JoinAccepted:
    """`known` is what the cluster believed of this node before."""

    known: Member | None


@dataclass(frozen=True, slots=True)
class Rejected:
    """This node may not take part; `code` is that of the frame `Refused`."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class FallbackPing:
    """Ask this member over a stream whether it lives, and say so with `fallback_acked`."""

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
    """Where an outcome gathers while a message or a moment is dealt with."""

    def __init__(self) -> None:
        self._outcome = Effects()

    def send(self, address: str, payload: bytes) -> None:
        self._outcome.sends.append(Send(address, payload))

    def tell(self, event: Event) -> None:
        self._outcome.events.append(event)

    def taken(self) -> Effects:
        outcome, self._outcome = self._outcome, Effects()
        return outcome
