"""Releases of apps: what each was to run, kept at the app's home. Records alone; who deploys reads and moves them."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import islice

import msgspec

from hawker.clock import Clock
from hawker.errors import Conflict, NotFound, Unprocessable
from hawker.fsm import journal
from hawker.record.app import APPS, RELEASES, ReleaseRecord
from hawker.record.deploy import DEPLOY_SLOTS, DEPLOYS, deploy_key, deploy_resource
from hawker.store.contract import Reader, Store, Tx

MAX_DEFINITION_BYTES = 256 * 1024
MAX_TEXT = 2000


class ReleaseStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    ROLLING_BACK = "rolling_back"
    ROLLED_BACK = "rolled_back"


CLIENT_GONE_S = 300.0
"""The seconds after which a client that drives a deploy by itself, and has not said that it ended, counts as gone."""
DRIVEN = frozenset({ReleaseStatus.PENDING, ReleaseStatus.RUNNING})
"""The statuses of a release that a client brings machines to by itself."""
KEPT_RELEASES = 200
ENDED = frozenset({ReleaseStatus.COMPLETE, ReleaseStatus.FAILED, ReleaseStatus.INTERRUPTED, ReleaseStatus.ROLLED_BACK})


class ReleaseTable:
    """The last `KEPT_RELEASES` of each app."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def list(self, app: str) -> list[ReleaseRecord]:
        """The releases of `app`, newest first."""
        return [record for _, record in self._store.scan(RELEASES, f"{app}/")][::-1]

    async def add(
        self, app: str, *, image: str, strategy: str, description: str, definition: bytes, user: str
    ) -> ReleaseRecord:
        """Add a release, durable when this returns. The oldest goes when there are too many. Raises `NotFound`,
        `Unprocessable`, and `Conflict` while a deploy of this node is under way."""
        check_size(image, strategy, description, definition)
        now = self._clock.now()

        def apply(tx: Tx) -> ReleaseRecord:
            if _is_under_way(tx, app):
                raise Conflict(f"a deploy of app '{app}' is under way: see `hawker deploy status -a {app}`")
            return added(
                tx,
                app,
                ReleaseRecord(
                    version=0,
                    status=ReleaseStatus.PENDING,
                    strategy=strategy,
                    image=image,
                    description=description,
                    definition=definition,
                    user=user,
                    created_at=now,
                    updated_at=now,
                ),
            )

        return await self._store.write(apply)

    async def move(self, app: str, version: int, status: str) -> ReleaseRecord:
        """Gives a release a new status; the same status again is no change. Raises `NotFound`, and `Conflict` for a
        release that ended otherwise, or that a deploy of this node moves."""
        now = self._clock.now()

        def apply(tx: Tx) -> ReleaseRecord:
            if tx.get(DEPLOYS, deploy_key(app, version)) is not None and found(tx, app, version).status not in ENDED:
                raise Conflict(f"release {version} of app '{app}' is a deploy under way: abort that")
            return moved(tx, app, version, status, now)

        return await self._store.write(apply)


def check_free(reader: Reader, app: str, now: float) -> None:
    """Raises `Conflict` while a deploy of the app is under way: one of ours, or one that a client such as flyctl drives
    by itself. Such a client says when it begins and ends; a client that has said nothing for long is believed to be
    gone."""
    if _is_under_way(reader, app):
        raise Conflict(f"a deploy of app '{app}' is under way: see `hawker deploy status -a {app}`, or abort it")
    newest = next(newest_first(reader, app), None)
    if newest is None or newest.status not in DRIVEN:
        return
    if reader.get(DEPLOYS, deploy_key(app, newest.version)) is not None:
        return
    left_s = newest.updated_at + CLIENT_GONE_S - now
    if left_s > 0:
        raise Conflict(
            f"release {newest.version} of app '{app}' is {newest.status}: {newest.user or 'a client'} brings machines"
            f" to it; if that client is gone, deploy again in {left_s:.0f} s"
        )


def _is_under_way(reader: Reader, app: str) -> bool:
    """Whether one of ours is. Not one that has ended, whose run still tells its voters so: who saw the end may begin
    the next."""
    if journal.active(reader, deploy_resource(app)) is None:
        return False
    deploys = [record for _, record in reader.scan(DEPLOYS, f"{app}/")]
    return not deploys or any(record.ended_at is None for record in deploys)


def unfinished(reader: Reader, app: str, versions: Iterable[str]) -> frozenset[str]:
    """Which of these are versions of bluegreen releases that a client drove by itself and did not bring to their end:
    it may have left machines of two releases, that all serve."""
    numbers = [each for each in versions if len(each) < 10 and each.isdecimal() and str(int(each)) == each]
    keys = {version: deploy_key(app, int(version)) for version in numbers}
    return frozenset(
        version
        for version, key in keys.items()
        if (record := reader.get(RELEASES, key)) is not None
        and record.strategy == "bluegreen"
        and record.status != ReleaseStatus.COMPLETE
        and reader.get(DEPLOYS, key) is None
    )


def has_complete(reader: Reader, app: str) -> bool:
    """Whether the app was ever brought to a release."""
    return any(record.status == ReleaseStatus.COMPLETE for record in newest_first(reader, app))


def pinned_of(reader: Reader, app: str, release: ReleaseRecord) -> str:
    """The image of a release with the digest that it meant when its deploy was accepted; empty where none is known.
    Deploys of older versions tell it by what they made of machines."""
    if release.pinned:
        return release.pinned
    slots = reader.scan(DEPLOY_SLOTS, f"{deploy_key(app, release.version)}/")
    return next((each.config.image or "" for _, each in slots if each.config is not None), "")


def newest_first(reader: Reader, app: str) -> Iterator[ReleaseRecord]:
    """One after the other, as far as they are asked for: each is as large as its definition, and there are many."""
    after: str | None = None
    while page := list(reader.scan(RELEASES, f"{app}/", after=after, limit=1, reverse=True)):
        after, record = page[0]
        yield record


def check_size(image: str, strategy: str, description: str, definition: bytes) -> None:
    """Checks that the texts and the definition are not too long. Raises `Unprocessable`."""
    if len(definition) > MAX_DEFINITION_BYTES:
        raise Unprocessable(f"definition: it is longer than {MAX_DEFINITION_BYTES >> 10} KiB")
    for name, text in (("image", image), ("strategy", strategy), ("description", description)):
        if len(text) > MAX_TEXT:
            raise Unprocessable(f"{name}: it is longer than {MAX_TEXT} characters")


def next_version(reader: Reader, app: str) -> int:
    newest = next(newest_first(reader, app), None)
    return 1 if newest is None else newest.version + 1


def added(tx: Tx, app: str, record: ReleaseRecord) -> ReleaseRecord:
    """Adds `record` with the next version. The oldest releases go when there are too many, but for the last two that
    are complete. Raises `NotFound`."""
    if tx.get(APPS, app) is None:
        raise NotFound("app not found")
    too_many = tx.count(RELEASES, f"{app}/") + 1 - KEPT_RELEASES
    if too_many > 0:
        complete = (each for each in newest_first(tx, app) if each.status == ReleaseStatus.COMPLETE)
        last_complete = {each.version for each in islice(complete, 2)}
        for key, old in list(tx.scan(RELEASES, f"{app}/", limit=too_many)):
            if old.version not in last_complete:
                tx.delete(RELEASES, key)
    record = msgspec.structs.replace(record, version=next_version(tx, app))
    tx.put(RELEASES, deploy_key(app, record.version), record)
    return record


def moved(tx: Tx, app: str, version: int, status: str, now: float) -> ReleaseRecord:
    """Gives a release a new status; the same status again is no change. Raises `NotFound`, and `Conflict` for a release
    that ended otherwise."""
    record = found(tx, app, version)
    if record.status == status:
        return record
    if record.status in ENDED:
        raise Conflict(f"release {version} of app '{app}' has ended: {record.status}")
    after = msgspec.structs.replace(record, status=status, updated_at=now)
    tx.put(RELEASES, deploy_key(app, version), after)
    return after


def found(reader: Reader, app: str, version: int) -> ReleaseRecord:
    record = reader.get(RELEASES, deploy_key(app, version))
    if record is None:
        raise NotFound(f"app '{app}' has no release {version}")
    return record
