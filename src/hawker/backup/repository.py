"""A repository of backups in a directory or bucket: its key, and its objects sealed and opened. What they mean is in
`format`, what becomes of volumes in `transfer`.

Objects of backups are written once and never changed, but for a segment whose packs are damaged: it may be replaced by
one that finds the same chunks elsewhere. So several nodes may write at a time, and any call may be repeated. Only a
prune (`prune`) removes any, and only while nobody writes.
"""

import hashlib
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio
import msgspec

from hawker.archive.backend import ArchiveBackend
from hawker.archive.failure import ArchiveDamaged, ArchiveRefused
from hawker.backup import format as objects
from hawker.backup.at_work import BackupsAtWork, WorkLease
from hawker.backup.check_records import BackupCheckRecords
from hawker.backup.checks import BackupCheck, BackupChecks
from hawker.backup.format import BackupManifest, BackupSegment, PruneMarks, RepositoryConfig, RepositoryKeys
from hawker.backup.place import BackupPlace
from hawker.clock import Clock
from hawker.errors import Fault, NotFound
from hawker.fair.threads import Pool, in_thread
from hawker.log import bind
from hawker.vault import KEY_BYTES

_CONFIG = "config"
_BACKUPS = "backups/"
_SEGMENTS, _PACKS = "segments/", "packs/"
_MARKS = "marks"
MOST_STORED = 4_000_000
MOST_LISTED = 100_000
_LEAST_PASSPHRASE = 12
_MOST_PASSPHRASE = 1024

_log = bind("hawker.backups")


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
        self._place = BackupPlace(place, scratch)
        self._passphrase = passphrase
        self._clock = clock
        self._keys: RepositoryKeys | None = None
        self._opening = anyio.Lock()
        self._at_work = BackupsAtWork(self._place, self.keys, clock)
        self._checks = BackupCheckRecords(self._place, self.keys, clock)

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
        found = await self._place.get(_CONFIG, objects.MOST_CONFIG_BYTES)
        if found is None and await self._place.backend.names(_BACKUPS, MOST_LISTED):
            raise self._lost_key()
        if found is None and make:
            key = self._clock.token_bytes(KEY_BYTES)
            config = await in_thread(Pool.ARCHIVE, objects.config_of, key, passphrase, self._clock)
            made = msgspec.msgpack.encode(config)
            await self._place.put_new(_CONFIG, made)
            found = await self._place.get(_CONFIG, objects.MOST_CONFIG_BYTES)
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
        config = await self._place.get(_CONFIG, objects.MOST_CONFIG_BYTES)
        if config is None and await self._place.backend.names(_BACKUPS, MOST_LISTED):
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
        if await self._place.backend.size(_CONFIG) is not None:
            raise ArchiveRefused(f"{self.name} has a key: what is there stays")
        await self._place.put_new(_CONFIG, config)

    async def change_passphrase(self, passphrase: bytes) -> None:
        """Changes the passphrase all at once: whoever reads `config` finds the old or the new one."""
        await self._place.put(_CONFIG, await self.key_under(passphrase))

    # Manifests.

    async def backups(self, prefix: str, most: int = MOST_LISTED) -> list[str]:
        """ORG/APP/VOLUME/TIME of every backup below `prefix`, which ends in a slash or is empty; the oldest of a volume
        first. Raises `ArchiveDamaged` for more than `most`."""
        found = await self._place.backend.names(f"{_BACKUPS}{prefix}", most)
        return [key.removeprefix(_BACKUPS) for key in found]

    async def manifest(self, backup: str) -> BackupManifest:
        """The manifest of a backup. Raises `NotFound`."""
        keys, key = await self.keys(), f"{_BACKUPS}{backup}"
        sealed = await self._place.get(key, objects.MOST_MANIFEST_BYTES)
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
        await self._place.put_new(key, keys.seal(key, msgspec.msgpack.encode(manifest)))

    async def remove_backup(self, backup: str) -> None:
        await self._place.backend.remove(f"{_BACKUPS}{backup}")

    # Who is at work. Each says so before it looks whether the other does.

    def writing(self) -> AbstractAsyncContextManager[Callable[[], Awaitable[None]]]:
        """A context for a backup. What is here stays meanwhile, as long as what is given is called again and again."""
        return self._at_work.writing()

    def surveying(self) -> AbstractAsyncContextManager[Callable[[], Awaitable[None]]]:
        """A context for a prune that reads what the backups have. Nobody else does meanwhile; backups go on."""
        return self._at_work.surveying()

    def taken(self, patience_s: float = 0.0) -> AbstractAsyncContextManager[WorkLease]:
        """A context for a prune. Nobody writes meanwhile, and nobody else prunes."""
        return self._at_work.taken(patience_s)

    def verifying(self) -> AbstractAsyncContextManager[Callable[[], Awaitable[None]]]:
        """A context for a verification. Nobody else verifies meanwhile."""
        return self._at_work.verifying()

    # What a prune marks and removes.

    async def segments(self) -> dict[str, str | None]:
        """The keys of all segments, each with what is another value once the segment is replaced; None where the place
        does not tell."""
        return await self._place.backend.versions(_SEGMENTS, MOST_STORED)

    async def packs(self) -> list[str]:
        """The keys of all packs."""
        return await self._place.backend.names(_PACKS, MOST_STORED)

    async def remove_stored(self, key: str) -> None:
        assert key.startswith((_SEGMENTS, _PACKS)), key
        await self._place.backend.remove(key)

    async def remove_drafts(self, before: float) -> int:
        """Removes what whoever was killed has left half written, and nobody has touched since then, in Unix seconds."""
        return await self._place.backend.remove_drafts(before)

    async def marks(self) -> PruneMarks:
        """The marks of the last prune; none where there are none, or none that can be read: then all is marked anew."""
        try:
            sealed = await self._place.get(_MARKS, objects.MOST_MARKS_BYTES)
            if sealed is None:
                return PruneMarks()
            opened = (await self.keys()).open(_MARKS, sealed)
            return await in_thread(Pool.ARCHIVE, objects.decoded, opened, PruneMarks)
        except ArchiveDamaged as error:
            _log.warning("marks of prunes cannot be read", extra={"place": self.name, "error": str(error)})
            return PruneMarks()

    async def put_marks(self, marks: PruneMarks) -> None:
        """Writes the oldest marks, as many as may be read again; what is left out is marked by a later prune."""
        keys = await self.keys()
        fitting = await in_thread(Pool.ARCHIVE, objects.fitting, marks)
        if len(fitting.since) < len(marks.since):
            left_out = len(marks.since) - len(fitting.since)
            _log.warning("marks of prunes are left out", extra={"place": self.name, "left_out": left_out})
        await self._place.put(_MARKS, keys.seal(_MARKS, msgspec.msgpack.encode(fitting)))

    @staticmethod
    def segment_key(name: bytes) -> str:
        return _segment_key(name)

    @staticmethod
    def pack_key(name: bytes) -> str:
        return _pack_key(name)

    # What is known since it was read.

    async def checks(self) -> BackupChecks:
        """The checks of all backups. What cannot be read says nothing."""
        return await self._checks.all()

    async def checks_below(self, prefix: str) -> dict[str, BackupCheck]:
        """The checks of the backups whose names begin with `prefix`."""
        return await self._checks.below(prefix)

    async def add_checks(self, made: BackupChecks, removed: Collection[str] = ()) -> BackupChecks:
        """Writes all checks that are known then; what is known of `removed` backups goes."""
        return await self._checks.add(made, removed)

    # Segments, and the packs that have their chunks.

    async def has_segment(self, name: bytes) -> bool:
        return await self._place.backend.size(_segment_key(name)) is not None

    async def segment(self, name: bytes) -> BackupSegment:
        """The segment of this name; its chunks are those that its name says. Raises `ArchiveDamaged` also when it is
        not there."""
        keys, key = await self.keys(), _segment_key(name)
        sealed = await self._place.get(key, objects.MOST_SEGMENT_BYTES)
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
        await (self._place.put(key, sealed) if anew else self._place.put_new(key, sealed))
        return len(sealed)

    async def put_pack(self, file: Path, name: bytes) -> None:
        await self._place.backend.put_new(_pack_key(name), file)

    async def pack(self, name: bytes, target: Path) -> None:
        """Reads a pack into `target` as it was sent, byte for byte. Raises `ArchiveDamaged` also when it is not
        there."""
        key = _pack_key(name)
        if not await self._place.backend.get(key, target, objects.MOST_PACK_BYTES):
            raise ArchiveDamaged(f"{key} is not there")
        if await in_thread(Pool.ARCHIVE, pack_name, target) != name:
            raise ArchiveDamaged(f"{key} is not what its name says")

    def room(self) -> AbstractAsyncContextManager[Path]:
        """A context with a directory for one transfer."""
        return self._place.room()


def pack_name(file: Path) -> bytes:
    """A hash of the sealed bytes: whether a pack is whole can be told without the key."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, pack_digest).digest()


def pack_digest() -> "hashlib.blake2b":
    return hashlib.blake2b(digest_size=objects.NAME_BYTES)


def _segment_key(name: bytes) -> str:
    return f"{_SEGMENTS}{name.hex()[:2]}/{name.hex()}"


def _pack_key(name: bytes) -> str:
    return f"{_PACKS}{name.hex()[:2]}/{name.hex()}"
