"""Facts about copies of sparse files: what they hold, what they cost, and that half a copy is never seen."""

import errno
import os
from pathlib import Path

import anyio
import pytest
from anyio import from_thread
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hawker.host import sparse
from hawker.host.sparse import PIECE_BYTES, Way, allocated_bytes, draft, publish, shares_blocks

pytestmark = pytest.mark.anyio
MIB = 1 << 20


def _sparse(path: Path, size: int, *written: tuple[int, bytes]) -> Path:
    with path.open("wb") as file:
        file.truncate(size)
        for offset, content in written:
            file.seek(offset)
            file.write(content)
    return path


async def test_a_copy_has_the_content_and_the_holes(tmp_path: Path) -> None:
    source = _sparse(tmp_path / "source", 64 * MIB, (0, b"head"), (20 * MIB, b"x" * 3 * MIB), (64 * MIB - 4, b"tail"))
    done = await draft(source, tmp_path / "copy")
    assert (tmp_path / "copy").stat().st_size == 64 * MIB
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()
    assert 3 * MIB <= done.allocated_bytes == allocated_bytes(tmp_path / "copy") < 5 * MIB


async def test_a_file_of_one_hole_and_an_empty_one_are_copied(tmp_path: Path) -> None:
    for size in (0, 10 * MIB):
        source, copy = _sparse(tmp_path / f"hole{size}", size), tmp_path / f"copy{size}"
        assert (await draft(source, copy)).allocated_bytes == 0
        assert copy.stat().st_size == size


_PARTS = st.lists(st.tuples(st.integers(0, 600_000), st.binary(min_size=1, max_size=20_000)), max_size=5)


@given(size=st.integers(0, 700_000), parts=_PARTS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_file_is_copied_to_the_byte(tmp_path: Path, size: int, parts: list[tuple[int, bytes]]) -> None:
    source = _sparse(tmp_path / "source", size, *parts)
    await draft(source, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()


async def test_a_kernel_that_copies_no_range_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> int:
        raise OSError(errno.EXDEV, "not here")

    monkeypatch.setattr(os, "copy_file_range", refuses)
    source = _sparse(tmp_path / "source", 30 * MIB, (MIB, b"y" * (PIECE_BYTES + 5)))
    await draft(source, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()


async def test_a_new_try_begins_from_nothing(tmp_path: Path) -> None:
    source = _sparse(tmp_path / "source", MIB, (0, b"short"))
    _sparse(tmp_path / "copy", 9 * MIB, (8 * MIB, b"of an earlier try"))
    await draft(source, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()


async def test_a_cancelled_copy_ends_soon_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _sparse(tmp_path / "source", 4 * PIECE_BYTES, (0, b"z" * 4 * PIECE_BYTES))
    pieces = []
    monkeypatch.setattr(sparse, "_reflink", lambda *_: False)
    with anyio.CancelScope() as scope:

        def copied(*arguments: int) -> int:
            pieces.append(arguments)
            from_thread.run_sync(scope.cancel)
            return arguments[3]

        monkeypatch.setattr(sparse, "_copy_some", copied)
        await draft(source, tmp_path / "copy")
    assert scope.cancelled_caught
    assert len(pieces) == 1
    assert not (tmp_path / "copy").exists()


async def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sparse, "_reflink", lambda *_: False)
    monkeypatch.setattr(sparse, "_copy_some", full)
    with pytest.raises(OSError, match="No space"):
        await draft(_sparse(tmp_path / "source", MIB, (0, b"a")), tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


async def test_a_published_draft_has_its_name_and_may_be_published_again(tmp_path: Path) -> None:
    drafted, name = _sparse(tmp_path / "a.draft", MIB, (0, b"a")), tmp_path / "a"
    await publish(drafted, name)
    await publish(drafted, name)
    assert name.stat().st_size == MIB
    assert not drafted.exists()


async def test_copy_never_drafted_cannot_be_published(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await publish(tmp_path / "a.draft", tmp_path / "a")


async def test_reflinks_are_used_where_the_file_system_has_them(tmp_path: Path) -> None:
    shares = shares_blocks(tmp_path)
    done = await draft(_sparse(tmp_path / "source", MIB, (0, b"a" * MIB)), tmp_path / "copy")
    assert done.way is (Way.REFLINK if shares else Way.COPY)
    assert sorted(os.listdir(tmp_path)) == ["copy", "source"]


async def test_question_whether_blocks_are_shared_may_be_asked_by_many_at_once(tmp_path: Path) -> None:
    """A snapshot and a backup that are due when a daemon begins ask it together."""
    answers = list[bool]()

    async def ask() -> None:
        for _ in range(100):
            answers.append(await anyio.to_thread.run_sync(shares_blocks, tmp_path))

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(ask)
    assert len(answers) == 800 and len(set(answers)) == 1
    assert not os.listdir(tmp_path)
