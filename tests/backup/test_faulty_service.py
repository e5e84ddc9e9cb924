"""Backups to an S3 service that fails: it answers 500, hangs up before or after it did what was asked, or loses every
so many writes without a word. A backup that is listed is whole all the same, and what was lost is found.
"""

import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from hawker.archive.bucket import ArchiveBucket
from hawker.archive.failure import ArchiveDamaged
from hawker.archive.s3 import S3Backend
from hawker.backup.format import BackupManifest
from hawker.backup.repository import BackupRepository
from hawker.backup.transfer import restore, save, verify
from hawker.errors import Unavailable
from tests.archive.s3_server import BUCKET, KEYS, S3Server
from tests.backup.conftest import ABOUT, bytes_of, opened

pytestmark = pytest.mark.anyio
FIRST = "acme/web/vol_a/20261123T161500Z-aaaa"
_TRIES = 12


class FaultyService(ThreadingHTTPServer):
    """Hands calls on to a sound one. `fault` befalls every `every`th write."""

    daemon_threads = True

    def __init__(self, sound: S3Server) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.sound = urlsplit(sound.url).netloc
        self.fault, self.every, self.writes = "", 0, count(1)
        self.faults = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def befalls(self) -> str:
        hit = self.every and next(self.writes) % self.every == 0
        self.faults += bool(hit)
        return self.fault if hit else ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultyService

    def _hand_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.server.befalls() if self.command == "PUT" else ""
        if fault == "500":
            return self._answer(500, [], b"")
        if fault == "hangs up before":
            self.close_connection = True
            return None
        if fault == "loses":
            return self._answer(200, [("ETag", '"0"')], b"")
        connection = http.client.HTTPConnection(self.server.sound, timeout=30)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        connection.request(self.command, self.path, body, {**headers, "Host": self.server.sound})
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        if fault == "hangs up after":
            self.close_connection = True
            return None
        return self._answer(answer.status, answer.getheaders(), data)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _hand_on

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes) -> None:
        self.send_response(status)
        own = {"connection", "date", "server", "transfer-encoding"}
        length = [value for name, value in headers if name.lower() == "content-length"]
        for name, value in headers:
            if name.lower() not in own | {"content-length"}:
                self.send_header(name, value)
        self.send_header("Content-Length", length[0] if length and self.command == "HEAD" else str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        return None


@pytest.fixture
def service(s3: S3Server) -> Iterator[FaultyService]:
    with FaultyService(s3) as service:
        thread = threading.Thread(target=service.serve_forever, args=(0.05,))
        thread.start()
        yield service
        service.shutdown()
        thread.join()


@pytest.fixture
def repository(service: FaultyService, tmp_path: Path) -> BackupRepository:
    bucket = ArchiveBucket(name=BUCKET, prefix=f"of/{tmp_path.name}", endpoint=service.url, region="eu-west-1")
    return opened(S3Backend(bucket, KEYS), tmp_path / "scratch")


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
