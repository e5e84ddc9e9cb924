"""Writes a plan for the program `launcher`, byte for byte as guest/launcher/plan.h has it. Pure."""

import struct
from enum import IntEnum

_MAGIC, _VERSION = b"hawkplan", 1
_HEAD = len(_MAGIC) + 8
_RECORD, _NUMBER, _LENGTH = struct.Struct("<II"), struct.Struct("<Q"), struct.Struct("<I")
PLAN_BYTES_MAX = 1 << 20


class Record(IntEnum):
    """In the order of guest/launcher/plan.h, which says what the fields of each are."""

    GROUP = 1
    GROUP_SET = 2
    GROUP_FILTER = 3
    NETNS = 4
    USERNS = 5
    OOM_SCORE = 6
    NAMESPACES = 7
    RUN_ON_HOST = 8
    ROOT = 9
    HOSTNAME = 10
    FILESYSTEM = 11
    BIND = 12
    NODE = 13
    LINK = 14
    MASK = 15
    READ_ONLY = 16
    RLIMIT = 17
    CAPABILITIES = 18
    NO_NEW_PRIVILEGES = 19
    SECCOMP = 20
    ARG = 21
    ENV = 22
    APPARMOR = 23


class PlanWriter:
    """Collects records; `finish` gives the whole."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def add(self, kind: Record, *fields: int | str | bytes) -> None:
        """Texts hold no NUL, programs may. Raises `ValueError`."""
        body = b"".join(map(_field, fields))
        self._parts += (_RECORD.pack(kind, len(body)), body)

    def add_all(self, written: bytes) -> None:
        """Records that another writer's `records` gave."""
        self._parts.append(written)

    def records(self) -> bytes:
        return b"".join(self._parts)

    def finish(self) -> bytes:
        """Raises `ValueError` for a plan that the launcher would refuse for its size."""
        body = self.records()
        if _HEAD + len(body) > PLAN_BYTES_MAX:
            raise ValueError(f"a plan of {_HEAD + len(body)} bytes is larger than {PLAN_BYTES_MAX}")
        return _MAGIC + _RECORD.pack(_VERSION, _HEAD + len(body)) + body


def _field(value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return _NUMBER.pack(value)
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")
        if b"\0" in value:
            raise ValueError("a text in a plan cannot hold a NUL")
    return _LENGTH.pack(len(value)) + value + b"\0"
