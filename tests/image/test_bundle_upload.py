"""Facts about taking in an upload."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hawker.errors import NoRoom, TooLarge
from hawker.image.failure import BadImage
from hawker.image.layout import archive_name, receive

pytestmark = pytest.mark.anyio


async def stream(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def test_upload_is_written(tmp_path: Path) -> None:
    chunks = [bytes([number]) * 300_000 for number in range(10)]
    await receive(stream(*chunks), tmp_path / "file", 3_000_000)
    assert (tmp_path / "file").read_bytes() == b"".join(chunks)


async def test_upload_that_is_too_large_is_refused_as_soon_as_it_is(tmp_path: Path) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(1000)

    with pytest.raises(TooLarge, match="the archive is over 5000 bytes"):
        await receive(endless(), tmp_path / "file", 5000)


@pytest.mark.root
async def test_full_disk_is_no_room(small_disk: Path) -> None:
    with pytest.raises(NoRoom):
        await receive(stream(*[bytes(1 << 20)] * 20), small_disk / "file", 1 << 30)


@pytest.mark.parametrize(
    ("given", "own", "wanted"),
    [
        ("app:v1", "", "docker.io/library/app:v1"),
        ("app", "other:v2", "docker.io/library/app:latest"),
        (None, "host.example/app:v1", "host.example/app:v1"),
        (None, "", None),
        (None, "No Name", None),
        (None, "hawker/hello", None),
        (None, "oci:/etc", None),
    ],
)
def test_name_is_the_given_one_else_its_own(given: str | None, own: str, wanted: str | None) -> None:
    found = archive_name(given, own)
    assert (str(found) if found else None) == wanted


@pytest.mark.parametrize("given", ["hawker/hello", "oci:/x", "sha256:" + "0" * 64, "app@sha256:" + "0" * 64, "../x"])
def test_name_that_cannot_be_given_is_refused(given: str) -> None:
    with pytest.raises(BadImage):
        archive_name(given, "app:v1")
