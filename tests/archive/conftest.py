"""A directory and a bucket, as places for archives."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.archive.backend import ArchiveBackend
from hawker.archive.bucket import ArchiveBucket
from hawker.archive.directory import DirectoryBackend
from hawker.archive.s3 import S3Backend
from tests.archive.s3_server import BUCKET, KEYS, S3Server, s3_server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(params=["directory", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> ArchiveBackend:
    if request.param == "directory":
        return DirectoryBackend(tmp_path / "kept" / "here")
    server: S3Server = request.getfixturevalue("s3")
    bucket = ArchiveBucket(name=BUCKET, prefix=f"of/{tmp_path.name}", endpoint=server.url, region="eu-west-1")
    return S3Backend(bucket, KEYS)
