"""Writes `golden/`: a repository as this format has it. Run once for each format, never again for the same."""

from pathlib import Path

import anyio

from hawker.archive.directory import DirectoryBackend
from hawker.backup.format import CHUNK_BYTES, SEGMENT_BYTES
from hawker.backup.transfer import save
from tests.backup.conftest import ABOUT, bytes_of, opened

PLACE = Path(__file__).with_name("golden") / "format-1"
FIRST, SECOND = "acme/web/vol_a/20261123T161500Z-aaaa", "acme/web/vol_a/20261124T161500Z-bbbb"


def content(second: bool) -> bytes:
    """Little that is stored, in three segments."""
    text = b"second" if second else b"first"
    whole = bytearray(2 * SEGMENT_BYTES + CHUNK_BYTES)
    whole[:5] = b"begin"
    whole[CHUNK_BYTES : CHUNK_BYTES + len(text)] = text
    whole[-3:] = b"end"
    return bytes(whole)


async def write(scratch: Path) -> None:
    repository = opened(DirectoryBackend(PLACE), scratch / "way")
    parent = None
    for backup, second in ((FIRST, False), (SECOND, True)):
        file = scratch / "volume"
        await anyio.Path(file).write_bytes(content(second))
        parent = await save(repository, file, backup, ABOUT, parent)


if __name__ == "__main__":
    assert not PLACE.exists(), "the golden repository of a format never changes"
    scratch = Path("/tmp/hawker-golden")
    scratch.mkdir()
    anyio.run(write, scratch)
    assert bytes_of(scratch / "volume") == content(True)
