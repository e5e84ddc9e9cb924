"""Releases of apps: what each was to run, kept at the app's home. Records alone; who deploys reads and moves them."""

from enum import StrEnum

import msgspec

from hawker.api.bounds import RELEASES_IN_PAGE
from hawker.clock import Clock
from hawker.errors import Conflict, NotFound, Unprocessable
from hawker.record.app import APPS, RELEASES, ReleaseRecord
from hawker.store.contract import Reader, Store, Tx

MAX_DEFINITION_BYTES = 256 * 1024
MAX_TEXT = 2000


class ReleaseStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


ENDED = frozenset({ReleaseStatus.COMPLETE, ReleaseStatus.FAILED, ReleaseStatus.INTERRUPTED})


class ReleaseTable:
    """The last hundred of each app."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def list(self, app: str) -> list[ReleaseRecord]:
        """Newest first."""
        return [record for _, record in self._store.scan(RELEASES, f"{app}/")][::-1]

    async def add(
        self, app: str, *, image: str, strategy: str, description: str, definition: bytes, user: str
    ) -> ReleaseRecord:
        """Durable when it returns. The oldest goes when there are too many. Raises `NotFound`, `Unprocessable`."""
        if len(definition) > MAX_DEFINITION_BYTES:
            raise Unprocessable(f"definition: it is longer than {MAX_DEFINITION_BYTES >> 10} KiB")
        for name, text in (("image", image), ("strategy", strategy), ("description", description)):
            if len(text) > MAX_TEXT:
                raise Unprocessable(f"{name}: it is longer than {MAX_TEXT} characters")
        now = self._clock.now()

        def apply(tx: Tx) -> ReleaseRecord:
            if tx.get(APPS, app) is None:
                raise NotFound("app not found")
            there = [each.version for _, each in tx.scan(RELEASES, f"{app}/")]
            record = ReleaseRecord(
                version=max(there, default=0) + 1,
                status=ReleaseStatus.PENDING,
                strategy=strategy,
                image=image,
                description=description,
                definition=definition,
                user=user,
                created_at=now,
                updated_at=now,
            )
            tx.put(RELEASES, _key(app, record.version), record)
            for old in there[: max(0, len(there) + 1 - RELEASES_IN_PAGE)]:
                tx.delete(RELEASES, _key(app, old))
            return record

        return await self._store.write(apply)

    async def move(self, app: str, version: int, status: str) -> ReleaseRecord:
        """To the same status again is no change. Raises `NotFound`, and `Conflict` for one that ended otherwise."""
        now = self._clock.now()

        def apply(tx: Tx) -> ReleaseRecord:
            record = _found(tx, app, version)
            if record.status == status:
                return record
            if record.status in ENDED:
                raise Conflict(f"release {version} of app '{app}' has ended: {record.status}")
            moved = msgspec.structs.replace(record, status=status, updated_at=now)
            tx.put(RELEASES, _key(app, version), moved)
            return moved

        return await self._store.write(apply)


def _found(reader: Reader, app: str, version: int) -> ReleaseRecord:
    record = reader.get(RELEASES, _key(app, version))
    if record is None:
        raise NotFound(f"app '{app}' has no release {version}")
    return record


def _key(app: str, version: int) -> str:
    return f"{app}/{version:010d}"
