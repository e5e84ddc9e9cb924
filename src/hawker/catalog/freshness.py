"""Proof of freshness: whether the database still has all that this node ever published. A small file beside it says up
to which version the node may have published; it is written ahead, so that a database that is older than it is found
out.

The database is a copy, or was rolled back, when its run is not the file's or its versions are too low; it may have lost
its end when the host went down (another boot) before the node had closed it.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from hawker.catalog.change import Position, Scope

STEP = 256  # versions per promise
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class VersionCeiling(msgspec.Struct, frozen=True, kw_only=True):
    """How many versions of `epoch` this node may have published: at most `ceiling`, and at least `ceiling - STEP`; in a
    clean file exactly `ceiling`."""

    epoch: int
    ceiling: int


class FreshnessRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The file's content. `run` is named anew each time the node begins, in the database too; `previous` is good until
    the database has the new name. Once it is `clean`, the ceilings are the very last versions."""

    run: str
    previous: str
    boot: str
    clean: bool
    promises: Mapping[Scope, VersionCeiling]


class FreshnessFile:
    def __init__(self, file: Path, boot: str) -> None:
        self._file, self._boot = file, boot
        self.record = _load(file)

    def proves(self, run: str, positions: Mapping[Scope, Position]) -> bool:
        """Whether the database, with its run and its node's positions, is what the file tells of."""
        record = self.record
        if record is None or not run or run not in (record.run, record.previous):
            return False
        if not record.clean and (record.boot != self._boot or not self._boot):
            return False
        return all(_keeps(record, scope, position) for scope, position in positions.items())

    def epoch(self, scope: Scope) -> int:
        """The last that the file knows; -1 for none."""
        promise = self.record.promises.get(scope) if self.record else None
        return promise.epoch if promise else -1

    def begin(self, run: str, previous: str, positions: Mapping[Scope, Position]) -> None:
        promises = {scope: _ahead(position) for scope, position in positions.items()}
        self._write(FreshnessRecord(run=run, previous=previous, boot=self._boot, clean=False, promises=promises))

    def settle(self) -> None:
        """The database has the run's name, on disk."""
        if self.record is not None:
            self._write(msgspec.structs.replace(self.record, previous=""))

    def cover(self, scope: Scope, position: Position) -> None:
        """Before that version can be seen by anyone."""
        assert self.record is not None, "nothing is published before the lease began"
        promise = self.record.promises.get(scope)
        if promise is None or promise.epoch != position.epoch or position.applied > promise.ceiling:
            promises = {**self.record.promises, scope: _ahead(position, behind=1)}
            self._write(msgspec.structs.replace(self.record, promises=promises))

    def end(self, positions: Mapping[Scope, Position]) -> None:
        """The node closes its database in good order."""
        if self.record is not None:
            promises = {scope: VersionCeiling(epoch=at.epoch, ceiling=at.applied) for scope, at in positions.items()}
            self._write(msgspec.structs.replace(self.record, clean=True, promises=promises))

    def _write(self, record: FreshnessRecord) -> None:
        """On disk when this returns; the old one or the new one after a crash."""
        draft = self._file.with_name(f"{self._file.name}.new")
        with draft.open("wb") as file:
            file.write(msgspec.json.encode(record))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._file)
        folder = os.open(self._file.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self.record = record


def boot_id() -> str:
    """Names the time since the host's kernel began; empty where that cannot be told."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _ahead(position: Position, behind: int = 0) -> VersionCeiling:
    return VersionCeiling(epoch=position.epoch, ceiling=position.applied - behind + STEP)


def _keeps(record: FreshnessRecord, scope: Scope, position: Position) -> bool:
    promise = record.promises.get(scope)
    if promise is None or promise.epoch != position.epoch:
        return False
    lowest = promise.ceiling if record.clean else promise.ceiling - STEP
    return lowest <= position.applied <= promise.ceiling


def _load(file: Path) -> FreshnessRecord | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=FreshnessRecord)
    except (OSError, msgspec.DecodeError):
        return None
