"""A node's labels, as its settings have them: what orders may ask for. Pure."""

import re
from collections.abc import Iterable

from hawker.errors import CannotStart

MAX_LABELS = 64
_KEY = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,62}[A-Za-z0-9])?")
_MAX_VALUE = 256


def labels_of(texts: Iterable[str]) -> dict[str, str]:
    """From KEY=VALUE. Raises `CannotStart` naming the one that is none."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not _KEY.fullmatch(key) or len(value) > _MAX_VALUE or not _fits(value):
            raise CannotStart(f"label {text!r:.80} is not KEY=VALUE, such as disk=ssd")
        if key in found:
            raise CannotStart(f"label {key} is given twice")
        found[key] = value
    if len(found) > MAX_LABELS:
        raise CannotStart(f"a node has at most {MAX_LABELS} labels, not {len(found)}")
    return found


def _fits(value: str) -> bool:
    """An order names several labels with commas between them."""
    return value.isprintable() and "," not in value
