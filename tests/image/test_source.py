"""Facts about content that is on the node already."""

import os
from pathlib import Path

import pytest

from hawker.ids import Digest
from hawker.image.config import Layer
from hawker.image.failure import BadImage
from hawker.image.source import ByteRange, Content, LocalSource

pytestmark = pytest.mark.anyio

_A, _B, _C = (Digest(f"sha256:{letter * 64}") for letter in "abc")


async def read(source: LocalSource, digest: Digest, offset: int = 0) -> bytes:
    async with source.blob(Layer(digest=digest, size=0, media_type=""), offset) as piece:
        assert piece.offset == offset
        return b"".join([chunk async for chunk in piece.chunks])


async def test_content_comes_from_memory_and_from_a_part_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"0123456789")
    contents: dict[Digest, Content] = {_A: b"manifest", _B: ByteRange(file, 2, 5)}
    source = LocalSource(_A, contents.get, 100)
    assert (await source.manifest(None)).content == b"manifest"
    assert (await source.manifest(_B)).content == b"23456"
    assert await read(source, _A, 4) == b"fest"
    assert await read(source, _B) == b"23456"
    assert await read(source, _B, 3) == b"56"


async def test_missing_blob_is_told(tmp_path: Path) -> None:
    source = LocalSource(_A, {_B: ByteRange(tmp_path / "gone", 0, 5)}.get, 100)
    with pytest.raises(BadImage, match=f"manifest {_A} is missing from the image"):
        await source.manifest(None)
    with pytest.raises(BadImage, match=f"layer {_C} is missing from the image"):
        await read(source, _C)
    with pytest.raises(BadImage, match=r"cannot read .*gone: No such file"):
        await read(source, _B)


async def test_manifest_without_end_is_refused(tmp_path: Path) -> None:
    source = LocalSource(_A, {_A: ByteRange(tmp_path / "file", 0, 101)}.get, 100)
    with pytest.raises(BadImage, match="is over 100 bytes"):
        await source.manifest(None)


def test_pipe_in_the_place_of_a_file_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    """Opened as usual, it keeps its thread until somebody writes to it: for ever, if its maker wants that."""
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    (tmp_path / "file").write_bytes(b"content")
    link.symlink_to(tmp_path / "file")
    for path in (pipe, tmp_path, link):
        with pytest.raises(BadImage, match="cannot read"):
            ByteRange(path, 0, 5).read(0, 5)
    assert ByteRange(tmp_path / "file", 0, 5).read(0, 5) == b"conte"
