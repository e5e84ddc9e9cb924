"""Facts about the rules of devices, as text and as a program that the kernel takes."""

import struct

import pytest

from hawker.runtime.launcher.device_filter import USUAL_DEVICES, device_lines, device_program
from hawker.runtime.launcher.oci import OciDeviceRule

NONE = OciDeviceRule(allow=False, access="rwm")
ALL = (NONE, *USUAL_DEVICES)
_ACCESS = {"m": 1, "r": 2, "w": 4}


def _verdict(program: bytes, kind: int, access: str, major: int, minor: int) -> int:
    """What the program says, carried out as the kernel would: the few instructions that it uses."""
    memory = {0: sum(_ACCESS[letter] for letter in access) << 16 | kind, 4: major, 8: minor}
    registers = [0] * 11
    at = 0
    while True:
        code, pair, offset, number = struct.unpack_from("<BBhi", program, at * 8)
        target, source = pair & 15, pair >> 4
        at += 1
        match code:
            case 0x61:
                registers[target] = memory[offset]
            case 0xBF:
                registers[target] = registers[source]
            case 0xB7:
                registers[target] = number
            case 0x57:
                registers[target] &= number
            case 0x77:
                registers[target] >>= number
            case 0x55:
                at += offset if registers[target] != number else 0
            case 0x5D:
                at += offset if registers[target] != registers[source] else 0
            case 0x95:
                return registers[0]
            case _:
                raise AssertionError(f"no such instruction: {code:x}")


@pytest.mark.parametrize(
    ("kind", "access", "major", "minor", "allowed"),
    [
        (2, "rw", 1, 3, True),  # null
        (2, "rwm", 1, 9, True),  # urandom
        (2, "rw", 136, 77, True),  # a terminal
        (2, "rw", 1, 1, False),  # mem
        (2, "r", 10, 200, False),  # tun
        (1, "r", 8, 0, False),  # a disk
        (1, "m", 8, 0, True),  # its node may be made
        (1, "rm", 8, 0, False),
        (2, "m", 10, 200, True),
    ],
)
def test_only_harmless_devices_can_be_used_and_any_node_be_made(
    kind: int, access: str, major: int, minor: int, allowed: bool
) -> None:
    assert _verdict(device_program(ALL), kind, access, major, minor) == int(allowed)


def test_the_last_rule_that_matches_decides_and_none_is_a_refusal() -> None:
    null = OciDeviceRule(allow=True, access="rwm", type="c", major=1, minor=3)
    never = OciDeviceRule(allow=False, access="rwm", type="c", major=1, minor=3)
    assert _verdict(device_program((null, never)), 2, "r", 1, 3) == 0
    assert _verdict(device_program((never, null)), 2, "r", 1, 3) == 1
    assert _verdict(device_program(()), 2, "r", 1, 3) == 0


def test_the_lines_of_version_1_begin_with_a_refusal_of_everything() -> None:
    lines = device_lines(ALL)
    assert lines[0] == ("devices.deny", "a")
    assert ("devices.allow", "c *:* m") in lines and ("devices.allow", "c 136:* rwm") in lines
