"""What is known of a repository's content since it was read: which part of its packs was verified when, and which
backups are whole or damaged. Pure.

Several write it down at once, so of two such records either order makes the same one, and none is lost. Packs are told
apart by the first byte of their names, which are hashes: 256 parts of about the same size.
"""

from collections.abc import Collection

import msgspec

from hawker.time_window import DAY_S
from hawker.value_object import ValueObject

PARTS = 256
CLOCKS_S = 600.0
"""The seconds by which the clocks of two hosts may differ."""

FRESH_S = 30 * DAY_S
"""A backup that was not verified for so long is shown as such."""

_TICK_S = 0.001


class BackupCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The checks of one backup, in Unix seconds. `listed_at`: whoever listed backups then, found it. All of it was read
    at `verified_at` or later, and was whole; it was restored and compared at `restored_at`; `damage` was found at
    `damaged_at`."""

    listed_at: float | None = None
    verified_at: float | None = None
    restored_at: float | None = None
    damaged_at: float | None = None
    damage: str | None = None

    def is_stale(self, saved_at: float | None, now: float) -> bool:
        """Whether nobody has read the backup for so long that it is time; a young backup has some time."""
        return now - max(self.verified_at or 0.0, saved_at or 0.0) > FRESH_S

    @property
    def found(self) -> str | None:
        """The damage, unless all of it was read and was whole since."""
        if self.damaged_at is None or (self.verified_at is not None and self.verified_at > self.damaged_at):
            return None
        return self.damage or "damaged"


class BackupChecks(msgspec.Struct, frozen=True, kw_only=True):
    """`verified/TOKEN`. `parts`: of the packs whose names begin with that byte, when those backups were listed whose
    packs were then verified, in Unix seconds, 0 for never. `backups` are by their names."""

    parts: tuple[float, ...] = (0.0,) * PARTS
    backups: dict[str, BackupCheck] = {}


class BackupShareReport(ValueObject, frozen=True, kw_only=True):
    """The report of what was read: how many parts, packs and bytes. `damaged` are all backups that are known to be,
    with what is wrong; `found` those that this look found."""

    parts: int
    """The number of the repository's 256 parts that were read, 0 to 256."""
    packs: int
    """The number of packs in them that were read."""
    read_bytes: int
    """The number of sealed bytes that were read."""
    damaged: tuple[tuple[str, str], ...]
    found: tuple[tuple[str, str], ...]


def merged(one: BackupChecks, other: BackupChecks) -> BackupChecks:
    both = one.backups.keys() & other.backups.keys()
    return BackupChecks(
        parts=tuple(max(pair) for pair in zip(one.parts, other.parts, strict=True)),
        backups=one.backups | other.backups | {key: _of_both(one.backups[key], other.backups[key]) for key in both},
    )


def _of_both(one: BackupCheck, other: BackupCheck) -> BackupCheck:
    damaged = max((one, other), key=lambda each: (each.damaged_at or 0.0, each.damage or ""))
    return BackupCheck(
        listed_at=min((at for at in (one.listed_at, other.listed_at) if at is not None), default=None),
        verified_at=_later(one.verified_at, other.verified_at),
        restored_at=_later(one.restored_at, other.restored_at),
        damaged_at=damaged.damaged_at,
        damage=damaged.damage,
    )


def _later(one: float | None, other: float | None) -> float | None:
    return max((at for at in (one, other) if at is not None), default=None)


def believed(checks: BackupChecks, now: float) -> BackupChecks:
    """The checks without what is of the future: a clock that went wrong wrote it, and it would hold for years."""
    latest = now + CLOCKS_S
    return BackupChecks(
        parts=tuple(at if at <= latest else 0.0 for at in checks.parts),
        backups={name: _believed(check, latest) for name, check in checks.backups.items()},
    )


def latest_in(checks: BackupChecks) -> float:
    """The last moment that they name: from then on all of them are believed."""
    moments = (
        at
        for each in checks.backups.values()
        for at in (each.listed_at, each.verified_at, each.restored_at, each.damaged_at)
    )
    return max(*checks.parts, max((at for at in moments if at is not None), default=0.0))


def _believed(check: BackupCheck, latest: float) -> BackupCheck:
    def until(at: float | None) -> float | None:
        return at if at is not None and at <= latest else None

    return BackupCheck(
        listed_at=until(check.listed_at),
        verified_at=until(check.verified_at),
        restored_at=until(check.restored_at),
        damaged_at=until(check.damaged_at),
        damage=check.damage if until(check.damaged_at) is not None else None,
    )


def next_moment(checks: BackupChecks, now: float) -> float:
    """The moment for a look that begins `now`: later than that of every look before, whatever the clock was that it
    went by."""
    listed = (check.listed_at or 0.0 for check in checks.backups.values())
    return max(now, max((*checks.parts, *listed)) + _TICK_S)


def due_parts(parts: tuple[float, ...], now: float, percent: float) -> list[int]:
    """The parts that are to be verified now so that `percent` are on each day: those that wait the longest. What was
    missed is not made up for."""
    a_day = min(PARTS, -(-PARTS * percent // 100))
    today = sum(at > now - DAY_S for at in parts)
    oldest_first = sorted((at, part) for part, at in enumerate(parts) if at <= now - DAY_S)
    return [part for _, part in oldest_first[: max(0, int(a_day) - today)]]


def verified_since(check: BackupCheck, parts: tuple[float, ...], has: Collection[int], now: float) -> float | None:
    """Since when all of a backup is known to be whole that has packs in these parts; None while one was not verified
    since the backup was listed. Its manifest and segments are whole `now`."""
    moments = [parts[part] for part in has]
    if check.listed_at is None or any(at < check.listed_at for at in moments):
        return None
    return min(moments, default=now)
