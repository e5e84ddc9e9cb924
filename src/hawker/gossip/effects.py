"""Effects of a protocol step: datagrams to send, and events that the owner carries out or passes on. Values only."""

from typing import TypeAlias

import msgspec

from hawker.gossip.contract import Member, Trouble
from hawker.gossip.keyring import GossipKeyring
from hawker.ids import NodeId
from hawker.value_object import ValueObject


class Send(ValueObject, frozen=True):
    """`payload` is to be sealed."""

    address: str
    """HOST:PORT of the member."""
    payload: bytes


class MemberChanged(ValueObject, frozen=True):
    """A member's fate, address, epoch or meta."""

    member: Member


class Forgot(ValueObject, frozen=True):
    """An operator had `node` forgotten: its data of epochs up to `fence` is to be dropped and ignored from now on."""

    node: NodeId
    fence: int


class Rekeyed(ValueObject, frozen=True):
    keyring: GossipKeyring


class JoinAccepted(ValueObject, frozen=True):
    """`known` is what the cluster believed of this node before."""

    known: Member | None


class Rejected(ValueObject, frozen=True):
    """This node may not take part; `code` is that of the frame `JoinRefused`: `cluster` or `twin`."""

    code: str
    text: str
    """The reason in words, for an operator."""


class FallbackPing(ValueObject, frozen=True):
    """Ping this member over a stream, as memberlist falls back to TCP; an answer is told to `Swim.fallback_acked`."""

    node: NodeId
    address: str
    """HOST:PORT of the member."""
    seq: int
    """The ping's number, which the answer repeats."""


class MessageReceived(ValueObject, frozen=True):
    """A message for whoever uses gossip."""

    node: NodeId
    message: bytes
    """The message as it was sent; gossip does not look into it."""


class Troubled(ValueObject, frozen=True):
    trouble: Trouble


Event: TypeAlias = (
    MemberChanged | Forgot | Rekeyed | JoinAccepted | Rejected | FallbackPing | MessageReceived | Troubled
)


class Effects(ValueObject, frozen=True):
    sends: list[Send] = msgspec.field(default_factory=list)
    events: list[Event] = msgspec.field(default_factory=list)


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
