import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.archive.archive import Archive
from hawker.archive.failure import Refused
from hawker.archive.place import Bucket
from hawker.archive.s3 import S3Place
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


def place_at(url: str, bucket: str = BUCKET, **environ: str) -> S3Place:
    return S3Place(Bucket(name=bucket, prefix="old", endpoint=url), {**KEYS, **environ})


async def refuses(place: S3Place, file: Path, says: str) -> None:
    """Every call that tells: HEAD has no body that could say that a bucket is not there."""
    for call in (place.check(), place.put(KEY, file), place.get(KEY, file.with_name("again"), 100)):
        with pytest.raises(Refused, match=says) as caught:
            await call
        assert "\n" not in str(caught.value) and "Debug" not in str(caught.value)


async def test_keys_have_the_prefix(s3: S3Server, file: Path) -> None:
    await place_at(s3.url).put(KEY, file)
    assert f"<Key>old/{KEY}</Key>" in s3.objects()


async def test_wrong_keys_are_refused(guarded: S3Server, file: Path) -> None:
    place = place_at(guarded.url)
    await refuses(place, file, f"{place.name} refuses these keys")
    with pytest.raises(Refused, match="refuses these keys"):
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
    place = S3Place(Bucket(name=BUCKET, prefix="", endpoint=s3.url), environ)
    with pytest.raises(Refused, match="no keys in the AWS profile"):
        await place.check()
    (file.parent / ".aws").mkdir()
    (file.parent / ".aws" / "credentials").write_text("[later]\naws_access_key_id = a\naws_secret_access_key = b\n")
    await place.check()


async def test_an_unknown_history_in_a_missing_bucket_is_not_just_unknown(s3: S3Server, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="is not there"):
        await Archive(place_at(s3.url, "nothere"), tmp_path).read("0123456789abcd")
