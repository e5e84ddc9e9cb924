"""Reading a share of a repository on each day, so that all of it is read again and again: every manifest and segment,
and of the packs those whose turn it is, with every chunk in them.

What is found is written down in the repository after each part, so whoever goes on, on whichever node, goes on from
there. A prune may remove what is looked at: only what a backup still has is damage.
"""

from collections.abc import Awaitable, Callable, Collection

from hawker.archive.failure import ArchiveDamaged
from hawker.backup.checks import BackupCheck, BackupChecks, BackupShareReport, due_parts, next_moment, verified_since
from hawker.backup.format import CHUNK_BYTES, HOLE, SEGMENT_BYTES, BackupManifest, RepositoryKeys
from hawker.backup.repository import BackupRepository
from hawker.backup.transfer import unseal
from hawker.errors import NotFound
from hawker.failpoint import reach
from hawker.fair.threads import Pool, in_thread

_TRIES = 2  # what was not read well once is read once more, before it is called damaged


class _Survey:
    """What the backups have. `has` is in which parts each has packs; `damage` is of those whose lists cannot be read.
    `packs` are those of the parts that are due, each with the segments that have chunks in it and their lengths. `seen`
    has of each segment the parts of its packs, or what is wrong with it."""

    def __init__(self) -> None:
        self.has: dict[str, set[int]] = {}
        self.damage: dict[str, str] = {}
        self.packs: dict[int, dict[bytes, list[tuple[bytes, int]]]] = {}
        self.seen: dict[bytes, frozenset[int] | str] = {}


async def verify_share(
    repository: BackupRepository,
    now: float,
    percent: float,
    pace: Callable[[int], Awaitable[None]],
) -> BackupShareReport:
    """Verifies the share of this day, at `now` in Unix seconds; does nothing when it was read already. `pace` is called
    after each pack with its bytes, and waits as long as the reader is to rest. Raises `Unavailable` while another node
    does it, and what reading the place raises; what was written down stays."""
    known = await repository.checks()
    if not due_parts(known.parts, now, percent):
        return _report(known, {}, 0, 0, 0)
    async with repository.verifying() as keep_on:
        known = await repository.checks()
        now = next_moment(known, now)
        verification = _Verification(repository, await repository.keys(), now, pace, keep_on)
        return await verification.run(known, due_parts(known.parts, now, percent))


class _Verification:
    def __init__(
        self,
        repository: BackupRepository,
        keys: RepositoryKeys,
        now: float,
        pace: Callable[[int], Awaitable[None]],
        keep_on: Callable[[], Awaitable[None]],
    ) -> None:
        self._repository = repository
        self._keys = keys
        self._now = now
        self._pace = pace
        self._keep_on = keep_on
        self._survey = _Survey()
        self._found: dict[str, str] = {}
        self._gone: Collection[str] = ()
        self._packs = self._bytes = 0

    async def run(self, before: BackupChecks, due: list[int]) -> BackupShareReport:
        survey, repository = self._survey, self._repository
        survey.packs = {part: {} for part in due}
        backups = await repository.backups("")
        self._gone = before.backups.keys() - set(backups)
        for backup in backups:
            await self._look(backup)
        empty = [part for part in due if not survey.packs[part]]
        known = await self._note(survey.damage, empty)
        for part in [each for each in due if survey.packs[each]]:
            damage = {
                pack: wrong
                for pack, segments in survey.packs[part].items()
                if (wrong := await self._wrong(pack, segments)) is not None
            }
            hit = await self._hit(part, damage) if damage else {}
            await self._keep_on()
            reach("backup_verification.part.read")
            known = await self._note(hit, [part])
            reach("backup_verification.part.noted")
        return _report(known, self._found, len(due), self._packs, self._bytes)

    async def _look(self, backup: str) -> None:
        survey = self._survey
        try:
            manifest = await self._repository.manifest(backup)
            has = set[int]()
            for name, length in _segments(manifest):
                if name not in survey.seen:
                    survey.seen[name] = await self._parts_of(name, length)
                found = survey.seen[name]
                if isinstance(found, str):
                    raise ArchiveDamaged(found)
                has |= found
            survey.has[backup] = has
        except NotFound:
            return  # it was removed meanwhile
        except ArchiveDamaged as error:
            if backup in await self._repository.backups(f"{backup.rpartition('/')[0]}/"):
                survey.damage[backup] = str(error)

    async def _parts_of(self, name: bytes, length: int) -> frozenset[int] | str:
        await self._keep_on()
        try:
            segment = await self._repository.segment(name)
            if len(segment.chunks) != -(-length // CHUNK_BYTES):
                raise ArchiveDamaged(f"segment {name.hex()} does not have the chunks of its place")
        except ArchiveDamaged as error:
            return str(error)
        packs = {place.pack for place in segment.chunks if place is not None}
        for pack in packs:
            if pack[0] in self._survey.packs:
                self._survey.packs[pack[0]].setdefault(pack, []).append((name, length))
        return frozenset(pack[0] for pack in packs)

    async def _wrong(self, pack: bytes, segments: list[tuple[bytes, int]]) -> str | None:
        for attempt in range(_TRIES):
            await self._keep_on()
            try:
                await self._read(pack, segments)
            except ArchiveDamaged as error:
                if attempt == _TRIES - 1:
                    return str(error)
            else:
                break
        return None

    async def _read(self, pack: bytes, segments: list[tuple[bytes, int]]) -> None:
        """Its name, and the seal and name of each chunk that a segment has in it."""
        async with self._repository.room() as room:
            file = room / "pack"
            await self._repository.pack(pack, file)
            read_bytes = (await in_thread(Pool.DISKS, file.stat)).st_size
            for name, length in segments:
                chunks = (await self._repository.segment(name)).chunks
                places = [
                    (number * CHUNK_BYTES, place)
                    for number, place in enumerate(chunks)
                    if place is not None and place.pack == pack
                ]
                await in_thread(Pool.DISKS, unseal, file, places, self._keys, length, lambda at, data: None)
        self._packs += 1
        self._bytes += read_bytes
        await self._pace(read_bytes)

    async def _hit(self, part: int, damage: dict[bytes, str]) -> dict[str, str]:
        """The backups that have a damaged pack, and are there still."""
        bad = {name: wrong for pack, wrong in damage.items() for name, _ in self._survey.packs[part][pack]}
        found = dict[str, str]()
        for backup in [each for each, has in self._survey.has.items() if part in has]:
            await self._keep_on()
            try:
                names = (await self._repository.manifest(backup)).names()
            except (NotFound, ArchiveDamaged):
                continue
            wrong = next((bad[name] for name in names if name in bad), None)
            if wrong is not None:
                found[backup] = wrong
        return found

    async def _note(self, damage: dict[str, str], read: Collection[int]) -> BackupChecks:
        """What is known from now on, once these parts were read."""
        survey, now, repository = self._survey, self._now, self._repository
        self._found |= damage
        before = await repository.checks()
        parts = tuple(now if each in read else at for each, at in enumerate(before.parts))
        there = survey.has.keys() | survey.damage.keys()
        made = {name: before.backups.get(name, BackupCheck(listed_at=now)) for name in there}
        made = {name: _check(each, parts, survey.has.get(name), damage.get(name), now) for name, each in made.items()}
        return await repository.add_checks(BackupChecks(parts=parts, backups=made), self._gone)


def _check(
    before: BackupCheck, parts: tuple[float, ...], has: set[int] | None, damage: str | None, now: float
) -> BackupCheck:
    listed_at = now if before.listed_at is None else before.listed_at
    known = BackupCheck(listed_at=listed_at)
    verified_at = None if has is None else verified_since(known, parts, has, now)
    return BackupCheck(
        listed_at=listed_at,
        verified_at=verified_at,
        damaged_at=now if damage is not None else None,
        damage=damage,
    )


def _segments(manifest: BackupManifest) -> list[tuple[bytes, int]]:
    """Those that are no holes, once each, with the bytes of the volume that each is for."""
    lengths = dict[bytes, int]()
    for number, name in enumerate(manifest.names()):
        if name != HOLE:
            lengths[name] = min(SEGMENT_BYTES, manifest.size_bytes - number * SEGMENT_BYTES)
    return list(lengths.items())


def _report(known: BackupChecks, found: dict[str, str], parts: int, packs: int, read_bytes: int) -> BackupShareReport:
    damaged = {name: check.found for name, check in known.backups.items()}
    return BackupShareReport(
        parts=parts,
        packs=packs,
        read_bytes=read_bytes,
        damaged=tuple((name, wrong) for name, wrong in sorted(damaged.items()) if wrong is not None),
        found=tuple(sorted(found.items())),
    )
