"""Two real nodes with one place for backups, of which one is killed for good: its volumes come back on the other."""

import subprocess
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import anyio.to_thread
import pytest

from hawker.api.contract.cluster import CORDON_NODE, UNCORDON_NODE, NodeParams
from hawker.api.contract.volume import Volume
from hawker.errors import HawkerError
from tests.e2e.command_line import CommandLine
from tests.e2e.shop import Shop
from tests.e2e.test_fleet_join import WITHIN_S, Host
from tests.e2e.test_volumes import make
from tests.e2e.two_hosts import met, two_hosts
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.slow]


@pytest.mark.long(reason="a host is lost; test_fresh_fleet.py restores at another node, too, and is the short form")
async def test_a_volume_is_restored_on_another_node_when_its_host_is_gone(tmp_path: Path) -> None:
    passphrase = tmp_path / "passphrase"
    await anyio.to_thread.run_sync(passphrase.write_bytes, b"correct horse battery\n")
    flags = ("--backup-url", str(tmp_path / "place"), "--backup-passphrase-file", str(passphrase))
    with two_hosts(tmp_path, (flags, flags)) as hosts:
        await met(hosts)
        try:
            await restored(hosts, tmp_path)
        finally:
            hosts[1].node.start()  # so that it takes off the host what it has there


async def restored(hosts: Sequence[Host], below: Path) -> None:
    left, lost = hosts
    app, backup = await backed_up(lost, left, below)
    lost.node.kill()
    line = CommandLine(left.node.environment | {"HAWKER_DATA_DIR": str(left.node.data_dir)})

    async def forgotten() -> bool:
        done = await anyio.to_thread.run_sync(partial(line, "node", "forget", "--force", lost.node.node_id))
        return done.status == 0

    async def listed() -> bool:
        await anyio.to_thread.run_sync(partial(line, "apps", "create", app, "--org", "tests"))  # nobody else knew of it
        done = await anyio.to_thread.run_sync(partial(line, "volumes", "backups", "-a", app))
        return backup in done.out

    await eventually(forgotten, WITHIN_S)
    await eventually(listed, WITHIN_S)
    done = await anyio.to_thread.run_sync(partial(line, "volumes", "restore", backup, "-a", app, "--name", "again"))
    assert done.status == 0, done.err
    [disk] = await anyio.to_thread.run_sync(lambda: list((left.node.data_dir / "volumes").glob("vol_*/disk")))
    assert await text_in(disk) == "written before the host was lost\n"


async def backed_up(host: Host, other: Host, below: Path) -> tuple[str, str]:
    """The app of a volume on `host` alone, and the volume's backup."""
    async with host.node.client() as client:
        there = NodeParams(node_id=other.node.node_id)
        await eventually(partial(_quietly, partial(client.call, CORDON_NODE, params=there)), WITHIN_S)
        shop = Shop(client, "restored")
        await shop.open()
        volume = await make(shop, region="mad")
        assert isinstance(volume, Volume) and volume.zone == host.node.node_id
        await client.call(UNCORDON_NODE, params=there)
    await put_text(host.node.data_dir / "volumes" / volume.id / "disk", below / "text")
    line = CommandLine(host.node.environment | {"HAWKER_DATA_DIR": str(host.node.data_dir)})
    done = await anyio.to_thread.run_sync(partial(line, "volumes", "backup", volume.id, "-a", shop.app))
    assert done.status == 0, done.err
    return shop.app, done.out.strip()


async def _quietly(ask: Callable[[], Awaitable[object]]) -> object:
    try:
        return await ask()
    except HawkerError:
        return None


async def put_text(disk: Path, text: Path) -> None:
    await anyio.to_thread.run_sync(text.write_text, "written before the host was lost\n")
    await anyio.run_process(["debugfs", "-w", "-R", f"write {text} text", str(disk)])


async def text_in(disk: Path) -> str:
    """In a file system that is clean."""
    await anyio.run_process(["e2fsck", "-fn", str(disk)])
    shown = await anyio.run_process(["debugfs", "-R", "cat text", str(disk)], stderr=subprocess.DEVNULL)
    return shown.stdout.decode()
