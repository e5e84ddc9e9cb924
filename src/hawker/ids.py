"""Identifiers: their types and how each is made. Random bytes come from the caller's `Clock`."""

from typing import NewType

from hawker.clock import Clock

MachineId = NewType("MachineId", str)  # 14 lowercase hex characters
Version = NewType("Version", str)  # ULID: one version of a machine's config; `instance_id` on the wire
InstanceId = NewType("InstanceId", str)  # ULID: one running incarnation of a machine
EventId = NewType("EventId", str)  # ULID
RunId = NewType("RunId", str)  # ULID
AppName = NewType("AppName", str)
NodeId = NewType("NodeId", str)  # 8 lowercase hex characters
OrderId = NewType("OrderId", str)
Digest = NewType("Digest", str)  # "sha256:" and 64 hex characters

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def new_machine_id(clock: Clock) -> MachineId:
    return MachineId(clock.token_bytes(7).hex())


def new_node_id(clock: Clock) -> NodeId:
    return NodeId(clock.token_bytes(4).hex())


def new_ulid(clock: Clock) -> str:
    """26 characters that sort by time: 48 bits of Unix milliseconds, then 80 random bits (github.com/ulid/spec)."""
    value = (int(clock.now() * 1000) << 80) | int.from_bytes(clock.token_bytes(10), "big")
    return "".join(_CROCKFORD[(value >> shift) & 31] for shift in range(125, -1, -5))


def first_ulid(moment: float) -> str:
    """The least ULID of a moment in Unix seconds: whatever was named earlier sorts before it."""
    value = int(moment * 1000) << 80
    return "".join(_CROCKFORD[(value >> shift) & 31] for shift in range(125, -1, -5))


def next_ulid(clock: Clock, after: str) -> str:
    """A ULID greater than `after`, so that records written within one millisecond keep their order."""
    fresh = new_ulid(clock)
    return fresh if fresh > after else _successor(after)


def _successor(ulid: str) -> str:
    body = ulid.rstrip("Z")
    head, last = body[:-1], body[-1]
    return head + _CROCKFORD[_CROCKFORD.index(last) + 1] + "0" * (len(ulid) - len(body))
