"""Facts about spawned programs: their descriptors, their environment and what they see mounted."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from hawker.host.mount import is_mounted, mount, unmount
from hawker.host.spawn import reap, spawn

pytestmark = pytest.mark.anyio


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    try:
        yield reading, writing
    finally:
        os.close(reading)
        os.close(writing)


async def _python(code: str, *fds: int, hidden: Path | None = None) -> int:
    with anyio.fail_after(120):
        return await reap(spawn([sys.executable, "-I", "-c", code], fds=fds, hidden=hidden))


async def test_exit_status_and_signal_are_told() -> None:
    assert await _python("raise SystemExit(7)") == 7
    assert await _python("import os; os.kill(os.getpid(), 9)") == -9


async def test_descriptors_become_three_and_up_in_the_given_order() -> None:
    with _pipe() as (first_in, first_out), _pipe() as (second_in, second_out):
        assert await _python("import os; os.write(3, b'a'); os.write(4, b'b')", second_out, first_out) == 0
        assert os.read(second_in, 9) == b"a"
        assert os.read(first_in, 9) == b"b"


async def test_no_descriptor_of_ours_and_no_environment_is_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "x")
    with _pipe() as (reading, writing):
        seen = f"(os.path.exists('/proc/self/fd/{reading}'), 'SECRET' in os.environ)"
        assert reading > 4
        assert await _python(f"import os; os.write(3, repr({seen}).encode())", writing) == 0
        assert os.read(reading, 99) == b"(False, False)"


@pytest.mark.root
async def test_a_hidden_mount_is_gone_for_the_program_only(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    mount("tmpfs", tmp_path, "tmpfs", 0)
    place.mkdir()
    mount("tmpfs", place, "tmpfs", 0)
    (place / "seen").touch()
    code = f"import os; raise SystemExit(os.path.exists({str(place / 'seen')!r}))"
    try:
        assert await _python(code) == 1
        assert await _python(code, hidden=place) == 0
        assert is_mounted(place)
    finally:
        unmount(place)
        unmount(tmp_path)


async def test_a_program_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        spawn(["/nope"])
