"""Removing from a repository what nobody needs any more: backups beyond their retention, and then the segments and
packs that no backup has.

Invariant: nothing that a backup has, or a backup under way may come to have, is removed. Most is read while backups go
on. A prune then bars them, waits until none is under way, and reads what came or was replaced since: only then it
removes. What no backup has is marked first, and removed by a prune that finds it so again when the grace is over:
segments before packs, since whoever finds a segment counts on its packs.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

from hawker.backup.at_work import WorkLease
from hawker.backup.format import HOLE, PruneMarks
from hawker.backup.repository import MOST_STORED, BackupRepository
from hawker.backup.several import each_of
from hawker.fair.threads import Pool, in_thread
from hawker.value_object import ValueObject

GRACE_S = 7 * 86_400.0
DRAFTS_KEPT_S = 86_400.0
"""The seconds after which nobody is at an object any more: what is half written then has no writer any more."""

DAILY, WEEKLY = 7, 4
LONGEST_BAR_S = 1500.0
"""The seconds for which backups are barred before the rest is left to the next prune, waiting for writers included."""

_LOOKS_BEFORE = 2  # the second one is short, and the one that bars backups then has little left
_MANIFESTS_AT_ONCE = 4  # each is up to 34 MiB
_SEGMENTS_AT_ONCE = 16  # each is up to 64 KiB
_REMOVED_AT_ONCE = 16


class BackupPruneReport(ValueObject, frozen=True, kw_only=True):
    """`backups` were beyond their retention, `objects` were removed, `marked` will be when the grace is over."""

    backups: tuple[str, ...]
    objects: int
    marked: int


def retained(backups: Sequence[str], *, daily: int, weekly: int) -> set[str]:
    """The backups that are kept, of names ORG/APP/VOLUME/TIME: of each volume the newest, the last of each of `daily`
    days, and of `weekly` weeks."""
    found, by_volume = set[str](), dict[str, list[str]]()
    for backup in sorted(backups, reverse=True):
        by_volume.setdefault(backup.rpartition("/")[0], []).append(backup)
    for newest_first in by_volume.values():
        found.add(newest_first[0])
        for most, period in ((daily, _day), (weekly, _week)):
            seen = set[str]()
            for backup in newest_first:
                if len(seen) < most and period(backup) not in seen:
                    seen.add(period(backup))
                    found.add(backup)
    return found


def _day(backup: str) -> str:
    return backup.rpartition("/")[2][:8]


def _week(backup: str) -> str:
    try:
        year, week, _ = datetime.strptime(_day(backup), "%Y%m%d").replace(tzinfo=UTC).isocalendar()
    except ValueError:
        return backup  # of a name that says no day, each is its own
    return f"{year}-{week}"


async def prune(
    repository: BackupRepository,
    now: float,
    *,
    daily: int = DAILY,
    weekly: int = WEEKLY,
    grace_s: float = GRACE_S,
    patience_s: float = 0.0,
) -> BackupPruneReport:
    """`now` is in Unix seconds; a backup that is under way is waited for as long as `patience_s`, then this raises
    `Unavailable`. Raises `ArchiveDamaged` when a backup that stays cannot be read: then nothing is removed, since what
    it has is not known."""
    async with repository.surveying() as keep_on:
        survey = _Survey(repository, daily, weekly)
        for _ in range(_LOOKS_BEFORE):
            await survey.look(keep_on)
        async with repository.taken(patience_s) as lease:
            report = await _remove(repository, survey, lease, now, now - grace_s)
        drafts = await repository.remove_drafts(now - DRAFTS_KEPT_S)
    return BackupPruneReport(backups=report.backups, objects=report.objects + drafts, marked=report.marked)


class _Survey:
    """What the backups that stay have. Each look reads what came or was replaced since the last one, so the look that
    bars backups is a short one. What was found once counts as used from then on: that errs on the safe side, and the
    next prune knows better."""

    def __init__(self, repository: BackupRepository, daily: int, weekly: int) -> None:
        self.packs = set[str]()
        self.listed: dict[str, str | None] = {}
        """The segments that are there, each with its version, as of the last look."""
        self.leaving: list[str] = []
        self._repository = repository
        self._daily = daily
        self._weekly = weekly
        self._manifests = set[str]()
        self._versions: dict[bytes, str | None] = {}

    async def look(self, go_on: Callable[[], Awaitable[None]]) -> None:
        """`go_on` is called before each read."""
        backups = await self._repository.backups("", MOST_STORED)
        stays = retained(backups, daily=self._daily, weekly=self._weekly)
        self.leaving = [each for each in backups if each not in stays]
        self.listed = await self._repository.segments()  # before any is read: one that is replaced meanwhile is seen

        async def read_manifest(backup: str) -> None:
            await go_on()
            for name in (await self._repository.manifest(backup)).names():
                if name != HOLE:
                    self._versions.setdefault(name, None)
            self._manifests.add(backup)

        async def read_segment(name: bytes) -> None:
            await go_on()
            segment = await self._repository.segment(name)
            self.packs |= {self._repository.pack_key(place.pack) for place in segment.chunks if place is not None}
            self._versions[name] = self.listed.get(self._repository.segment_key(name))

        await each_of(sorted(stays - self._manifests), _MANIFESTS_AT_ONCE, read_manifest)
        differing = await in_thread(Pool.ARCHIVE, self._differing)  # there may be millions
        await each_of(differing, _SEGMENTS_AT_ONCE, read_segment)

    def _differing(self) -> list[bytes]:
        """The segments that are to be read, for the first time or anew."""
        key = self._repository.segment_key
        return [name for name, read in self._versions.items() if read is None or read != self.listed.get(key(name))]

    def unused(self, packs: Sequence[str]) -> tuple[list[str], list[str]]:
        """The keys of the segments that no backup has, and of those of all `packs`."""
        segments = self.listed.keys() - {self._repository.segment_key(name) for name in self._versions}
        return sorted(segments), [each for each in packs if each not in self.packs]


async def _remove(
    repository: BackupRepository, survey: _Survey, lease: WorkLease, now: float, marked_by: float
) -> BackupPruneReport:
    """While nobody writes. What is not removed in time stays marked for the next prune."""

    async def go_on() -> None:
        lease.check()

    async def remove_backup(backup: str) -> None:
        lease.check()
        await repository.remove_backup(backup)

    async def remove_stored(key: str) -> None:
        lease.check()
        if lease.lasted_s() < LONGEST_BAR_S:
            await repository.remove_stored(key)
            del since[key]

    await survey.look(go_on)
    await each_of(survey.leaving, _REMOVED_AT_ONCE, remove_backup)
    unused = await in_thread(Pool.ARCHIVE, survey.unused, await repository.packs())
    before = await repository.marks()
    since = {key: min(now, before.since.get(key, now)) for kind in unused for key in kind}
    count = len(since)
    for kind in unused:
        due = [key for key in kind if key in before.since and since[key] <= marked_by]
        await each_of(due, _REMOVED_AT_ONCE, remove_stored)
        if any(key in since for key in due):
            break  # a pack stays as long as a segment that may count on it
    lease.check()
    await repository.put_marks(PruneMarks(since=since, at=now))
    return BackupPruneReport(backups=tuple(survey.leaving), objects=count - len(since), marked=len(since))
