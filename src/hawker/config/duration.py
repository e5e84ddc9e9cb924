"""Durations as Go writes them: "1m30s", "250ms", "1.5h". Pure text and numbers."""

import re
from collections.abc import Iterator

_UNITS_NS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_NUMBER, _UNIT = r"(?:[0-9]{1,12}(?:\.[0-9]{0,12})?|\.[0-9]{1,12})", "(?:ns|us|µs|μs|ms|s|m|h)"
_TERM = re.compile(f"({_NUMBER})({_UNIT})")
_PLAIN = r"[0-9]{1,12}(?:\.[0-9]{1,20})?(?:[eE]-[0-9]{1,3})?"
MOST_PLAIN_S = 10**12 - 1

DURATION_PATTERN = rf"^\+?(?:{_NUMBER}{_UNIT})+$"
"""Every duration above nothing is of this form."""
SECONDS_PATTERN = rf"^(?:{_PLAIN}|\+?(?:0|(?:{_NUMBER}{_UNIT})+))$"
"""The form of a duration that may also be a plain number, and may be nothing."""


def parse_duration(text: str) -> float:
    """The seconds of a Go duration. Raises `ValueError` when `text` is not a Go duration."""
    sign, rest = (-1.0, text[1:]) if text.startswith("-") else (1.0, text.removeprefix("+"))
    if rest == "0":
        return 0.0
    terms = _TERM.findall(rest)
    if not terms or "".join(number + unit for number, unit in terms) != rest:
        raise ValueError(f"{text!r} is not a duration such as 10s or 1m30s")
    return sign * sum(float(number) * _UNITS_NS[unit] for number, unit in terms) / 10**9


def parse_seconds(text: str) -> float:
    """A duration, or a plain number of seconds. Raises `ValueError`."""
    if re.fullmatch(f"-?{_PLAIN}", text):
        return float(text)
    return parse_duration(text)


def duration_complaints(field: str, value: str | int | None, least_s: float, most_s: float) -> Iterator[str]:
    """The complaint about a field that holds a duration, if there is one; an absent duration is right."""
    if not value:
        return
    try:
        seconds = parse_duration(str(value))
    except ValueError as error:
        yield f"{field}: {error}"
        return
    if not least_s <= seconds <= most_s:
        yield f"{field} must be between {least_s:g} s and {most_s:g} s, not {value}"


def format_duration(nanoseconds: int) -> str:
    """The string Go prints for so many nanoseconds."""
    sign, left = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    for unit, size in (("ns", 1), ("µs", 10**3), ("ms", 10**6)):
        if 0 < left < size * 1000:
            return f"{sign}{_decimal(left, size)}{unit}"
    hours, left = divmod(left, _UNITS_NS["h"])
    minutes, left = divmod(left, _UNITS_NS["m"])
    seconds = f"{_decimal(left, 10**9)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else f"{sign}{seconds}"


def _decimal(value: int, size: int) -> str:
    whole, part = divmod(value, size)
    digits = len(str(size)) - 1
    fraction = f"{part:0{digits}d}".rstrip("0") if digits else ""
    return f"{whole}.{fraction}" if fraction else str(whole)
