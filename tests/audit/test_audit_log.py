import os
from pathlib import Path

import anyio
import pytest

from hawker.audit.audit_log import AuditLog, lines, segments
from hawker.audit.chain import broken, read_line
from hawker.clock import ManualClock
from hawker.errors import Unavailable

pytestmark = pytest.mark.anyio


def opened(place: Path, *, segment_bytes: int = 1 << 20, most_bytes: int = 4 << 20) -> AuditLog:
    log = AuditLog(place / "audit", ManualClock(), most_bytes, segment_bytes)
    log.open()
    return log


def whats(place: Path) -> list[str]:
    return [read_line(line).what for line in lines(place / "audit")]


async def test_entries_are_there_at_once_and_the_chain_goes_on_over_daemons(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append(what="one", who="ann", things={"app_name": "shop"})
    await log.sync()
    log.append(what="two")
    assert whats(tmp_path) == ["one", "two"]  # a daemon that is killed now has lost nothing
    log = opened(tmp_path)
    log.append(what="three")
    assert whats(tmp_path) == ["one", "two", "three"] and broken(lines(tmp_path / "audit")) is None
    assert segments(tmp_path / "audit")[0].stat().st_mode & 0o777 == 0o600


async def test_a_line_that_a_crash_tore_is_cut_off_and_told(tmp_path: Path) -> None:
    opened(tmp_path).append(what="one")
    (segment,) = segments(tmp_path / "audit")
    with segment.open("ab") as file:
        file.write(b'{"number":2,"at":"20')
    log = opened(tmp_path)
    log.append(what="two")
    assert whats(tmp_path) == ["one", "torn line cut off", "two"] and broken(lines(tmp_path / "audit")) is None


async def test_the_log_has_a_bound_and_what_is_left_is_a_chain(tmp_path: Path) -> None:
    log = opened(tmp_path, segment_bytes=2000, most_bytes=6000)
    for number in range(100):
        log.append(what=f"call {number}")
    assert len(segments(tmp_path / "audit")) == 3
    assert sum(segment.stat().st_size for segment in segments(tmp_path / "audit")) <= 6000
    assert whats(tmp_path)[-1] == "call 99" and broken(lines(tmp_path / "audit")) is None


async def test_a_full_disk_leaves_no_half_line_and_the_next_entry_counts_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path)
    log.append(what="one")
    whole = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: whole(fd, data[:7]))
        for _ in range(2):
            with pytest.raises(Unavailable, match="nothing was done"):
                log.append(what="lost")
    log.append(what="two")
    assert [read_line(line).lost for line in lines(tmp_path / "audit")] == [0, 2]
    assert broken(lines(tmp_path / "audit")) is None


async def test_callers_that_wait_together_share_a_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, synced = opened(tmp_path), list[int]()
    monkeypatch.setattr(os, "fdatasync", synced.append)

    async def call() -> None:
        log.append(what="call")
        await log.sync()

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(call)
    assert 1 <= len(synced) < 20
