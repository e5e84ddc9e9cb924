"""Invitations to join the cluster that this node made."""

import msgspec

from hawker.store.contract import Bucket


class JoinedHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host that used an invitation. `key` is SHA-256 of the key that it made for that, in hex; `node` is who it was
    before, empty for a new host; `source` is its address; `at` is Unix seconds."""

    key: str
    node: str = ""
    source: str = ""
    at: float


class InviteRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`uses` hosts may join by it, until `expires_at` (Unix seconds). Nothing in it is secret."""

    id: str
    created_at: float
    expires_at: float
    uses: int
    by: str
    revoked_at: float | None = None
    joined: tuple[JoinedHost, ...] = ()

    def open_at(self, now: float) -> bool:
        return self.revoked_at is None and now < self.expires_at and len(self.joined) < self.uses


INVITES = Bucket("invites", InviteRecord)  # id
