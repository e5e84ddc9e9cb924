"""The schedule of backups on a real node whose daemon dies at it, day after day: each day has its backup, once. Days go
by as the daemon's clock is moved.
"""

import os
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from signal import SIGKILL

import anyio.to_thread
import pytest

from hawker.clock import OFFSET_VARIABLE, SystemClock
from hawker.ids import VolumeId
from hawker.time_window import DAY_S
from hawker.volume.backup_schedule import share_of
from tests.e2e.command_line import CommandLine
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.shop import Shop
from tests.e2e.test_volumes import make
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.slow]

SHORT = ("volume_backup.accept.after", "volume_backup.send.packed")
PLACES = (
    "volume_backup.accept.before",
    "volume_backup.accept.after",
    "volume_snapshot.copy.drafted",
    "volume_backup.await_snapshot.after",
    "volume_backup.send.before",
    "volume_backup.send.packed",
    "volume_backup.send.sent",
    "volume_backup.send.after",
)
WITHIN_S = 120.0


@pytest.mark.parametrize(
    "places",
    [
        SHORT,
        pytest.param(
            PLACES,
            marks=[
                pytest.mark.long(reason="eight deaths; the two of the short form are beside it"),
                pytest.mark.timeout(1800),  # sixteen boots: ten minutes, and more on a busy host
            ],
        ),
    ],
    ids=["short", "all"],
)
async def test_backup_of_each_day_is_made_once_though_the_daemon_dies_at_it(
    tmp_path: Path, places: Sequence[str]
) -> None:
    passphrase, kept = tmp_path / "passphrase", tmp_path / "kept"
    await anyio.to_thread.run_sync(passphrase.write_bytes, b"correct horse battery\n")
    flags = ("--backup-url", str(kept), "--backup-passphrase-file", str(passphrase))
    often = ("--backup-every-s", str(DAY_S), "--backup-keep-daily", "100", "--reconcile-every-s", "1")
    with running_node(tmp_path / "node", "--ephemeral", *flags) as node:
        async with node.client() as client:
            shop = await Shop(client, "daily").open()
            volumes = [(await make(shop, name=name)).id for name in ("one", "other")]
        await anyio.to_thread.run_sync(node.kill)
        node.flags = (*node.flags, *often)
        quiet_s = _quiet_s(volumes)
        for day, place in enumerate(places, 1):
            await anyio.to_thread.run_sync(_write, node, volumes, day)
            await anyio.to_thread.run_sync(_dies, node, tmp_path / "offset", day * DAY_S + quiet_s, place)
            try:
                await eventually(partial(_are_kept, kept, volumes, day), WITHIN_S)
            except TimeoutError:
                print(node.errors)
                raise
            await anyio.to_thread.run_sync(node.kill)
        await anyio.to_thread.run_sync(node.start)
        await eventually(lambda: _left(node, kept) == [], WITHIN_S)
        assert _are_kept(kept, volumes, len(places))
        whole = CommandLine(node.environment)
        verify = ("volumes", "verify", str(kept), "--passphrase-file", str(passphrase))
        done = await anyio.to_thread.run_sync(partial(whole, *verify))
        assert (done.status, done.out.count("whole")) == (0, len(volumes) * len(places)), done


def _write(node: RunningNode, volumes: Sequence[str], day: int) -> None:
    """Something that the day before did not have."""
    text = node.directory / f"day-{day}"
    text.write_text(f"of day {day}\n" * 100_000)
    for volume in volumes:
        disk = node.data_dir / "volumes" / volume / "disk"
        subprocess.run(["debugfs", "-w", "-R", f"write {text} day-{day}", str(disk)], check=True, capture_output=True)


def _quiet_s(volumes: Sequence[str]) -> float:
    """So much later no volume has its moment of the day for an hour: a life at that moment would make two backups."""
    now = SystemClock().now()
    return next(
        float(later_s)
        for later_s in range(0, int(DAY_S), 1800)
        if all((share_of(VolumeId(each)) * DAY_S - now - later_s) % DAY_S > 3600 for each in volumes)
    )


def _dies(node: RunningNode, offset: Path, offset_s: float, place: str) -> None:
    """So much later, at this place of what the schedule begins; then the next life begins."""
    offset.write_text(str(offset_s))
    node.environment[OFFSET_VARIABLE] = str(offset)
    assert node.launch(failpoint=place).ended(WITHIN_S) == -SIGKILL, node.errors
    node.start()


def _are_kept(kept: Path, volumes: Sequence[str], days: int) -> bool:
    """One of each day."""
    found = [_days(kept, volume) for volume in volumes]
    assert all(len(each) == len(set(each)) for each in found), f"two on one day: {found}"
    return all(len(each) == days for each in found)


def _days(kept: Path, volume: str) -> list[str]:
    """What is half written is no backup."""
    listed = kept.glob(f"backups/tests/daily/{volume}/*")
    return sorted(file.name.split("T")[0] for file in listed if not file.name.startswith("."))


def _left(node: RunningNode, kept: Path) -> list[str]:
    """Of backups that have ended: snapshots that were taken for them, and what is on its way."""
    endings = tuple(file.name[-4:] for file in kept.glob("backups/tests/daily/*/*"))
    taken = [each.name for each in (node.data_dir / "snapshots").iterdir() if each.name.endswith(endings)]
    return [*taken, *(f"{folder}/{name}" for folder, _, names in os.walk(node.data_dir / "backup") for name in names)]
