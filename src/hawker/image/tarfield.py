"""The fields of tar headers: octal, GNU's base-256, decimals, zero-ended text. Pure."""

import re

BLOCK = 512
_DECIMAL_SECONDS = re.compile(rb"(-?\d{1,18})(?:\.(\d*))?")
_DIGITS = {8: re.compile(rb"[0-7]{1,24}"), 10: re.compile(rb"[0-9]{1,24}")}


class TarError(ValueError):
    """The archive cannot be read or asks for too much. `entry` is the name it was about, if known."""

    def __init__(self, reason: str, entry: bytes = b"") -> None:
        super().__init__(reason)
        self.entry = entry


def number(field: bytes | None, digits: int = 8) -> int:
    """A number in octal, in GNU's base-256 where the first bit is set, or in decimal (`digits=10`); empty is 0.
    Raises `TarError`."""
    if not field:
        return 0
    if digits == 8 and field[0] & 0x80:
        value = int.from_bytes(field, "big")
        bits = 8 * len(field)
        return value - (1 << bits) if field[0] & 0x40 else value - (1 << (bits - 1))
    plain = field.strip(b"\0 ")
    if plain and not _DIGITS[digits].fullmatch(plain):
        raise TarError(f"a number that cannot be read: {field[:24]!r}")
    return int(plain or b"0", digits)


def text(field: bytes) -> bytes:
    return field.split(b"\0", 1)[0]


def seconds_to_ns(value: bytes) -> int:
    """`1700000000.25`, as pax writes times, in ns. Raises `TarError`."""
    found = _DECIMAL_SECONDS.fullmatch(value)
    if not found:
        raise TarError(f"a time that cannot be read: {value[:40]!r}")
    fraction = int((found[2] or b"")[:9].ljust(9, b"0") or b"0")
    return int(found[1]) * 10**9 + fraction
