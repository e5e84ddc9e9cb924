"""Backups to an S3 service that fails: it answers 500, hangs up before or after it did what was asked, loses every so
many writes without a word, or does not answer any more. A backup that is listed is whole all the same, what was lost is
found, and a backup that cannot go on leaves nothing on the host and is finished by the next try.
"""

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from hawker.archive.bucket import ArchiveBucket
from hawker.archive.failure import ArchiveDamaged
from hawker.archive.s3 import S3Backend, S3Waits
from hawker.backup.format import BackupManifest
from hawker.backup.repository import BackupRepository
from hawker.backup.transfer import restore, save, verify
from hawker.errors import Unavailable
from tests.archive.faulty_service import FaultyService, faulty_service
from tests.archive.s3_server import BUCKET, KEYS, S3Server
from tests.backup.conftest import ABOUT, bytes_of, files_below, opened
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
FIRST, SECOND = "acme/web/vol_a/20261123T161500Z-aaaa", "acme/web/vol_a/20261124T161500Z-aaaa"
_TRIES = 12


@pytest.fixture
def service(s3: S3Server) -> Iterator[FaultyService]:
    with faulty_service(s3) as service:
        yield service


@pytest.fixture
def repository(service: FaultyService, tmp_path: Path) -> BackupRepository:
    return opened(S3Backend(bucket_at(service, tmp_path), KEYS), tmp_path / "scratch")


def of_another_node(service: FaultyService, below: Path, waits: S3Waits) -> BackupRepository:
    """The same."""
    return opened(S3Backend(bucket_at(service, below), KEYS, waits), below / "another")


def bucket_at(service: FaultyService, below: Path) -> ArchiveBucket:
    return ArchiveBucket(name=BUCKET, prefix=f"of/{below.name}", endpoint=service.url, region="eu-west-1")


async def saved(repository: BackupRepository, volume: Path) -> BackupManifest:
    """As a node does it: what may pass is tried again."""
    for _ in range(_TRIES):
        try:
            return await save(repository, volume, FIRST, ABOUT, None)
        except Unavailable:
            assert await repository.backups("") == [], "a backup that was cut short is none"
    pytest.fail("it never arrived")


@pytest.mark.parametrize("fault", ["500", "hangs up before", "hangs up after"])
async def test_backup_arrives_whole_though_writes_fail(
    fault: str, service: FaultyService, repository: BackupRepository, volume: Path, tmp_path: Path
) -> None:
    await repository.keys(make=True)
    service.fault, service.every = fault, 3
    made = await saved(repository, volume)
    assert service.faults > 0
    await verify(repository, made, set())
    await restore(repository, await repository.manifest(FIRST), tmp_path / "again")
    assert bytes_of(tmp_path / "again") == bytes_of(volume)


async def test_object_that_the_service_lost_is_found_by_verify(
    service: FaultyService, repository: BackupRepository, volume: Path, tmp_path: Path
) -> None:
    """The service said that it has it. Nothing but reading it tells otherwise."""
    await repository.keys(make=True)
    service.fault, service.every = "loses", 3
    made = await saved(repository, volume)
    assert service.faults > 0
    with pytest.raises(ArchiveDamaged, match="is not there"):
        await verify(repository, made, set())
    with pytest.raises(ArchiveDamaged):
        await restore(repository, made, tmp_path / "again")


@pytest.mark.parametrize(
    ("fault", "says"),
    [("silent", "does not answer"), ("drips", "does not answer, or too slowly"), ("503", "answers 503"), ("cuts", "")],
)
async def test_backup_to_a_service_that_stops_answering_ends_with_a_reason_and_the_next_try_finishes_it(
    fault: str,
    says: str,
    service: FaultyService,
    repository: BackupRepository,
    volume: Path,
    tmp_path: Path,
) -> None:
    first = await save(repository, volume, FIRST, ABOUT, None)
    with volume.open("r+b") as file:
        file.write(b"!")
    service.fault, service.every, service.methods = fault, 1, ("GET", "PUT", "HEAD", "DELETE", "POST")
    waits = S3Waits() if fault == "503" else S3Waits(silence_s=1, whole_s=2)  # what answers may do so slowly
    with anyio.fail_after(120), pytest.raises(Unavailable, match=says):
        await save(of_another_node(service, tmp_path, waits), volume, SECOND, ABOUT, first)
    assert service.faults > 0
    assert files_below(tmp_path / "another") == [], "nothing is left on the host"
    service.every = 0
    assert await repository.backups("") == [FIRST]
    second = await save(repository, volume, SECOND, ABOUT, first)
    await restore(repository, second, tmp_path / "again")
    assert bytes_of(tmp_path / "again") == bytes_of(volume)


async def test_backup_to_a_silent_service_can_be_given_up_at_once_and_holds_up_no_other(
    service: FaultyService, repository: BackupRepository, local: BackupRepository, volume: Path
) -> None:
    await repository.keys(make=True)
    service.fault, service.every = "silent", 1
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(save, repository, volume, FIRST, ABOUT, None)
        await eventually(lambda: service.faults > 0)
        await save(local, volume, FIRST, ABOUT, None)
        tasks.cancel_scope.cancel()
    assert await local.backups("") == [FIRST]
