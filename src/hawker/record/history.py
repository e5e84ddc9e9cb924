"""History."""

import msgspec

from hawker.store.contract import Bucket


class ArchiveRecord(msgspec.Struct, frozen=True, kw_only=True):
    """That a destroyed machine's history is in an archive, whole: when it was seen there, where, and how large."""

    archive: str
    bytes: int
    at: float


ARCHIVED = Bucket("archived", ArchiveRecord)  # machine id; only of those in DESTROYED
