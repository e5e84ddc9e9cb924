"""Whoever uses gossip, as gossip calls it: what a caller's code raises is logged and ends neither node nor cluster.

One message that its reader cannot bear would otherwise take down every node that it reaches.
"""

from collections.abc import Callable

from hawker import log
from hawker.errors import Fault, HawkerError
from hawker.gossip.contract import Member, OnForget, OnMember, OnMessage, OnRequest, OnTrouble, Trouble
from hawker.gossip.keyring import GossipKeyring
from hawker.ids import NodeId
from hawker.value_object import ValueObject

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
        """Raises a `HawkerError`, whatever it was."""
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
