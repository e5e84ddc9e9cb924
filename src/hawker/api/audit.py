"""What a server tells of its calls to whoever keeps the audit log. Here is what is told of a call, and which calls."""

from collections.abc import Mapping
from typing import Protocol

from hawker.api.grant import Grant
from hawker.api.route import AnyRoute, attempt_of
from hawker.permission import Action
from hawker.value_object import ValueObject

_SECRET = ("/secrets", "/secretkeys", "/deploy_token", "/tokens/revoked")
_SHOWS = b"show_secrets"


class AuditedCall(ValueObject, frozen=True, kw_only=True):
    """`node` is the one that passed the call on, empty for a client's own. `grave`: the call is on disk before it is
    done, and not done when it cannot be. Nothing of its body, query or headers is here."""

    route: AnyRoute
    grant: Grant
    source: str
    """The address that the call came from; empty where there is none."""
    node: str
    params: Mapping[str, str]
    request_id: str
    """A ULID, the one that the answer carries."""
    grave: bool

    @property
    def action(self) -> Action:
        return attempt_of(self.route, {}).action


class Auditor(Protocol):
    async def begins(self, call: AuditedCall) -> None:
        """Before a grave call is done. Raises `Unavailable` when it cannot be written: then it must not be done."""

    async def ends(self, call: AuditedCall, status: int) -> None:
        """Before the call is answered. Never raises: what was done, was done."""


class Unaudited:
    """Keeps `Auditor`, and tells nobody."""

    async def begins(self, call: AuditedCall) -> None:
        return None

    async def ends(self, call: AuditedCall, status: int) -> None:
        return None


def is_grave(route: AnyRoute, query: bytes) -> bool:
    """Control, secrets and tokens: what lets somebody into a machine, shows or changes a secret, or changes who may do
    what. Not the end of a machine: that must be possible on a full disk, too."""
    attempt = attempt_of(route, {})
    if any(part in route.path for part in _SECRET):
        return attempt.action is not Action.READ or _SHOWS in query
    return Action.CONTROL in attempt.action


def is_audited(route: AnyRoute, query: bytes) -> bool:
    """All that may change something, and secrets that are shown. Questions that are asked with a POST are left out."""
    return is_grave(route, query) or (route.auth and attempt_of(route, {}).action is not Action.READ)
