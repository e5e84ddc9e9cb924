"""Signals by the names and numbers that clients send."""

import signal

_NAMES = {entry.name: int(entry) for entry in signal.Signals}

LONGEST_STOP_S = 300.0
"""The most time that a machine may be given to end after a signal."""

SIGNAL_NAMES, SIGNAL_NUMBERS = tuple(_NAMES), tuple(sorted(set(_NAMES.values())))


def signal_number(value: str | int) -> int:
    """From "SIGTERM", "TERM", "term", 15 or "15". Raises `ValueError` when there is no such signal."""
    if isinstance(value, str) and not value.isascii():
        raise ValueError(f"{value!r} is not a signal")
    if isinstance(value, int) or value.isdecimal():
        return _checked(int(value))
    name = value.upper()
    number = _NAMES.get(name) or _NAMES.get(f"SIG{name}")
    if number is None:
        raise ValueError(f"{value!r} is not a signal")
    return number


def signal_name(value: str | int) -> str:
    """The full name, such as "SIGTERM". Raises `ValueError`."""
    return signal.Signals(signal_number(value)).name


def _checked(number: int) -> int:
    if number not in _NAMES.values():
        raise ValueError(f"{number} is not a signal")
    return number
