"""What is waited for of an S3 service, how long, and what is said when it does not come."""

import filecmp
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import anyio
import pytest
from anyio.to_thread import run_sync

from hawker.archive.bucket import ArchiveBucket
from hawker.archive.failure import ArchiveRefused
from hawker.archive.s3 import SMALL_BYTES, S3Backend, S3Waits
from hawker.errors import Unavailable
from tests.archive.faulty_service import FaultyService, faulty_service, strangers_service
from tests.archive.s3_server import BUCKET, KEYS, S3Server

pytestmark = pytest.mark.anyio
KEY = "ab/abcdef"
WAITS = S3Waits(silence_s=0.25, whole_s=0.75)  # nothing that is waited for so shortly is to come
ALL = ("GET", "PUT", "HEAD", "DELETE", "POST")


def place_at(url: str, waits: S3Waits = WAITS) -> S3Backend:
    return S3Backend(ArchiveBucket(name=BUCKET, prefix="waits", endpoint=url, region="eu-west-1"), KEYS, waits)


@pytest.fixture
def service(s3: S3Server) -> Iterator[FaultyService]:
    with faulty_service(s3) as service:
        yield service


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(b"what happened " * 100)
    return tmp_path / "file"


@pytest.fixture
def large(tmp_path: Path) -> Path:
    (tmp_path / "large").write_bytes(bytes(SMALL_BYTES + 1))
    return tmp_path / "large"


def calls(place: S3Backend, file: Path) -> dict[str, Callable[[], Awaitable[object]]]:
    return {
        "get": lambda: place.get(KEY, file.with_name("again"), SMALL_BYTES),
        "put": lambda: place.put_new(KEY, file),
        "names": lambda: place.names("ab/", 10),
        "size": lambda: place.size(KEY),
        "remove": lambda: place.remove(KEY),
    }


@pytest.mark.parametrize("call", ["get", "put", "names", "size", "remove"])
async def test_silent_service_is_given_up_and_what_to_look_at_is_said(
    call: str, service: FaultyService, file: Path
) -> None:
    service.fault, service.every, service.methods = "silent", 1, ALL
    with (
        anyio.fail_after(60),
        pytest.raises(Unavailable, match=r"does not answer.* it was given 0.25 s.*endpoint") as said,
    ):
        await calls(place_at(service.url), file)[call]()
    assert "\n" not in str(said.value) and "Debug" not in str(said.value)


@pytest.mark.parametrize("call", ["get", "put", "names"])
async def test_busy_service_is_said_to_be(call: str, service: FaultyService, file: Path) -> None:
    service.fault, service.every, service.methods = "503", 1, ALL
    with pytest.raises(Unavailable, match=r"it answers 503 Service Unavailable \(SlowDown\)$"):
        await calls(place_at(service.url, S3Waits()), file)[call]()


@pytest.mark.parametrize("fault", ["cuts", "drips"])
async def test_answer_that_never_comes_whole_is_no_answer(fault: str, service: FaultyService, file: Path) -> None:
    patient, key = place_at(service.url, S3Waits()), f"{KEY}-{fault}"
    await patient.put_new(key, file)
    service.fault, service.every, service.methods = fault, 1, ("GET",)
    again = file.with_name("again")
    for call in (place_at(service.url).get(key, again, SMALL_BYTES), place_at(service.url).names("ab/", 10)):
        with anyio.fail_after(60), pytest.raises(Unavailable):
            await call
    service.every = 0
    assert await patient.get(key, again, SMALL_BYTES)
    assert filecmp.cmp(again, file, shallow=False)


async def test_answer_that_is_slow_and_goes_on_is_waited_for(service: FaultyService, tmp_path: Path) -> None:
    """Longer than a silence may last."""
    small, again = tmp_path / "small", tmp_path / "again"
    await run_sync(small.write_bytes, b"x" * 60)
    await place_at(service.url, S3Waits()).put_new(f"{KEY}-small", small)
    service.fault, service.every, service.methods = "drips", 1, ("GET",)
    assert await place_at(service.url, S3Waits(silence_s=4, whole_s=300)).get(f"{KEY}-small", again, 100)
    assert filecmp.cmp(again, small, shallow=False)


async def test_something_large_has_the_longer_time_to_be_sent(service: FaultyService, large: Path) -> None:
    service.fault, service.every = "silent", 1
    with anyio.fail_after(60), pytest.raises(Unavailable, match=r"does not answer.*0.75 s for something large"):
        await place_at(service.url).put(KEY, large)
    service.every = 0
    await place_at(service.url, S3Waits()).put(KEY, large)


async def test_certificate_that_nobody_trusts_is_refused_with_what_to_see_to(
    s3: S3Server, file: Path, tmp_path: Path
) -> None:
    with strangers_service(s3, tmp_path) as url:
        for call in calls(place_at(url, S3Waits()), file).values():
            with pytest.raises(ArchiveRefused, match=r"certificate of the archive .* is not trusted \(\w+\): see to"):
                await call()


async def test_name_of_a_host_that_is_not_there_is_said_to_be_unknown(file: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be reached: the name of its host is not found"):
        await place_at("http://nowhere.invalid", S3Waits()).put(KEY, file)
