"""Identifiers: their types and how each is made. Random bytes come from the caller's `Clock`."""

import re
from binascii import b2a_base64
from functools import lru_cache
from typing import NewType

from hawker.clock import Clock

MachineId = NewType("MachineId", str)  # 14 lowercase hex characters
Version = NewType("Version", str)  # ULID: one version of a machine's config; `instance_id` on the wire
InstanceId = NewType("InstanceId", str)  # ULID: one running incarnation of a machine
EventId = NewType("EventId", str)  # ULID
RunId = NewType("RunId", str)  # ULID
AppName = NewType("AppName", str)
NodeId = NewType("NodeId", str)  # 8 lowercase hex characters
NODE_DOMAIN = ".node.internal"  # of the name in a node's certificate, after its id
OrderId = NewType("OrderId", str)
VolumeId = NewType("VolumeId", str)  # "vol_" and 16 of [0-9a-z]
SnapshotId = NewType("SnapshotId", str)  # "vs_" and 16 of [0-9a-z]
Digest = NewType("Digest", str)  # "sha256:" and 64 hex characters

_MACHINE_ID = re.compile("[0-9a-f]{14}")
_VOLUME_ID = re.compile("vol_[0-9a-z]{16,17}")
_SNAPSHOT_ID = re.compile("vs_[0-9a-z]{16,17}")
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [high + low for high in _CROCKFORD for low in _CROCKFORD]  # what 10 bits are written as
_PAIR_SHIFTS = range(120, -1, -10)
_RANDOM_SHIFTS = range(70, -1, -10)  # of the last 16 characters
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_TO_CROCKFORD = bytes.maketrans(_BASE64, 2 * _CROCKFORD.encode())


def new_machine_id(clock: Clock) -> MachineId:
    return MachineId(clock.token_bytes(7).hex())


def is_machine_id(text: str) -> bool:
    return _MACHINE_ID.fullmatch(text) is not None


def new_volume_id(clock: Clock) -> VolumeId:
    return VolumeId(f"vol_{_lowercase(clock)}")


def is_volume_id(text: str) -> bool:
    return _VOLUME_ID.fullmatch(text) is not None


def new_snapshot_id(clock: Clock) -> SnapshotId:
    return SnapshotId(f"vs_{_lowercase(clock)}")


def is_snapshot_id(text: str) -> bool:
    return _SNAPSHOT_ID.fullmatch(text) is not None


def new_node_id(clock: Clock) -> NodeId:
    return NodeId(clock.token_bytes(4).hex())


def new_ulid(clock: Clock) -> str:
    """26 characters that sort by time: 48 bits of Unix milliseconds, then 80 random bits (github.com/ulid/spec)."""
    return _moment(int(clock.now() * 1000)) + _written(int.from_bytes(clock.token_bytes(10), "big"), _RANDOM_SHIFTS)


def new_request_id(clock: Clock, region: str) -> bytes:
    """A ULID and the region, as `fly-request-id` names a request. Of the 6 random bits for each character 5 count: the
    interpreter's own base64 is several times faster than `new_ulid`."""
    random = b2a_base64(clock.token_bytes(12), newline=False).translate(_TO_CROCKFORD)
    return b"%b%b-%b" % (_moment(int(clock.now() * 1000)).encode(), random, region.encode())


@lru_cache(16)
def _moment(milliseconds: int) -> str:
    """The first 10 characters of the ULIDs of this millisecond."""
    return _written(milliseconds << 80)[:10]


def first_ulid(moment: float) -> str:
    """The least ULID of a moment in Unix seconds: whatever was named earlier sorts before it."""
    return _written(int(moment * 1000) << 80)


def _written(value: int, shifts: range = _PAIR_SHIFTS) -> str:
    return "".join([_PAIRS[(value >> shift) & 1023] for shift in shifts])


def next_ulid(clock: Clock, after: str) -> str:
    """A ULID greater than `after`, so that records written within one millisecond keep their order."""
    fresh = new_ulid(clock)
    return fresh if fresh > after else _successor(after)


def _successor(ulid: str) -> str:
    body = ulid.rstrip("Z")
    head, last = body[:-1], body[-1]
    return head + _CROCKFORD[_CROCKFORD.index(last) + 1] + "0" * (len(ulid) - len(body))


def _lowercase(clock: Clock) -> str:
    """16 characters, 80 random bits."""
    value = int.from_bytes(clock.token_bytes(10), "big")
    return "".join(_CROCKFORD[(value >> shift) & 31] for shift in range(75, -1, -5)).lower()
