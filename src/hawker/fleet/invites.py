"""Invitations to join the cluster: made, listed, ended and spent at one node, in its store.

An invitation is spent in the transaction that names the host which uses it, before that host is answered. A host that
lost the answer, or died, asks again with the same key and is the same host; another one is refused.
"""

import hashlib
import hmac

import msgspec

from hawker.api.contract.cluster import AdmitRequest
from hawker.auth.invitation import ROOT_INVITE, Invitation, is_proof, join_secret, to_text
from hawker.clock import Clock
from hawker.errors import Forbidden, NotFound, Unauthorized, Unprocessable
from hawker.ids import NodeId
from hawker.log import Secret, bind
from hawker.record.node import INVITES, InviteRecord, JoinedHost
from hawker.store.contract import Store, Tx

USUAL_S, SHORTEST_S, LONGEST_S = 3600, 60, 7 * 86_400
MOST_USES = 100
MOST_INVITES = 256
KEPT_S = 30 * 86_400.0
_ID_BYTES = 6
_AGAIN = "ask for another: `hawker fleet invite` at a living node"

_log = bind("hawker.fleet")


class Invites:
    """Of the node `me`. `root` is the root token of the cluster's nodes."""

    def __init__(self, store: Store, clock: Clock, root: Secret, me: NodeId) -> None:
        self._store = store
        self._clock = clock
        self.root = root
        self._me = me

    async def make(
        self, cluster: str, *, by: str, expires_s: int | None = None, uses: int | None = None
    ) -> tuple[InviteRecord, str]:
        """The record, durable, and the text that lets a host join. Raises `Unprocessable`."""
        expires_s, uses = USUAL_S if expires_s is None else expires_s, 1 if uses is None else uses
        if not SHORTEST_S <= expires_s <= LONGEST_S:
            raise Unprocessable(f"expires_s: an invitation is good for {SHORTEST_S} s to 7 days, not {expires_s} s")
        if not 1 <= uses <= MOST_USES:
            raise Unprocessable(f"uses: 1 to {MOST_USES} hosts may join by one invitation, not {uses}")
        now = self._clock.now()
        invite_id = f"{self._me}{self._clock.token_bytes(_ID_BYTES).hex()}"
        made = InviteRecord(id=invite_id, created_at=now, expires_at=now + expires_s, uses=uses, by=by)
        await self._store.write(lambda tx: _kept(tx, made))
        secret = join_secret(self.root, invite_id)
        return made, to_text(Invitation(cluster=cluster, id=invite_id, secret=secret))

    def list(self) -> tuple[InviteRecord, ...]:
        """The newest first."""
        found = (each for _, each in self._store.scan(INVITES))
        return tuple(sorted(found, key=lambda each: -each.created_at))

    def state_of(self, record: InviteRecord) -> str:
        """open, used, expired or revoked."""
        now = self._clock.now()
        if record.open_at(now):
            return "open"
        if record.revoked_at is not None:
            return "revoked"
        return "used" if len(record.joined) >= record.uses else "expired"

    async def revoke(self, invite_id: str) -> InviteRecord:
        """Durable when it returns; hosts that have joined stay. Raises `NotFound`."""
        now = self._clock.now()

        def apply(tx: Tx) -> InviteRecord:
            known = tx.get(INVITES, invite_id)
            if known is None:
                raise NotFound(f"there is no invitation {invite_id!r:.40} here: see `hawker fleet invites`")
            if known.revoked_at is None:
                known = msgspec.structs.replace(known, revoked_at=now)
                tx.put(INVITES, invite_id, known)
            return known

        return await self._store.write(apply)

    async def admit(self, request: AdmitRequest, source: str) -> bytes:
        """The secret to answer with, once this host counts as joined. Raises `Unauthorized` for who has no secret of
        this cluster, `Forbidden` for an invitation that is over."""
        secret = join_secret(self.root, request.invite)
        if not is_proof(request.proof, secret, request.invite, request.key, request.node or ""):
            raise Unauthorized("this invitation or root token is not good here: it was made in another cluster")
        if request.invite != ROOT_INVITE:
            host = JoinedHost(
                key=hashlib.sha256(request.key).hexdigest(),
                node=request.node or "",
                source=source,
                at=self._clock.now(),
            )
            await self._store.write(lambda tx: _spent(tx, request.invite, host))
        _log.warning("host joins", extra={"invite": request.invite, "host": request.node or "new", "source": source})
        return secret


def _kept(tx: Tx, made: InviteRecord) -> None:
    """Those that ended long ago go. Raises `Unprocessable` when too many are there."""
    there = [each for _, each in tx.scan(INVITES)]
    for each in there:
        if each.expires_at + KEPT_S < made.created_at:
            tx.delete(INVITES, each.id)
    if sum(each.open_at(made.created_at) for each in there) >= MOST_INVITES or len(there) >= 4 * MOST_INVITES:
        raise Unprocessable(f"this node has {MOST_INVITES} invitations: end some with `hawker fleet uninvite ID`")
    tx.put(INVITES, made.id, made)


def _spent(tx: Tx, invite_id: str, host: JoinedHost) -> None:
    """Raises `Forbidden`."""
    known = tx.get(INVITES, invite_id)
    if known is None:
        raise Forbidden(f"this invitation is not known here; {_AGAIN}")
    if known.revoked_at is not None:
        raise Forbidden(f"this invitation was revoked; {_AGAIN}")
    if host.at >= known.expires_at:
        raise Forbidden(f"this invitation has expired; {_AGAIN}")
    if any(hmac.compare_digest(each.key, host.key) for each in known.joined):
        return
    if len(known.joined) >= known.uses:
        raise Forbidden(f"this invitation was used; {_AGAIN}")
    tx.put(INVITES, invite_id, msgspec.structs.replace(known, joined=(*known.joined, host)))
