"""Repositories of backups in a directory and in a bucket, and volumes to put there."""

import os
from pathlib import Path

import pytest

from hawker.archive.backend import ArchiveBackend
from hawker.archive.directory import DirectoryBackend
from hawker.backup.format import CHUNK_BYTES, FORMAT, SEGMENT_BYTES, BackupManifest
from hawker.backup.repository import BackupRepository
from hawker.clock import SystemClock
from tests.archive.conftest import place, s3

__all__ = ["place", "s3"]

PASSPHRASE = b"correct horse battery"
SIZE = 3 * SEGMENT_BYTES + 5 * CHUNK_BYTES
ABOUT = BackupManifest(
    format=FORMAT,
    volume="vol_a",
    name="data",
    app="web",
    org="acme",
    size_bytes=0,
    fstype="ext4",
    encrypted=False,
    volume_key=None,
    guest_written=False,
    created_at=1.0,
    segments=b"",
    stored_bytes=0,
    sent_bytes=0,
)


def opened(place: ArchiveBackend, scratch: Path, passphrase: bytes = PASSPHRASE) -> BackupRepository:
    return BackupRepository(place, scratch, lambda: passphrase, SystemClock())


@pytest.fixture
def repository(place: ArchiveBackend, tmp_path: Path) -> BackupRepository:
    return opened(place, tmp_path / "scratch")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Where `local` keeps its objects."""
    return tmp_path / "objects"


@pytest.fixture
def local(kept: Path, tmp_path: Path) -> BackupRepository:
    return opened(DirectoryBackend(kept), tmp_path / "scratch")


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """Data in the first segment and in the short last one, a chunk of zeros that is stored, else a hole. What tests
    write there is nowhere in it: each write changes the volume."""
    file = tmp_path / "volume"
    with file.open("wb") as stream:
        stream.truncate(SIZE)
        stream.write(_random(3 * CHUNK_BYTES) + bytes(CHUNK_BYTES) + b"text " * 100_000)
        stream.seek(SIZE - CHUNK_BYTES)
        stream.write(_random(CHUNK_BYTES))
    return file


def _random(count: int) -> bytes:
    return os.urandom(count).translate(bytes.maketrans(b"!?", b"12"))


async def stored(repository: BackupRepository) -> list[str]:
    """The keys of all segments and packs."""
    return [*await repository.segments(), *await repository.packs()]


def bytes_of(file: Path) -> bytes:
    return file.read_bytes()


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
