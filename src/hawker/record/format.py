"""Format."""

import msgspec

from hawker.store.contract import Bucket


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """What a directory holds. This struct itself may only grow: every version of Hawker reads it.

    `number` is that of the last writer, `needs` the highest that any writer so far asked of readers."""

    number: int
    hawker: str
    needs: int
    needs_hawker: str


FORMATS = Bucket("format", Format)  # the one key "self"
