"""Query parameters of the HTTP API, each with its type. A value of another type is refused."""

import math
from collections.abc import Mapping

from hawker.catalog.http.exchange import Answered

_MOST = 2**63 - 1


def number(query: Mapping[str, str], name: str) -> int | None:
    """A whole number from 0 on; None when it is not given. Raises `Answered` with 400 for anything else."""
    text = query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= _MOST):
        raise _refused(f"{name}: a whole number is wanted, not {text[:40]!r}")
    return int(text)


def decimal(query: Mapping[str, str], name: str) -> float | None:
    """A finite number; None when it is not given. Raises `Answered` with 400 for anything else."""
    text = query.get(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _refused(f"{name}: a number is wanted, not {text[:40]!r}")
    return value


def flag(query: Mapping[str, str], name: str) -> bool:
    """`true` or `false`, which is also what is not given. Raises `Answered` with 400 for anything else."""
    text = query.get(name, "false")
    if text not in ("true", "false"):
        raise _refused(f"{name}: true or false is wanted, not {text[:40]!r}")
    return text == "true"


def _refused(what: str) -> Answered:
    return Answered(400, f"Failed to deserialize query string: {what}")
