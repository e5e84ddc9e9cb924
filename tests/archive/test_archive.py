import random
from pathlib import Path

import anyio
import msgspec
import pytest
import zstandard

from hawker.archive.archive import MOST_BYTES, Archive, key_of
from hawker.archive.backend import ArchiveBackend
from hawker.archive.directory import DirectoryBackend
from hawker.archive.failure import ArchiveDamaged, ArchiveRefused
from hawker.errors import NotFound
from hawker.ids import MachineId
from tests.archive.histories import ID, history

pytestmark = pytest.mark.anyio
MACHINE = MachineId(ID)


@pytest.fixture
def archive(place: ArchiveBackend, tmp_path: Path) -> Archive:
    return Archive(place, tmp_path / "staging")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "kept"


@pytest.fixture
def local(kept: Path, tmp_path: Path) -> Archive:
    return Archive(DirectoryBackend(kept), tmp_path / "staging")


async def export(archive: Archive) -> int:
    await archive.write(history())
    size = await archive.send(MACHINE)
    await archive.discard(MACHINE)
    return size


async def test_a_history_comes_back_as_it_was(archive: Archive, tmp_path: Path) -> None:
    size = await export(archive)
    assert await archive.size(MACHINE) == size
    assert await archive.read(ID) == history()
    assert list((tmp_path / "staging").iterdir()) == []


async def test_exporting_twice_is_harmless(archive: Archive) -> None:
    assert await export(archive) == await export(archive)
    assert await archive.read(ID) == history()


async def test_machine_never_archived_is_not_found(archive: Archive) -> None:
    assert await archive.size(MACHINE) is None
    assert await archive.read(ID) is None


async def test_unzstd_gives_a_database(local: Archive, kept: Path) -> None:
    await export(local)
    assert zstandard.decompress((kept / "01" / f"{ID}.sqlite.zst").read_bytes()).startswith(b"SQLite format 3\0")


@pytest.mark.parametrize("name", ["", "../../../etc/passwd", "0123456789ABCD", f"{ID}0", f"{ID}\n", "0123456789abc/"])
async def test_invalid_machine_id_gets_into_no_path(local: Archive, name: str) -> None:
    with pytest.raises(NotFound):
        key_of(name)
    with pytest.raises(NotFound):
        await local.read(name)


async def test_a_history_under_another_machines_key_is_refused(local: Archive, kept: Path) -> None:
    await export(local)
    (kept / "01" / f"{ID}.sqlite.zst").rename(kept / "01" / "01000000000000.sqlite.zst")
    with pytest.raises(ArchiveDamaged, match=f"01/01000000000000.sqlite.zst cannot be read: it is the history of {ID}"):
        await local.read("01000000000000")


async def test_damage_anywhere_is_told_or_harmless(local: Archive, kept: Path, tmp_path: Path) -> None:
    await export(local)
    path, chance = kept / "01" / f"{ID}.sqlite.zst", random.Random(1)
    sound, told = path.read_bytes(), 0
    for _ in range(60):
        data = bytearray(sound)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data[: chance.choice([len(data), chance.randrange(len(data))])])
        try:
            assert await local.read(ID) == history()
        except ArchiveDamaged:
            told += 1
    assert told > 50
    assert list((tmp_path / "staging").iterdir()) == []


async def test_a_bomb_is_refused_and_leaves_nothing(local: Archive, kept: Path, tmp_path: Path) -> None:
    (kept / "01").mkdir(parents=True)
    bomb = zstandard.ZstdCompressor().compressobj(size=MOST_BYTES + (1 << 20))
    with (kept / "01" / f"{ID}.sqlite.zst").open("wb") as file:
        for _ in range((MOST_BYTES >> 20) + 1):
            file.write(bomb.compress(bytes(1 << 20)))
        file.write(bomb.flush())
    with pytest.raises(ArchiveDamaged, match="expands to more than"):
        await local.read(ID)
    assert list((tmp_path / "staging").iterdir()) == []


async def test_leftover_of_a_killed_reader_is_no_obstacle(local: Archive, tmp_path: Path) -> None:
    await export(local)
    (tmp_path / "staging" / "read-0" / "packed").mkdir(parents=True)
    assert await local.read(ID) == history()


async def test_a_disk_that_does_not_take_the_file_is_said(place: ArchiveBackend, tmp_path: Path) -> None:
    (tmp_path / "staging").write_text("a file")
    with pytest.raises(ArchiveRefused, match="staging/below cannot be used"):
        await Archive(place, tmp_path / "staging" / "below").write(history())


async def test_a_long_history_is_read_whole(local: Archive) -> None:
    event = history().events[0]
    events = tuple(msgspec.structs.replace(event, id=f"E{number:06}") for number in range(20_000))
    long = msgspec.structs.replace(history(), events=events)
    await local.write(long)
    await local.send(MACHINE)
    assert await local.read(ID) == long


async def test_many_can_read_at_once(local: Archive) -> None:
    await export(local)
    found = []

    async def read() -> None:
        found.append(await local.read(ID))

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(read)
    assert found == [history()] * 8
