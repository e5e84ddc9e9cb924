"""How long the caller of a call still waits, as a header: each part of Hawker that passes a call on passes on what is
left, so that nobody works for someone who has gone. Remaining time, not a moment: clocks differ. Pure.
"""

from hawker.errors import BadRequest

DEADLINE_HEADER = "hawker-deadline-ms"
_MOST_DIGITS = 9


def written_deadline(left_s: float) -> str:
    return str(max(0, int(left_s * 1000)))


def read_deadline(text: str | None) -> float | None:
    """Seconds; None when the caller did not say. Raises `BadRequest`."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise BadRequest("the header Hawker-Deadline-Ms takes milliseconds, such as 1500")
    return int(text) / 1000
