"""What a node stores of itself: who it is, the format of its store, what is held of its resources, which tokens are
revoked, which invitations it made, which orders it cancelled or claimed, which takeovers it made or gave way to.
"""

from typing import Self

import msgspec

from hawker.ids import MachineId, NodeId
from hawker.node import Resources
from hawker.store.contract import Bucket, Reader, Tx


class JoinedHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host that used an invitation. `key` is SHA-256 of the key that it made for that, in hex; `node` is who it was
    before, empty for a new host; `source` is its address; `at` is Unix seconds."""

    key: str
    node: str = ""
    source: str = ""
    at: float


class InviteRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`uses` hosts may join by it, until `expires_at` (Unix seconds). Nothing in it is secret."""

    id: str  # id of the invitation, which is a part of it and not its secret
    created_at: float
    expires_at: float
    uses: int
    by: str  # name of the token that made the invitation, for people
    revoked_at: float | None = None
    joined: tuple[JoinedHost, ...] = ()

    def open_at(self, now: float) -> bool:
        return self.revoked_at is None and now < self.expires_at and len(self.joined) < self.uses


INVITES = Bucket("invites", InviteRecord)  # id


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of this worker. `cordoned`: it takes no new machines; `draining`: its machines are being moved
    away."""

    id: NodeId
    region: str  # code of the region in which the node sells
    created_at: float  # Unix seconds of the node's first boot
    cordoned: bool = False
    draining: bool = False


class CopyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A mark that only a backup has. A store that has it when a node boots was restored."""

    taken_at: float  # Unix seconds when the backup was taken, by the node's clock
    version: str  # version of Hawker that took it, as `hawker --version` has it


NODE = Bucket("node", NodeRecord)


COPY = Bucket("copy", CopyRecord)  # the one key "self"


def closed(reader: Reader) -> str | None:
    """Why the node takes no new machines and volumes, if so."""
    node = reader.get(NODE, "self")
    if node is None:
        return None
    return "the node is draining" if node.draining else "the node is cordoned" if node.cordoned else None


# What machines and volumes hold of their node, and what is on its way there: `USED` is the sum, changed in the
# transaction that changes a record, so that admission is one look and cannot be stale.


def used(reader: Reader) -> Resources:
    return reader.get(USED, "all") or Resources()


def hold(tx: Tx, before: Resources, after: Resources) -> None:
    """What somebody held is now `after`."""
    if before != after:
        tx.put(USED, "all", used(tx).minus(before).plus(after))


USED = Bucket("used", Resources)  # the one key "all": the sum of what the records hold


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """What a directory holds. This struct itself may only grow: every version of Hawker reads it.

    `number` is that of the last writer, `needs` the highest that any writer so far asked of readers."""

    number: int
    hawker: str  # version of Hawker that last wrote here, for people
    needs: int
    needs_hawker: str  # version of Hawker that asked for `needs`, for people


FORMATS = Bucket("format", Format)  # the one key "self"


class Revocation(msgspec.Struct, frozen=True, kw_only=True):
    """The revocation of a token. `at` is Unix seconds, `by` the name of who asked."""

    token_id: str  # id of the token: it is refused from then on, and so is each token that was made from it
    at: float
    by: str
    note: str = ""  # reason of the revocation, for people; may be empty
    first: str = ""  # id of the token that this one was narrowed from first; empty where who asked controls the node
    expires: float | None = None  # Unix seconds when the token ends by itself; None for never, or where it is not known


REVOKED = Bucket("revoked_tokens", Revocation)


class TakeoverRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A takeover, written in the transaction that starts the spare. `seen` is the machine's `updated_at` when its host,
    `owner`, was lost; `at` is when the spare was started. Both are Unix seconds."""

    machine: MachineId
    spare: MachineId
    owner: NodeId
    seen: float
    at: float


class FencedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a machine of this node, because a spare had taken over what the machine was at `seen`, Unix seconds.
    If somebody starts the machine later, it goes on."""

    spare: MachineId
    seen: float
    at: float  # Unix seconds when the machine was ended


TAKEOVERS = Bucket("takeovers", TakeoverRecord)  # the lost machine's id/the spare's
FENCED = Bucket("fenced", FencedRecord)  # machine id


class FailoverRecords(msgspec.Struct, frozen=True, kw_only=True):
    """What failover remembers of a machine, and what goes wherever the machine goes: from whom it has taken over as a
    spare, and to whom it gave way. Without the first, both would run once the lost host is back; without the second,
    it would be ended again."""

    fenced: FencedRecord | None = None
    takeovers: tuple[TakeoverRecord, ...] = ()

    @classmethod
    def of(cls, reader: Reader, machine_id: MachineId) -> Self:
        made = tuple(record for _, record in reader.scan(TAKEOVERS) if record.spare == machine_id)
        return cls(fenced=reader.get(FENCED, machine_id), takeovers=made)

    def enter(self, tx: Tx, machine_id: MachineId) -> None:
        if self.fenced is not None:
            tx.put(FENCED, machine_id, self.fenced)
        for each in self.takeovers:
            tx.put(TAKEOVERS, f"{each.machine}/{machine_id}", each)


class Dated(msgspec.Struct, frozen=True, kw_only=True):
    """A record with the moment when it was written, `at`, Unix seconds."""

    at: float


class CancelRecord(Dated, frozen=True, kw_only=True):
    """A cancelled order: this node does not fill it, also if it comes later."""


class ClaimRecord(Dated, frozen=True, kw_only=True):
    """The claim of an order with a key: the node that the order was sent to."""

    node: NodeId
    number: int = 0  # number of the claim, 0 or more; rises by one when the order goes to another node


CANCELLED = Bucket("orders_cancelled", CancelRecord)  # app/order id


CLAIMS = Bucket("order_claims", ClaimRecord)  # app/order id
