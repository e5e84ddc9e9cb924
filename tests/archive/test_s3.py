import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.archive.archive import Archive
from hawker.archive.bucket import ArchiveBucket
from hawker.archive.failure import ArchiveRefused
from hawker.archive.s3 import S3Backend, S3Keys, find_keys, find_region
from hawker.errors import Unavailable
from tests.archive.s3_server import BUCKET, KEYS, S3Server, s3_server

pytestmark = pytest.mark.anyio
KEY = "ab/abcdef.sqlite.zst"


@pytest.fixture(scope="module")
def guarded() -> Iterator[S3Server]:
    with s3_server(checks_keys=True) as server:
        yield server


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(b"what happened")
    return tmp_path / "file"


def place_at(url: str, bucket: str = BUCKET, **environ: str) -> S3Backend:
    return S3Backend(ArchiveBucket(name=bucket, prefix="old", endpoint=url), {**KEYS, **environ})


async def refuses(place: S3Backend, file: Path, says: str) -> None:
    """Every call that tells: HEAD has no body that could say that a bucket is not there."""
    for call in (place.check(), place.put(KEY, file), place.get(KEY, file.with_name("again"), 100)):
        with pytest.raises(ArchiveRefused, match=says) as caught:
            await call
        assert "\n" not in str(caught.value) and "Debug" not in str(caught.value)


async def test_keys_have_the_prefix(s3: S3Server, file: Path) -> None:
    await place_at(s3.url).put(KEY, file)
    assert f"<Key>old/{KEY}</Key>" in s3.objects()


async def test_wrong_keys_are_refused(guarded: S3Server, file: Path) -> None:
    place = place_at(guarded.url)
    await refuses(place, file, f"{place.name} refuses these keys")
    with pytest.raises(ArchiveRefused, match="refuses these keys"):
        await place.size(KEY)


async def test_a_bucket_that_is_not_there_is_refused(s3: S3Server, file: Path) -> None:
    await refuses(place_at(s3.url, "nothere"), file, "s3://nothere/old is not there")


async def test_a_service_that_is_down_may_come_back(file: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        place = place_at(f"http://127.0.0.1:{closed.getsockname()[1]}")
        for call in (place.check(), place.put(KEY, file), place.size(KEY), place.get(KEY, file, 100)):
            with pytest.raises(Unavailable, match="cannot be reached"):
                await call


async def test_new_keys_are_found_after_a_failure(s3: S3Server, file: Path) -> None:
    environ = {"HOME": str(file.parent), "AWS_PROFILE": "later"}
    place = S3Backend(ArchiveBucket(name=BUCKET, prefix="", endpoint=s3.url), environ)
    with pytest.raises(ArchiveRefused, match="no keys in the AWS profile"):
        await place.check()
    (file.parent / ".aws").mkdir()
    (file.parent / ".aws" / "credentials").write_text("[later]\naws_access_key_id = a\naws_secret_access_key = b\n")
    await place.check()


async def test_an_unknown_history_in_a_missing_bucket_is_not_just_unknown(s3: S3Server, tmp_path: Path) -> None:
    with pytest.raises(ArchiveRefused, match="is not there"):
        await Archive(place_at(s3.url, "nothere"), tmp_path).read("0123456789abcd")


CREDENTIALS = """[default]
aws_access_key_id = one
aws_secret_access_key = first

[ci]
aws_access_key_id = two
aws_secret_access_key = 100%second
aws_session_token = token
"""
CONFIG = """[default]
region = eu-north-1
[profile ci]
region = sa-east-1
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(CREDENTIALS)
    (tmp_path / ".aws" / "config").write_text(CONFIG)
    return tmp_path


def test_variables_win(home: Path) -> None:
    environ = {"HOME": str(home), "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key", "AWS_REGION": "here"}
    assert find_keys(environ) == S3Keys("id", "key")
    assert find_keys({**environ, "AWS_SESSION_TOKEN": "t"}) == S3Keys("id", "key", "t")
    assert find_region(environ) == "here"


def test_then_the_default_profile(home: Path) -> None:
    assert find_keys({"HOME": str(home)}) == S3Keys("one", "first")
    assert find_region({"HOME": str(home)}) == "eu-north-1"


def test_a_profile_is_named_by_a_variable(home: Path) -> None:
    environ = {"HOME": str(home), "AWS_PROFILE": "ci"}
    assert find_keys(environ) == S3Keys("two", "100%second", "token")
    assert find_region(environ) == "sa-east-1"


def test_the_files_may_be_elsewhere(home: Path) -> None:
    environ = {
        "AWS_SHARED_CREDENTIALS_FILE": str(home / ".aws" / "credentials"),
        "AWS_CONFIG_FILE": str(home / ".aws" / "config"),
    }
    assert find_keys(environ) == S3Keys("one", "first")
    assert find_region(environ) == "eu-north-1"


def test_without_any_the_host_is_asked_by_the_client(tmp_path: Path) -> None:
    assert find_keys({}) is None
    assert find_keys({"HOME": str(tmp_path)}) is None
    assert find_region({"HOME": str(tmp_path)}) == "us-east-1"


def test_a_profile_that_is_not_there_is_said(home: Path) -> None:
    with pytest.raises(ArchiveRefused, match="'prod'"):
        find_keys({"HOME": str(home), "AWS_PROFILE": "prod"})


def test_a_file_that_cannot_be_read_is_named_and_not_quoted(home: Path) -> None:
    (home / ".aws" / "credentials").write_text("aws_secret_access_key = topsecret\n")
    with pytest.raises(ArchiveRefused, match="credentials cannot be read") as caught:
        find_keys({"HOME": str(home)})
    assert "topsecret" not in str(caught.value)


def test_keys_are_never_shown() -> None:
    assert "key" not in repr(S3Keys("id", "key"))
