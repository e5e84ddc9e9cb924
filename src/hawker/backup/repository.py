"""A repository of backups in a directory or bucket: its key, and its objects sealed and opened. What they mean is in
`format`, what becomes of volumes in `transfer`.

Objects of backups are written once and never changed, but for a segment whose packs are damaged: it may be replaced by
one that finds the same chunks elsewhere. So several nodes may write at a time, and any call may be repeated. Only a
prune (`prune`) removes any, and only while nobody writes.
"""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import anyio
import msgspec

from hawker.archive.backend import ArchiveBackend
from hawker.archive.failure import ArchiveDamaged, ArchiveRefused, of_os
from hawker.archive.pack import owned
from hawker.backup import format as objects
from hawker.backup.checks import CLOCKS_S, BackupChecks, believed, merged
from hawker.backup.format import (
    AtWork,
    BackupManifest,
    BackupSegment,
    PruneMarks,
    RepositoryConfig,
    RepositoryKeys,
)
from hawker.clock import Clock
from hawker.errors import Fault, HawkerError, NotFound, Unavailable
from hawker.fair.threads import Pool, in_thread
from hawker.vault import KEY_BYTES

_CONFIG = "config"
_BACKUPS = "backups/"
_STORED = ("segments/", "packs/")
_RUNNING, _PRUNING, _MARKS = "running/", "pruning", "marks"
_VERIFIED, _VERIFYING = "verified/", "verifying"
BACKUP_LEASE_S = 3600.0
"""The seconds for which a backup counts as under way from when it last said so: a backup that was killed holds up
prunes no longer."""

LONGEST_PRUNE_S = 3600.0
_SAID_AGAIN_S = 600.0
_REMOVED_S = 20.0
_WRITERS_LOOK_S = 5.0
MOST_STORED = 4_000_000
MOST_LISTED = 100_000
_LEAST_PASSPHRASE = 12
_MOST_PASSPHRASE = 1024


def read_passphrase(path: Path) -> bytes:
    """The first line of a file. Raises `ArchiveRefused` for none, or one that is too short to protect anything."""
    try:
        with path.open("rb") as file:
            found = file.read(_MOST_PASSPHRASE).split(b"\n")[0].strip()
    except OSError as error:
        raise ArchiveRefused(f"the passphrase of backups cannot be read from {path}: {error.strerror}") from error
    if len(found) < _LEAST_PASSPHRASE:
        raise ArchiveRefused(f"the passphrase of backups in {path} has less than {_LEAST_PASSPHRASE} bytes")
    return found


class BackupRepository:
    """`scratch` is where objects are on their way; nobody else uses it. `passphrase` is asked for once, when the first
    object is sealed or opened. Every call raises `ArchiveRefused` when someone has to see to the place, `Unavailable`
    when it may pass, and `ArchiveDamaged` for what is not as it was written."""

    def __init__(self, place: ArchiveBackend, scratch: Path, passphrase: Callable[[], bytes], clock: Clock) -> None:
        self._place = place
        self._scratch = scratch
        self._passphrase = passphrase
        self._clock = clock
        self._keys: RepositoryKeys | None = None
        self._opening = anyio.Lock()
        rmtree(scratch, ignore_errors=True)  # what a process that was killed has left

    @property
    def name(self) -> str:
        return self._place.name

    async def keys(self, *, make: bool = False) -> RepositoryKeys:
        """The keys of the repository. With `make`, an empty place becomes a repository. Raises `NotFound` for a place
        that is none."""
        async with self._opening:
            if self._keys is None:
                self._keys = await self._open(make)
            return self._keys

    async def _open(self, make: bool) -> RepositoryKeys:
        passphrase = await in_thread(Pool.ARCHIVE, self._passphrase)
        found = await self._get(_CONFIG, objects.MOST_CONFIG_BYTES)
        if found is None and await self._place.names(_BACKUPS, MOST_LISTED):
            raise self._lost_key()
        if found is None and make:
            key = self._clock.token_bytes(KEY_BYTES)
            config = await in_thread(Pool.ARCHIVE, objects.config_of, key, passphrase, self._clock)
            made = msgspec.msgpack.encode(config)
            await self._put(_CONFIG, made)
            found = await self._get(_CONFIG, objects.MOST_CONFIG_BYTES)
            if found == made:  # another node's may have been first
                return RepositoryKeys(key, self._clock)
        if found is None:
            raise NotFound(f"there are no backups in {self.name}")
        return RepositoryKeys(await self._key_in(found, passphrase), self._clock)

    def _lost_key(self) -> ArchiveDamaged:
        return ArchiveDamaged(
            f"{self.name} has backups and no `config`, which has their key: put that back, or with `hawker volumes"
            " key import` what `hawker volumes key export` wrote"
        )

    async def _key_in(self, config: bytes, passphrase: bytes, refused: str = "") -> bytes:
        """Raises `ArchiveRefused`, with `refused`, for another passphrase."""
        found = objects.decoded(config, RepositoryConfig)
        try:
            return await in_thread(Pool.ARCHIVE, objects.repository_key, found, passphrase, self._clock)
        except Fault as error:
            if isinstance(error, ArchiveDamaged):
                raise
            raise ArchiveRefused(
                refused
                or f"the passphrase does not open the backups in {self.name}: they were begun with another one, or"
                " somebody has changed it since (`hawker volumes key passphrase`)"
            ) from error

    async def key_under(self, passphrase: bytes | None) -> bytes:
        """The repository's key, sealed under this passphrase, or as it is: what `put_key` takes."""
        config = await self._get(_CONFIG, objects.MOST_CONFIG_BYTES)
        if config is None and await self._place.names(_BACKUPS, MOST_LISTED):
            raise self._lost_key()
        if config is None:
            raise NotFound(f"there are no backups in {self.name}")
        key = await self._key_in(config, await in_thread(Pool.ARCHIVE, self._passphrase))
        if passphrase is None:
            return config
        made = await in_thread(Pool.ARCHIVE, objects.config_of, key, passphrase, self._clock)
        return msgspec.msgpack.encode(made)

    async def put_key(self, config: bytes) -> None:
        """Puts back the repository's key. Raises `ArchiveRefused` for what is no key, where there is a key already, or
        when the passphrase does not open this one, or when this one does not open the backups that are there."""
        try:
            objects.decoded(config, RepositoryConfig)
        except ArchiveDamaged as error:
            raise ArchiveRefused("this is no key that `hawker volumes key export` wrote") from error
        refused = "the passphrase does not open this key: it opens with the one that it was exported under"
        key = await self._key_in(config, await in_thread(Pool.ARCHIVE, self._passphrase), refused)
        self._keys = RepositoryKeys(key, self._clock)
        for backup in (await self.backups(""))[-1:]:
            try:
                await self.manifest(backup)
            except ArchiveDamaged as error:
                raise ArchiveRefused(
                    f"this key does not open backup {backup}, the newest in {self.name}: it is of another repository,"
                    " or that backup is damaged"
                ) from error
        if await self._place.size(_CONFIG) is not None:
            raise ArchiveRefused(f"{self.name} has a key: what is there stays")
        await self._put(_CONFIG, config)

    async def change_passphrase(self, passphrase: bytes) -> None:
        """Changes the passphrase all at once: whoever reads `config` finds the old or the new one."""
        await self._replace(_CONFIG, await self.key_under(passphrase))

    # Manifests.

    async def backups(self, prefix: str) -> list[str]:
        """ORG/APP/VOLUME/TIME of every backup below `prefix`, which ends in a slash or is empty; the oldest of a volume
        first."""
        found = await self._place.names(f"{_BACKUPS}{prefix}", MOST_LISTED)
        return [key.removeprefix(_BACKUPS) for key in found]

    async def manifest(self, backup: str) -> BackupManifest:
        """The manifest of a backup. Raises `NotFound`."""
        keys, key = await self.keys(), f"{_BACKUPS}{backup}"
        sealed = await self._get(key, objects.MOST_MANIFEST_BYTES)
        if sealed is None:
            raise NotFound(
                f"backup {backup} not found in {self.name}: `hawker volumes backups` lists those of an app,"
                " `hawker volumes contents` all"
            )
        try:
            return objects.checked(objects.decoded(keys.open(key, sealed), BackupManifest))
        except ArchiveDamaged as error:
            raise ArchiveDamaged(f"backup {backup} cannot be read: {error}") from error

    async def put_manifest(self, backup: str, manifest: BackupManifest) -> None:
        """Writes the manifest of a backup. From here on it is a backup. One that is there stays."""
        keys, key = await self.keys(make=True), f"{_BACKUPS}{backup}"
        await self._put(key, keys.seal(key, msgspec.msgpack.encode(manifest)))

    async def remove_backup(self, backup: str) -> None:
        await self._place.remove(f"{_BACKUPS}{backup}")

    # Who is at work. Each says so before it looks whether the other does.

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """A context for a backup. What is here stays meanwhile, as long as what is given is called again and again: it
        says that the work goes on, and raises `Unavailable` once that was not said for so long that something may have
        gone. Raises `Unavailable` while the repository is pruned."""
        token = self._clock.token_bytes(8).hex()
        async with self._at_work(f"{_RUNNING}{token}", token, BACKUP_LEASE_S) as lease:
            prune = await self._read_at_work(_PRUNING)
            if prune is not None and prune.until + CLOCKS_S > self._clock.now():
                raise Unavailable(f"the backups in {self.name} are being pruned: this one begins when that has ended")
            yield lease.keep_on

    @asynccontextmanager
    async def taken(self, patience_s: float = 0.0) -> AsyncIterator[Callable[[], None]]:
        """A context for a prune. Nobody writes meanwhile, and nobody else prunes. What is given raises `Unavailable`
        once that is not certain any more. No backup begins while one that is under way is waited for; raises
        `Unavailable` after that long."""
        token = self._clock.token_bytes(8).hex()
        said = await self._get(_PRUNING, objects.MOST_AT_WORK_BYTES)
        other = await self._at_work_in(_PRUNING, said)
        if other is not None and other.until + CLOCKS_S > self._clock.now():
            raise Unavailable(f"the backups in {self.name} are being pruned already")
        if said is not None:
            await self._place.remove(_PRUNING)  # of one that was killed
        async with self._at_work(_PRUNING, token, LONGEST_PRUNE_S) as lease:
            mine = await self._read_at_work(_PRUNING)
            if mine is None or mine.token != token:
                raise Unavailable(f"another prune of {self.name} began at the same moment: repeat the command")
            deadline = self._clock.monotonic() + patience_s
            while await self._is_written():
                if self._clock.monotonic() >= deadline:
                    raise Unavailable(f"a backup to {self.name} is under way: prune when it has ended")
                await self._clock.sleep(_WRITERS_LOOK_S)
            yield lease.check

    @asynccontextmanager
    async def verifying(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """A context for a verification. Nobody else verifies the packs of this day, as long as what is given is called
        again and again. It bars no backup and no prune. Raises `Unavailable` while somebody does."""
        said = await self._get(_VERIFYING, objects.MOST_AT_WORK_BYTES)
        other = await self._at_work_in(_VERIFYING, said)
        if other is not None and other.until + CLOCKS_S > self._clock.now():
            raise Unavailable(f"the backups in {self.name} are being verified by another node")
        async with self._at_work(_VERIFYING, self._clock.token_bytes(8).hex(), BACKUP_LEASE_S) as lease:
            yield lease.keep_on

    async def _is_written(self) -> bool:
        for key in await self._place.names(_RUNNING, MOST_LISTED):
            found = await self._read_at_work(key)
            if found is not None and found.until + CLOCKS_S > self._clock.now():
                return True
        return False

    @asynccontextmanager
    async def _at_work(self, key: str, token: str, longest_s: float) -> AsyncIterator["_WorkLease"]:
        """Of two that prune at the same moment the mark is the first one's, and only its own is removed."""
        keys = await self.keys(make=True)

        async def say(until: float) -> None:
            sealed = keys.seal(key, msgspec.msgpack.encode(AtWork(token=token, until=until)))
            await (self._put(key, sealed) if key == _PRUNING else self._replace(key, sealed))

        lease = _WorkLease(self._clock, longest_s, say)
        await lease.begin()
        try:
            yield lease
        finally:
            with anyio.move_on_after(_REMOVED_S, shield=True), suppress(HawkerError):
                there = await self._read_at_work(key)
                if there is not None and there.token == token:
                    await self._place.remove(key)

    async def _read_at_work(self, key: str) -> AtWork | None:
        """One that cannot be read counts for nothing: whoever can write to the place can remove it as well."""
        return await self._at_work_in(key, await self._get(key, objects.MOST_AT_WORK_BYTES))

    async def _at_work_in(self, key: str, sealed: bytes | None) -> AtWork | None:
        if sealed is None:
            return None
        try:
            return objects.decoded((await self.keys()).open(key, sealed), AtWork)
        except ArchiveDamaged:
            return None

    # What a prune marks and removes.

    async def stored(self) -> list[str]:
        """The keys of all segments and packs."""
        return [key for prefix in _STORED for key in await self._place.names(prefix, MOST_STORED)]

    async def remove_stored(self, key: str) -> None:
        assert key.startswith(_STORED), key
        await self._place.remove(key)

    async def remove_drafts(self, before: float) -> int:
        """Removes what whoever was killed has left half written, and nobody has touched since then, in Unix seconds."""
        return await self._place.remove_drafts(before)

    async def marks(self) -> PruneMarks:
        """The marks of the last prune; none where there are none, or none that can be read: then all is marked anew."""
        sealed = await self._get(_MARKS, objects.MOST_MARKS_BYTES)
        try:
            return (
                PruneMarks()
                if sealed is None
                else objects.decoded((await self.keys()).open(_MARKS, sealed), PruneMarks)
            )
        except ArchiveDamaged:
            return PruneMarks()

    async def put_marks(self, marks: PruneMarks) -> None:
        await self._replace(_MARKS, (await self.keys()).seal(_MARKS, msgspec.msgpack.encode(marks)))

    @staticmethod
    def segment_key(name: bytes) -> str:
        return _segment_key(name)

    @staticmethod
    def pack_key(name: bytes) -> str:
        return _pack_key(name)

    # What is known since it was read. Several write it down at once, each in an object of its own.

    async def checks(self) -> BackupChecks:
        """The checks of the backups. What cannot be read says nothing."""
        return (await self._checks())[0]

    async def _checks(self) -> tuple[BackupChecks, list[str]]:
        """With the keys that it is from. One that goes meanwhile has become part of another: all are read again."""
        keys = await self.keys()
        while True:
            found, names = BackupChecks(), await self._place.names(_VERIFIED, MOST_LISTED)
            for key in names:
                sealed = await self._get(key, objects.MOST_CHECKS_BYTES)
                if sealed is None:
                    break
                with suppress(ArchiveDamaged):
                    found = merged(found, objects.decoded(keys.open(key, sealed), BackupChecks))
            else:
                return believed(found, self._clock.now()), names

    async def add_checks(self, made: BackupChecks, removed: Collection[str] = ()) -> BackupChecks:
        """Writes all checks that are known then, in one object; what is known of `removed` backups goes."""
        keys, key = await self.keys(), f"{_VERIFIED}{self._clock.token_bytes(16).hex()}"
        before, names = await self._checks()
        both = merged(before, made)
        left = {name: check for name, check in both.backups.items() if name not in removed}
        both = msgspec.structs.replace(both, backups=left)
        await self._put(key, keys.seal(key, msgspec.msgpack.encode(both)))
        for each in names:
            await self._place.remove(each)
        return both

    # Segments, and the packs that have their chunks.

    async def has_segment(self, name: bytes) -> bool:
        return await self._place.size(_segment_key(name)) is not None

    async def segment(self, name: bytes) -> BackupSegment:
        """The segment of this name; its chunks are those that its name says. Raises `ArchiveDamaged` also when it is
        not there."""
        keys, key = await self.keys(), _segment_key(name)
        sealed = await self._get(key, objects.MOST_SEGMENT_BYTES)
        if sealed is None:
            raise ArchiveDamaged(f"{key} is not there")
        segment = objects.decoded(keys.open(key, sealed), BackupSegment)
        chunks = [objects.HOLE if place is None else place.chunk for place in segment.chunks]
        if len(chunks) > objects.SEGMENT_CHUNKS or keys.segment_name(chunks) != name:
            raise ArchiveDamaged(f"{key} is not what its name says")
        return segment

    async def put_segment(self, name: bytes, segment: BackupSegment, *, anew: bool = False) -> int:
        """Writes a segment and returns the bytes sent. Its packs must be there before. With `anew` it takes the place
        of a segment that has lost some: the same chunks, in other packs."""
        keys, key = await self.keys(make=True), _segment_key(name)
        sealed = keys.seal(key, msgspec.msgpack.encode(segment))
        await (self._replace(key, sealed) if anew else self._put(key, sealed))
        return len(sealed)

    async def put_pack(self, file: Path, name: bytes) -> None:
        await self._place.put_new(_pack_key(name), file)

    async def pack(self, name: bytes, target: Path) -> None:
        """Reads a pack into `target` as it was sent, byte for byte. Raises `ArchiveDamaged` also when it is not
        there."""
        key = _pack_key(name)
        if not await self._place.get(key, target, objects.MOST_PACK_BYTES):
            raise ArchiveDamaged(f"{key} is not there")
        if await in_thread(Pool.ARCHIVE, pack_name, target) != name:
            raise ArchiveDamaged(f"{key} is not what its name says")

    @asynccontextmanager
    async def room(self) -> AsyncIterator[Path]:
        """A context with a directory for one transfer."""
        try:
            room = Path(await in_thread(Pool.ARCHIVE, self._make_room))
        except OSError as error:
            raise of_os(str(self._scratch), error) from error
        try:
            yield room
        finally:
            rmtree(room, ignore_errors=True)

    def _make_room(self) -> str:
        self._scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
        return mkdtemp(dir=self._scratch)

    async def _get(self, key: str, most_bytes: int) -> bytes | None:
        async with self.room() as room:
            file = room / "object"
            if not await self._place.get(key, file, most_bytes):
                return None
            return await in_thread(Pool.ARCHIVE, file.read_bytes)

    async def _replace(self, key: str, data: bytes) -> None:
        async with self.room() as room:
            file = room / "object"
            await in_thread(Pool.ARCHIVE, _write, file, data)
            await self._place.put(key, file)

    async def _put(self, key: str, data: bytes) -> None:
        async with self.room() as room:
            file = room / "object"
            await in_thread(Pool.ARCHIVE, _write, file, data)
            await self._place.put_new(key, file)


class _WorkLease:
    """For `longest_s` from when `say` said last that somebody is at work; the clocks of others may differ."""

    def __init__(self, clock: Clock, longest_s: float, say: Callable[[float], Awaitable[None]]) -> None:
        self._clock = clock
        self._longest_s = longest_s
        self._say = say
        self._said_at = self._until = 0.0  # monotonic, Unix seconds
        self._saying = anyio.Lock()

    async def begin(self) -> None:
        said_at, until = self._clock.monotonic(), self._clock.now() + self._longest_s
        await self._say(until)
        self._said_at, self._until = said_at, until

    def check(self) -> None:
        """Checks by both clocks that the work was said to go on in time: one stands still while the host sleeps, and
        one may be set."""
        late_s = max(self._clock.monotonic() - self._said_at, self._clock.now() - self._until + self._longest_s)
        if late_s > self._longest_s - CLOCKS_S:
            raise Unavailable(f"it took longer than {self._longest_s / 3600:g} h: repeat it, it goes on from there")

    async def keep_on(self) -> None:
        async with self._saying:
            self.check()
            if self._clock.monotonic() - self._said_at < _SAID_AGAIN_S:
                return
            said_at, until = self._clock.monotonic(), self._clock.now() + self._longest_s
            await self._say(until)
            self.check()  # it was said before others stopped counting on it
            self._said_at, self._until = said_at, until


def pack_name(file: Path) -> bytes:
    """A hash of the sealed bytes: whether a pack is whole can be told without the key."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, pack_digest).digest()


def pack_digest() -> "hashlib.blake2b":
    return hashlib.blake2b(digest_size=objects.NAME_BYTES)


def _write(file: Path, data: bytes) -> None:
    with owned(file) as stream:
        stream.write(data)


def _segment_key(name: bytes) -> str:
    return f"segments/{name.hex()[:2]}/{name.hex()}"


def _pack_key(name: bytes) -> str:
    return f"packs/{name.hex()[:2]}/{name.hex()}"
