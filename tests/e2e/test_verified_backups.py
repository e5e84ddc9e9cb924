"""A real node whose daemon dies while it verifies backups: the next one knows what was found, and reads the rest."""

from functools import partial
from pathlib import Path
from signal import SIGKILL

import anyio.to_thread
import pytest

from hawker.api.contract.app import AppParams
from hawker.api.contract.volume import LIST_BACKUPS, KeptBackup
from hawker.backup.at_work import BACKUP_LEASE_S
from hawker.clock import OFFSET_VARIABLE, SystemClock
from hawker.errors import HawkerError
from hawker.failpoint import OF_VERIFICATION
from hawker.time_window import DAY_S
from tests.e2e.command_line import CommandLine
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.shop import Shop
from tests.e2e.test_lost_host_backups import put_text
from tests.e2e.test_volumes import make
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.slow]

WITHIN_S = 240.0
_LATER_S = BACKUP_LEASE_S + 3600.0  # whoever died at it bars the others no longer


@pytest.mark.long(
    reason="each of four lives looks within a minute; tests/backup/test_verification.py is the short form"
)
@pytest.mark.timeout(1800)  # seven boots, and six looks within a minute
async def test_verification_is_gone_on_with_whenever_a_daemon_dies_at_it(tmp_path: Path) -> None:
    passphrase, kept = tmp_path / "passphrase", tmp_path / "kept"
    await anyio.to_thread.run_sync(passphrase.write_bytes, b"correct horse battery\n")
    flags = ("--backup-url", str(kept), "--backup-passphrase-file", str(passphrase), "--backup-verify-percent", "100")
    with running_node(tmp_path / "node", "--ephemeral", *flags, "--reconcile-every-s", "1") as node:
        await backed_up(node, tmp_path)
        await anyio.to_thread.run_sync(node.kill)
        for day, place in enumerate(OF_VERIFICATION, 1):
            await anyio.to_thread.run_sync(partial(live, node, 2 * day * DAY_S, place))
            assert await anyio.to_thread.run_sync(node.ended, WITHIN_S) == -SIGKILL, node.errors
            await anyio.to_thread.run_sync(partial(live, node, 2 * day * DAY_S + _LATER_S))
            await anyio.to_thread.run_sync(node.wait_ready)
            assert await eventually(partial(looked_at, node, 2 * day * DAY_S), WITHIN_S) == "whole"
            await anyio.to_thread.run_sync(node.kill)
        [pack, *_] = await anyio.to_thread.run_sync(lambda: [file for file in kept.glob("packs/*/*") if file.is_file()])
        await anyio.to_thread.run_sync(pack.write_bytes, b"rot")
        await anyio.to_thread.run_sync(partial(live, node, 6 * DAY_S, OF_VERIFICATION[1]))
        assert await anyio.to_thread.run_sync(node.ended, WITHIN_S) == -SIGKILL, node.errors
        await anyio.to_thread.run_sync(partial(live, node, 6 * DAY_S + _LATER_S))
        await anyio.to_thread.run_sync(node.wait_ready)
        assert await eventually(partial(looked_at, node, 6 * DAY_S), WITHIN_S) == "damaged"


async def backed_up(node: RunningNode, below: Path) -> None:
    async with node.client() as client:
        volume = await make(await Shop(client, "read").open())
    await put_text(node.data_dir / "volumes" / volume.id / "disk", below / "text")
    line = CommandLine(node.environment | {"HAWKER_DATA_DIR": str(node.data_dir)})
    await anyio.to_thread.run_sync(partial(line.say, "volumes", "backup", volume.id, "-a", "read"))


def live(node: RunningNode, later_s: float, place: str | None = None) -> None:
    """A life whose clock is so much later."""
    offset = node.directory / "offset"
    offset.write_text(str(later_s))
    node.environment[OFFSET_VARIABLE] = str(offset)
    node.launch(failpoint=place)


async def looked_at(node: RunningNode, later_s: float) -> str:
    """What is known of the backup since then; nothing while it was not read again."""
    try:
        async with node.client() as client:
            [backup] = await client.call(LIST_BACKUPS, params=AppParams(app_name="read"))
    except HawkerError:
        return ""
    return found_in(backup, SystemClock().now() + later_s - DAY_S)


def found_in(backup: KeptBackup, since: float) -> str:
    if backup.damage is not None:
        return "damaged"
    return "whole" if backup.verified_at is not None and backup.verified_at.timestamp() > since else ""
