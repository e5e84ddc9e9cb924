"""Leases: a client's exclusive right to change a machine. Kept in the machine's record; an expired one is no lease.

Calls with which clients show no nonce ask for none: metadata, signals, terminals, attaching, copies (contract 3.4).
"""

from datetime import UTC, datetime

from hawker.clock import Clock
from hawker.errors import LeaseHeld, NotFound
from hawker.record.machine import Lease, MachineRecord, current_lease
from hawker.store.contract import Tx
from hawker.worker.table import MachineTable

LONGEST_S = 30 * 86_400.0
DEFAULT_S = 60.0


def check(record: MachineRecord, nonce: str | None, now: float) -> None:
    """Raise `LeaseHeld` unless the machine is free or `nonce` is the holder's."""
    lease = current_lease(record, now)
    if lease is not None and lease.nonce != nonce:
        expires = datetime.fromtimestamp(lease.expires_at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        raise LeaseHeld(
            f"machine ID {record.id} lease currently held by {lease.owner}@tokens.hawker, expires at {expires}"
        )


def new(clock: Clock, owner: str, description: str, ttl_s: float) -> Lease:
    ttl_s = min(max(ttl_s, 1.0), LONGEST_S)
    return Lease(nonce=clock.token_bytes(8).hex(), owner=owner, description=description, expires_at=clock.now() + ttl_s)


def taken(record: MachineRecord, nonce: str | None, now: float, fresh: Lease) -> Lease:
    """The lease that `fresh` makes: a new lease, or the held one kept longer when `nonce` is the holder's. Raises
    `LeaseHeld`."""
    check(record, nonce, now)
    held = current_lease(record, now)
    if held is None:
        return fresh
    return Lease(
        nonce=held.nonce,
        owner=held.owner,
        description=fresh.description or held.description,
        expires_at=fresh.expires_at,
    )


def acquire(
    tx: Tx, table: MachineTable, clock: Clock, record: MachineRecord, *, nonce: str | None, fresh: Lease
) -> MachineRecord:
    """Take the lease, or refresh it when `nonce` is its own: same nonce, new expiry."""
    return table.change(tx, record, lease=taken(record, nonce, clock.now(), fresh))


def require(record: MachineRecord, now: float) -> Lease:
    lease = current_lease(record, now)
    if lease is None:
        raise NotFound("lease not found")
    return lease


def release(tx: Tx, table: MachineTable, record: MachineRecord, *, nonce: str | None, now: float) -> None:
    require(record, now)
    check(record, nonce, now)
    table.change(tx, record, lease=None)
