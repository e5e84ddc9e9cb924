"""What a repository of backups holds, byte by byte; nothing here reads or writes one.

A volume is cut into chunks of 128 KiB, and these into segments of 16 MiB. A chunk's name is a keyed hash of its plain
bytes, a segment's name a keyed hash of its chunks' names, and a manifest lists segments: so what did not change has the
name that it had, and whatever is read is compared with the name that led to it. Everything but `config` is sealed
(AES-256-GCM, with its own name or key as associated data). What is read is hostile until it was opened, and bounded
also then.
"""

import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar

import msgspec
import zstandard

from hawker.archive.failure import ArchiveDamaged
from hawker.clock import Clock
from hawker.errors import Fault
from hawker.vault import KEY_BYTES, Vault

FORMAT = 1
CHUNK_BYTES = 128 << 10
SEGMENT_BYTES = 16 << 20
SEGMENT_CHUNKS = SEGMENT_BYTES // CHUNK_BYTES
NAME_BYTES = 32
HOLE = bytes(NAME_BYTES)
"""The name of a chunk or segment that is all zeros: nothing is stored of it."""

MOST_VOLUME_BYTES = 16 << 40
MOST_PACK_BYTES = SEGMENT_BYTES + SEGMENT_CHUNKS * 1024
MOST_SEGMENT_BYTES = 64 << 10
MOST_MANIFEST_BYTES = 34 << 20  # 33 bytes for each segment of the largest volume, and a little
MOST_CONFIG_BYTES = 4096
MOST_MARKS_BYTES = 64 << 20  # some 600,000 objects
MOST_CHECKS_BYTES = 64 << 20  # of some 400,000 backups
MOST_AT_WORK_BYTES = 4096
_AROUND_MARKS, _AROUND_MARK = 1024, 14  # bytes beside the keys: seal and heads; a moment and the head of its key
_SCRYPT = {"n": 1 << 15, "r": 8, "p": 1, "maxmem": 64 << 20}  # RFC 7914; 32 MiB of memory for each guess
_SALT_BYTES = 16
_LEVEL = 1
_ZEROS = bytes(CHUNK_BYTES)
_NAME = re.compile(r"(vol_[a-z0-9]{1,40})/([0-9]{8}T[0-9]{6}Z-[a-z0-9]{4})")

S = TypeVar("S", bound=msgspec.Struct)


class RepositoryConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`config`: the one object in the open. `key` is the repository's own, sealed under what scrypt makes of the
    passphrase and `salt`."""

    format: int
    """The number of the format, 1. A version that does not know the number refuses the repository."""
    salt: bytes
    key: bytes


class StoredChunk(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A chunk that is stored: `offset` and `length` of its sealed bytes in the pack of that name."""

    chunk: bytes
    """The keyed hash of the chunk's content, 32 bytes: the same content is stored once."""
    pack: bytes
    """The name of the pack that has it, 32 bytes."""
    offset: int
    length: int


class BackupSegment(msgspec.Struct, frozen=True, kw_only=True):
    """`segments/NAME`: its chunks in order, None for one that is all zeros. The last segment may have fewer."""

    chunks: tuple[StoredChunk | None, ...]


class PruneMarks(msgspec.Struct, frozen=True, kw_only=True):
    """`marks`: the keys of segments and packs that no backup has, and since when that is known; `at` is when a prune
    ended last. In Unix seconds."""

    since: dict[str, float] = {}
    """The moment of each key; a key whose moment is older than the grace is removed by the next prune."""
    at: float = 0.0


class AtWork(msgspec.Struct, frozen=True, kw_only=True):
    """`running/TOKEN` while a backup is made, `prunes/TOKEN` and `pruning` while a prune bars backups, `surveying`
    while it reads, `verifying` while packs are verified: it counts until then, in Unix seconds, and no longer."""

    token: str
    """Random, of the one who works. Of two that begin a prune at once, the one whose token stands goes on."""
    until: float
    """The moment in Unix seconds at which the mark ends. Who works moves it on; a mark that nobody moves on holds
    nobody up from then on."""


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    """`backups/ORG/APP/VOLUME/TIME`: one backup. It is written last, so what has one is whole. `segments` are the names
    of all its segments, one after the other. `volume_key` is what opens an encrypted volume; `stored_bytes` what is
    no hole, `sent_bytes` what this backup added to the repository. `created_at` is the moment of the content, in Unix
    seconds. `filled` is how many chunks of each segment are no holes, a byte each; of an older version it is empty."""

    format: int
    """The number of the format, 1. A manifest of another number is refused."""
    volume: str
    """The id of the volume that was copied, `vol_` and more."""
    name: str
    """The name that its owner gave the volume; the volume made of the backup is called so, too."""
    app: str
    """The name of the app that had the volume."""
    org: str
    """The slug of the organization, which alone may restore the backup."""
    size_bytes: int
    """The volume's whole size, holes counted, above 0: a volume made of it has at least as much."""
    fstype: str
    """The file system, `ext4`, or `raw` for blocks without one."""
    encrypted: bool
    """The content is what the disk had: it opens with `volume_key` alone."""
    volume_key: bytes | None
    guest_written: bool
    """A microVM mounted the volume as a disk, so the host does not mount it: containers may not have it."""
    created_at: float
    segments: bytes
    stored_bytes: int
    sent_bytes: int
    filled: bytes = b""

    def names(self) -> list[bytes]:
        """The names of the segments."""
        return [self.segments[at : at + NAME_BYTES] for at in range(0, len(self.segments), NAME_BYTES)]


def checked(manifest: BackupManifest) -> BackupManifest:
    """The same manifest. Raises `ArchiveDamaged` for one that contradicts itself or says more than there can be."""
    if manifest.format != FORMAT:
        raise ArchiveDamaged(f"it has format {manifest.format}; this version reads {FORMAT}")
    if not 0 < manifest.size_bytes <= MOST_VOLUME_BYTES:
        raise ArchiveDamaged(f"a volume of {manifest.size_bytes} bytes cannot be")
    if len(manifest.segments) != segments_in(manifest.size_bytes) * NAME_BYTES:
        raise ArchiveDamaged("it does not list the segments of a volume of its size")
    if len(manifest.filled) not in (0, segments_in(manifest.size_bytes)):
        raise ArchiveDamaged("it does not say of each segment how much of it is stored")
    return manifest


def fitting(marks: PruneMarks, most_bytes: int = MOST_MARKS_BYTES) -> PruneMarks:
    """The oldest of these marks, as many as may be read again once they are sealed. Of one moment the segments come
    first: no pack is marked without the segments that count on it, so none is removed before they are."""
    since, left = dict[str, float](), most_bytes - _AROUND_MARKS
    for key, at in sorted(marks.since.items(), key=lambda each: (each[1], each[0].startswith("packs/"), each[0])):
        left -= len(key.encode()) + _AROUND_MARK
        if left < 0:
            break
        since[key] = at
    return PruneMarks(since=since, at=marks.at)


def segments_in(size_bytes: int) -> int:
    return -(-size_bytes // SEGMENT_BYTES)


def is_zero(data: bytes | memoryview) -> bool:
    return data == _ZEROS[: len(data)]


def is_backup(name: str) -> bool:
    """Whether it is VOLUME/TIME, as people name a backup of an app."""
    return _NAME.fullmatch(name) is not None


def saved_at(name: str) -> float | None:
    """The time at which a backup was begun, in Unix seconds, as its name says, with or without ORG/APP; None for a name
    that says nothing."""
    try:
        begun = datetime.strptime(name.rpartition("/")[2].partition("-")[0], "%Y%m%dT%H%M%SZ")
    except ValueError:
        return None
    return begun.replace(tzinfo=UTC).timestamp()


def decoded(data: bytes, kind: type[S]) -> S:
    """The value that `data` is. Raises `ArchiveDamaged`."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ArchiveDamaged(f"what is there is no {kind.__name__}") from error


class RepositoryKeys:
    """The keys that name and seal. One repository has one key; the keys for names and for seals are made of it."""

    def __init__(self, key: bytes, clock: Clock) -> None:
        self._names = _derived(key, b"names")
        self._vault = Vault(_derived(key, b"seals"), clock)

    def chunk_name(self, data: bytes | memoryview) -> bytes:
        return hashlib.blake2b(data, digest_size=NAME_BYTES, key=self._names, person=b"chunk").digest()

    def segment_name(self, chunks: Sequence[bytes]) -> bytes:
        if all(name == HOLE for name in chunks):
            return HOLE
        joined = b"".join(chunks)
        return hashlib.blake2b(joined, digest_size=NAME_BYTES, key=self._names, person=b"segment").digest()

    def content_name(self, manifest: BackupManifest) -> bytes:
        """Equal for equal contents of this repository, and for nothing else."""
        told = b"%d " % manifest.size_bytes + manifest.segments
        return hashlib.blake2b(told, digest_size=NAME_BYTES, key=self._names, person=b"content").digest()

    def seal(self, owner: str, data: bytes) -> bytes:
        return self._vault.seal(owner, data)

    def open(self, owner: str, sealed: bytes) -> bytes:
        """The bytes that were sealed. Raises `ArchiveDamaged` for anything but what was sealed for this owner under
        this key."""
        try:
            return self._vault.open(owner, sealed)
        except Fault as error:
            raise ArchiveDamaged("its seal is broken") from error

    def seal_chunk(self, name: bytes, data: bytes | memoryview) -> bytes:
        return self.seal(f"chunk {name.hex()}", zstandard.ZstdCompressor(level=_LEVEL).compress(data))

    def open_chunk(self, name: bytes, sealed: bytes, length: int) -> bytes:
        """The bytes of a chunk. Raises `ArchiveDamaged` for what is not the `length` bytes of that name."""
        packed = self.open(f"chunk {name.hex()}", sealed)
        try:
            if zstandard.get_frame_parameters(packed).content_size != length:
                raise ArchiveDamaged("a chunk is not as long as it has to be")
            data = zstandard.ZstdDecompressor().decompress(packed, max_output_size=length)
        except zstandard.ZstdError as error:
            raise ArchiveDamaged("a chunk is not intact zstd") from error
        if len(data) != length or self.chunk_name(data) != name:
            raise ArchiveDamaged("a chunk is not what its name says")
        return data

    def check_chunk(self, name: bytes, sealed: bytes) -> None:
        """Checks a chunk. Raises `ArchiveDamaged` for what is not of that name, however long it is to be."""
        packed = self.open(f"chunk {name.hex()}", sealed)
        try:
            length = zstandard.get_frame_parameters(packed).content_size
        except zstandard.ZstdError as error:
            raise ArchiveDamaged("a chunk is not intact zstd") from error
        self.open_chunk(name, sealed, min(length, CHUNK_BYTES))


def config_of(key: bytes, passphrase: bytes, clock: Clock) -> RepositoryConfig:
    salt = clock.token_bytes(_SALT_BYTES)
    return RepositoryConfig(
        format=FORMAT, salt=salt, key=Vault(_stretched(passphrase, salt), clock).seal("repository", key)
    )


def repository_key(config: RepositoryConfig, passphrase: bytes, clock: Clock) -> bytes:
    """The key of a repository. Raises `ArchiveDamaged` for another format, `Fault` for another passphrase."""
    if config.format != FORMAT or len(config.salt) != _SALT_BYTES:
        raise ArchiveDamaged(
            f"the repository has format {config.format}; this version reads {FORMAT}: use the version that wrote it, or"
            " a newer one, or another place"
        )
    return Vault(_stretched(passphrase, config.salt), clock).open("repository", config.key)


def _stretched(passphrase: bytes, salt: bytes) -> bytes:
    return hashlib.scrypt(passphrase, salt=salt, dklen=KEY_BYTES, **_SCRYPT)


def _derived(key: bytes, purpose: bytes) -> bytes:
    return hashlib.blake2b(digest_size=KEY_BYTES, key=key, person=purpose).digest()
