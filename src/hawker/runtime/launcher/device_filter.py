"""Which devices a machine may use, for control groups of both versions. Pure.

Version 1 takes rules as text. Version 2 takes a program of the kernel's, which is made here: of the rules that match an
access the last decides, and what no rule matches is refused.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Literal

from hawker.runtime.launcher.oci import OciDeviceRule

_INSTRUCTION = struct.Struct("<BBhi")
_LOAD_WORD, _MOVE, _MOVE_NUMBER, _AND, _SHIFT_RIGHT = 0x61, 0xBF, 0xB7, 0x57, 0x77
_IF_NOT, _IF_NOT_EQUAL_REGISTERS, _EXIT = 0x55, 0x5D, 0x95
_RESULT, _CONTEXT, _KIND, _ACCESS, _MAJOR, _MINOR = range(6)
_KINDS = {"b": 1, "c": 2}
_ACCESSES = {"m": 1, "r": 2, "w": 4}
_ALL = 7


def _usual(major: int | None, minor: int | None, access: str = "rwm", kind: Literal["b", "c"] = "c") -> OciDeviceRule:
    return OciDeviceRule(allow=True, access=access, type=kind, major=major, minor=minor)


USUAL_DEVICES = (
    _usual(None, None, "m"),
    _usual(None, None, "m", "b"),
    *(_usual(1, minor) for minor in (3, 5, 7, 8, 9)),
    *(_usual(5, minor) for minor in (0, 1, 2)),
    _usual(136, None),
)
"""Nodes of any kind may be made; only the harmless ones can be used: null, zero, full, random, urandom, terminals."""


def device_lines(rules: Iterable[OciDeviceRule]) -> list[tuple[str, str]]:
    """Files of version 1's controller and what is written to each, in order."""
    return [("devices.allow" if rule.allow else "devices.deny", _line(rule)) for rule in rules]


def _line(rule: OciDeviceRule) -> str:
    if rule.type == "a":
        return "a"
    major, minor = ("*" if number is None else str(number) for number in (rule.major, rule.minor))
    return f"{rule.type} {major}:{minor} {rule.access}"


def device_program(rules: Sequence[OciDeviceRule]) -> bytes:
    """The program of version 2 (BPF_PROG_TYPE_CGROUP_DEVICE)."""
    program = [
        _instruction(_LOAD_WORD, _KIND, _CONTEXT),
        _instruction(_MOVE, _ACCESS, _KIND),
        _instruction(_AND, _KIND, number=0xFFFF),
        _instruction(_SHIFT_RIGHT, _ACCESS, number=16),
        _instruction(_LOAD_WORD, _MAJOR, _CONTEXT, offset=4),
        _instruction(_LOAD_WORD, _MINOR, _CONTEXT, offset=8),
    ]
    for rule in reversed(rules):
        program += _rule(rule)
    return b"".join([*program, *_verdict(allow=False)])


def _rule(rule: OciDeviceRule) -> list[bytes]:
    """Its conditions, each of which leaves for what comes after the verdict."""
    conditions: list[bytes] = []
    if rule.type != "a":
        conditions.append(_instruction(_IF_NOT, _KIND, number=_KINDS[rule.type]))
    access = sum(_ACCESSES[letter] for letter in set(rule.access))
    if access != _ALL:  # nothing may be asked for that the rule does not have
        conditions.append(_instruction(_MOVE, _CONTEXT, _ACCESS))
        conditions.append(_instruction(_AND, _CONTEXT, number=access))
        conditions.append(_instruction(_IF_NOT_EQUAL_REGISTERS, _CONTEXT, _ACCESS))
    for register, number in ((_MAJOR, rule.major), (_MINOR, rule.minor)):
        if number is not None:
            conditions.append(_instruction(_IF_NOT, register, number=number))
    verdict = _verdict(allow=rule.allow)
    last = len(conditions) + len(verdict) - 1
    return [_leaving(each, last - place) for place, each in enumerate(conditions)] + verdict


def _leaving(instruction: bytes, distance: int) -> bytes:
    code, registers, _, number = _INSTRUCTION.unpack(instruction)
    jumps = code in (_IF_NOT, _IF_NOT_EQUAL_REGISTERS)
    return _INSTRUCTION.pack(code, registers, distance, number) if jumps else instruction


def _verdict(*, allow: bool) -> list[bytes]:
    return [_instruction(_MOVE_NUMBER, _RESULT, number=int(allow)), _instruction(_EXIT)]


def _instruction(code: int, target: int = 0, source: int = 0, *, offset: int = 0, number: int = 0) -> bytes:
    return _INSTRUCTION.pack(code, target | source << 4, offset, number)
