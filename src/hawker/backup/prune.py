"""Removing from a repository what nobody needs any more: backups beyond their retention, and then the segments and
packs that no backup has.

Invariant: nothing that a backup has, or a backup under way may come to have, is removed. A writer says that it is at
work before it looks for what is there, and a prune takes the repository before it looks who is at work. What no backup
has is marked first, and removed by a prune that finds it so again when the grace is over: segments before packs, since
whoever finds a segment counts on its packs.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from hawker.backup.format import HOLE, PruneMarks
from hawker.backup.repository import BackupRepository
from hawker.value_object import ValueObject

GRACE_S = 7 * 86_400.0
DRAFTS_KEPT_S = 86_400.0
"""The seconds after which nobody is at an object any more: what is half written then has no writer any more."""

DAILY, WEEKLY = 7, 4


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
    async with repository.taken(patience_s) as check:
        backups = await repository.backups("")
        stays = retained(backups, daily=daily, weekly=weekly)
        used = await _used(repository, [each for each in backups if each in stays])
        leaving = [each for each in backups if each not in stays]
        for backup in leaving:
            check()
            await repository.remove_backup(backup)
        unused = [each for each in await repository.stored() if each not in used]
        before = await repository.marks()
        since = {name: min(now, before.since.get(name, now)) for name in unused}
        removed = 0
        for name in [each for each, at in since.items() if each in before.since and at <= now - grace_s]:
            check()
            await repository.remove_stored(name)
            del since[name]
            removed += 1
        removed += await repository.remove_drafts(now - DRAFTS_KEPT_S)
        await repository.put_marks(PruneMarks(since=since, at=now))
    return BackupPruneReport(backups=tuple(leaving), objects=removed, marked=len(since))


async def _used(repository: BackupRepository, backups: Sequence[str]) -> set[str]:
    """The keys of all segments and packs that these have."""
    found, seen = set[str](), set[bytes]()
    for backup in backups:
        for name in (await repository.manifest(backup)).names():
            if name == HOLE or name in seen:
                continue
            seen.add(name)
            found.add(repository.segment_key(name))
            segment = await repository.segment(name)
            found |= {repository.pack_key(place.pack) for place in segment.chunks if place is not None}
    return found
