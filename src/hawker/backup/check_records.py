"""The checks of a repository's backups, as its objects below `verified/` say. Several nodes write them down at once,
each in an object of its own with all that it knows.

An object is written once under a name that nobody chose before, so what the same names said is known without reading
them again. One such answer is kept. A fleet's checks are megabytes: they are opened, joined and written in threads.
"""

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Collection

import anyio
import msgspec

from hawker.archive.failure import ArchiveDamaged
from hawker.backup import format as objects
from hawker.backup.checks import BackupCheck, BackupChecks, believed, latest_in, merged
from hawker.backup.format import RepositoryKeys
from hawker.backup.place import BackupPlace
from hawker.clock import Clock
from hawker.fair.threads import Pool, in_thread
from hawker.log import bind
from hawker.value_object import ValueObject

_VERIFIED = "verified/"
_MOST_LISTED = 100_000
_LAST_LETTER = "\U0010ffff"

_log = bind("hawker.backups")


class _Known(ValueObject, frozen=True):
    """What the objects of these keys say. `names` are the backups in order, `latest` is the last moment in it."""

    keys: list[str]
    checks: BackupChecks
    names: list[str]
    latest: float


class BackupCheckRecords:
    def __init__(self, place: BackupPlace, keys: Callable[[], Awaitable[RepositoryKeys]], clock: Clock) -> None:
        self._place = place
        self._keys = keys
        self._clock = clock
        self._last: _Known | None = None
        self._reading = anyio.Lock()

    async def all(self) -> BackupChecks:
        """The checks of all backups. What cannot be read says nothing."""
        return await self._believed(await self._read())

    async def below(self, prefix: str) -> dict[str, BackupCheck]:
        """The checks of the backups whose names begin with `prefix`."""
        known = await self._read()
        names = known.names[bisect_left(known.names, prefix) : bisect_left(known.names, prefix + _LAST_LETTER)]
        found = BackupChecks(backups={name: known.checks.backups[name] for name in names})
        return believed(found, self._clock.now()).backups

    async def add(self, made: BackupChecks, removed: Collection[str] = ()) -> BackupChecks:
        """Writes all checks that are known then, in one object; what is known of `removed` backups goes."""
        keys, key = await self._keys(), f"{_VERIFIED}{self._clock.token_bytes(16).hex()}"
        known = await self._read()
        before = await self._believed(known)

        def sealed() -> tuple[BackupChecks, bytes]:
            both = merged(before, made)
            left = {name: check for name, check in both.backups.items() if name not in removed}
            both = msgspec.structs.replace(both, backups=left)
            return both, keys.seal(key, msgspec.msgpack.encode(both))

        both, data = await in_thread(Pool.ARCHIVE, sealed)
        await self._place.put_new(key, data)
        for each in known.keys:
            await self._place.backend.remove(each)
        return both

    async def _believed(self, known: _Known) -> BackupChecks:
        now = self._clock.now()
        return known.checks if known.latest <= now else await in_thread(Pool.ARCHIVE, believed, known.checks, now)

    async def _read(self) -> _Known:
        """An object that goes meanwhile has become part of another: all are read again."""
        opener = await self._keys()
        async with self._reading:
            while True:
                keys = await self._place.backend.names(_VERIFIED, _MOST_LISTED)
                if self._last is not None and self._last.keys == keys:
                    return self._last
                found = await self._joined(keys, opener)
                if found is not None:
                    self._last = await in_thread(Pool.ARCHIVE, _known, keys, found)
                    return self._last

    async def _joined(self, keys: list[str], opener: RepositoryKeys) -> BackupChecks | None:
        """None when one of them is gone."""
        found = BackupChecks()
        for key in keys:
            try:
                sealed = await self._place.get(key, objects.MOST_CHECKS_BYTES)
                if sealed is None:
                    return None
                found = await in_thread(Pool.ARCHIVE, _with, found, opener, key, sealed)
            except ArchiveDamaged as error:
                _log.warning("checks of backups cannot be read", extra={"object": key, "error": str(error)})
        return found


def _with(found: BackupChecks, opener: RepositoryKeys, key: str, sealed: bytes) -> BackupChecks:
    return merged(found, objects.decoded(opener.open(key, sealed), BackupChecks))


def _known(keys: list[str], checks: BackupChecks) -> _Known:
    return _Known(keys, checks, sorted(checks.backups), latest_in(checks))
