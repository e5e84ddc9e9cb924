"""Facts about a blob that is read while it comes."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from hawker.image.blobs import ArrivingBlob, BlobLost

_CONTENT = bytes(range(200)) * 50


@pytest.fixture
def reading() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def read_all(blob: ArrivingBlob) -> bytes:
    with blob.open() as file:
        return file.readall() or b""


def test_reader_gets_every_byte_once_and_stops_at_the_end(reading: ThreadPoolExecutor, tmp_path: Path) -> None:
    blob, path = ArrivingBlob(len(_CONTENT)), tmp_path / "partial"
    readers: list[Future[bytes]] = [reading.submit(read_all, blob) for _ in range(2)]
    with path.open("wb", buffering=0) as file:
        for at in range(0, len(_CONTENT), 777):
            blob.grew(path, at + file.write(_CONTENT[at : at + 777]))
    assert [reader.result(30) for reader in readers] == [_CONTENT] * 2


def test_reader_goes_on_when_the_file_gets_its_final_name(reading: ThreadPoolExecutor, tmp_path: Path) -> None:
    blob, path = ArrivingBlob(len(_CONTENT)), tmp_path / "partial"
    path.write_bytes(_CONTENT[:100])
    blob.grew(path, 100)
    with blob.open() as file:
        assert file.read(100) == _CONTENT[:100]
        rest = reading.submit(file.readall)
        path.write_bytes(_CONTENT)
        path.rename(tmp_path / "whole")
        blob.whole(tmp_path / "whole")
        assert rest.result(30) == _CONTENT[100:]
    assert read_all(blob) == _CONTENT


@pytest.mark.parametrize("there", [0, 100, len(_CONTENT)])
def test_reader_of_a_lost_blob_hears_of_it(reading: ThreadPoolExecutor, tmp_path: Path, there: int) -> None:
    blob, path = ArrivingBlob(len(_CONTENT)), tmp_path / "partial"
    path.write_bytes(_CONTENT[:there])
    if there:
        blob.grew(path, there)
    waiting = reading.submit(read_all, blob) if there < len(_CONTENT) else None
    blob.lose()
    blob.grew(path, there)  # begun anew, but not for who read before
    if waiting is not None:
        with pytest.raises(BlobLost):
            waiting.result(30)
    with pytest.raises(BlobLost):
        read_all(blob)


def test_a_whole_blob_cannot_be_lost(tmp_path: Path) -> None:
    blob, path = ArrivingBlob(len(_CONTENT)), tmp_path / "whole"
    path.write_bytes(_CONTENT)
    blob.whole(path)
    blob.lose()
    assert read_all(blob) == _CONTENT
