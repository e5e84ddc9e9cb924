"""A host whose disk cannot read all of a volume any more is evacuated: what is lost is named, and whoever accepts it
goes on with the rest; or it takes the volume back from a node that is lost. The first node's volumes are on a disk that
loses its end.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import anyio.to_thread
import msgspec
import pytest

from hawker.api.client import Client
from hawker.api.contract.cluster import CORDON_NODE, UNCORDON_NODE, NodeParams
from hawker.api.contract.machine import Machine
from hawker.api.contract.volume import Volume, VolumeDamage
from hawker.errors import Damaged, HawkerError
from tests.e2e.command_line import CommandLine
from tests.e2e.shop import Shop
from tests.e2e.test_fleet_join import WITHIN_S, Host, states
from tests.e2e.test_moves import begun, ended
from tests.e2e.test_volumes import make, seen
from tests.e2e.two_hosts import met, two_hosts
from tests.fixtures.dying_disk import DyingDisk, dying_disk
from tests.waiting import eventually

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.long(
        reason="two nodes and a disk that dies; tests/volume/test_host_copies.py tests/backup/test_transfer.py have "
        "one, and tests/e2e/test_moves.py drains a node"
    ),
]

FILL = """
set -e
test -f /data/ready || {
  echo kept > /data/ledger
  dd if=/dev/urandom of=/data/large bs=1M count=16 conv=fsync
  echo filled > /data/ready
}
while true; do sleep 1; done"""


@pytest.fixture
def disk_and_hosts(tmp_path: Path) -> Iterator[tuple[DyingDisk, tuple[Host, Host]]]:
    disks, made = ExitStack(), list[DyingDisk]()

    def prepare(host: Host) -> None:
        if not made:
            made.append(disks.enter_context(dying_disk(tmp_path, 512, host.node.data_dir / "volumes")))

    with two_hosts(tmp_path, prepare=prepare) as pair:
        try:
            yield made[0], pair
        finally:
            disks.close()


async def with_files(shop: Shop, image: str, host: Host) -> tuple[Machine, Volume]:
    """Stopped, and its volume on the disk of this host."""
    volume = await make(shop, region="mad")
    config = {
        "image": image,
        "guest": {"memory_mb": 64},
        "mounts": [{"volume": volume.id, "path": "/data"}],
        "init": {"exec": ["/bin/sh", "-c", FILL]},
        "stop_config": {"signal": "SIGKILL", "timeout": 1},
    }
    machine = await shop.run_somewhere(config, name="files")
    await eventually(partial(_filled, shop, machine), WITHIN_S)
    await shop.stop(machine.id)
    await shop.wait(machine.id, "stopped")
    assert file_of(host, volume).exists()
    return machine, volume


async def _filled(shop: Shop, machine: Machine) -> bool:
    try:
        return (await shop.shell(machine.id, "test -f /data/ready")).exit_code == 0
    except HawkerError:  # it is on its way to run
        return False


def file_of(host: Host, volume: Volume) -> Path:
    return host.node.data_dir / "volumes" / volume.id / "disk"


def lose(disk: DyingDisk, file: Path) -> bool:
    """The end of the large file, and what lies behind it on the disk; once nobody has the disk mounted elsewhere."""
    told = subprocess.run(["debugfs", "-R", "blocks /large", str(file)], check=True, capture_output=True, text=True)
    blocks = told.stdout.split()
    try:
        disk.cut(file, int(blocks[len(blocks) * 3 // 4]) * 4096)
    except subprocess.CalledProcessError:
        return False
    fd = os.open(file, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    return True


async def test_evacuation_of_a_dying_disk_names_what_is_lost_and_its_owner_goes_on_with_the_rest(
    disk_and_hosts: tuple[DyingDisk, tuple[Host, Host]], toolbox_image: str
) -> None:
    disk, hosts = disk_and_hosts
    dying, sound = hosts
    await met(hosts)
    async with dying.node.client() as client:
        shop = Shop(client, "dying")
        await shop.open()
        await eventually(partial(_only, client, sound), WITHIN_S)
        machine, volume = await with_files(shop, toolbox_image, dying)
        await client.call(UNCORDON_NODE, params=NodeParams(node_id=sound.node.node_id))
        await eventually(lambda: lose(disk, file_of(dying, volume)), WITHIN_S)

        command = CommandLine(dying.node.environment | {"HAWKER_DATA_DIR": str(dying.node.data_dir)})
        evacuate = ("node", "evacuate", dying.node.node_id, "--output", "json")
        stays = await anyio.to_thread.run_sync(command, *evacuate)
        assert stays.status == 1 and "cannot be read at byte" in stays.out, stays
        assert file_of(dying, volume).exists()
        leaves = await anyio.to_thread.run_sync(command, *evacuate, "--accept-loss")
        assert leaves.status == 0, leaves
        (row,) = msgspec.json.decode(leaves.out)
        assert "LOST" in row["note"] and f"hawker volumes show {volume.id}" in row["note"]
        assert file_of(sound, volume).exists() and not file_of(dying, volume).exists()

        damage = await eventually(partial(_named, shop, volume), WITHIN_S)
        assert damage and damage.files == ("/large",) and not damage.accepted
        with pytest.raises(Damaged, match="--accept-damage"):
            await shop.start(machine.id)
        shown = await anyio.to_thread.run_sync(command, "volumes", "list", "-a", "dying")
        assert "created, damaged" in shown.out
        accepted = await anyio.to_thread.run_sync(command, "volumes", "update", volume.id, "--accept-damage")
        assert accepted.status == 0, accepted
        await shop.start(machine.id)
        await shop.wait(machine.id, "started")
        assert (await shop.said(machine.id, "cat", "/data/ledger")).strip() == "kept"
        repaired = (await seen(shop, volume)).damage
        assert repaired and repaired.repaired and repaired.lost == damage.lost


async def test_volume_that_is_taken_back_to_a_dying_disk_has_what_can_be_read_and_makes_nothing_up(
    disk_and_hosts: tuple[DyingDisk, tuple[Host, Host]], toolbox_image: str
) -> None:
    """The file was put aside there, and is put back without a look into it."""
    disk, hosts = disk_and_hosts
    dying, lost = hosts
    await met(hosts)
    async with dying.node.client() as client:
        shop = Shop(client, "dying")
        await shop.open()
        await eventually(partial(_only, client, lost), WITHIN_S)
        spare = reserve(disk)
        machine, volume = await with_files(shop, toolbox_image, dying)
        await client.call(UNCORDON_NODE, params=NodeParams(node_id=lost.node.node_id))
        move = await ended(shop, (await begun(shop, machine, lost.node.node_id)).id)
        assert move.state == "done", move.reason
        lost.node.lose()
        await eventually(partial(_is_down, client, lost), WITHIN_S)
        (kept,) = (disk.root / ".retired").glob(f"{volume.id}.*")
        fill(disk)
        await eventually(lambda: lose(disk, kept), WITHIN_S)
        spare.unlink()

        command = CommandLine(dying.node.environment | {"HAWKER_DATA_DIR": str(dying.node.data_dir)})
        reclaim = ("machine", "move", machine.id, "--reclaim", "--accept-loss", "--now")
        back = await anyio.to_thread.run_sync(command, *reclaim)
        assert back.status == 0 and "taken back under generation" in back.out, back
        await shop.start(machine.id)
        await shop.wait(machine.id, "started")
        assert (await shop.said(machine.id, "cat", "/data/ledger")).strip() == "kept"
        assert (await shop.shell(machine.id, "head -c 1048576 /data/large > /dev/null")).exit_code == 0
        unread = await shop.shell(machine.id, "cat /data/large > /dev/null")
        assert unread.exit_code != 0 and "Input/output error" in unread.stderr, unread

        lost.node.start()
        await met(hosts)
        await eventually(lambda: not file_of(lost, volume).exists(), WITHIN_S)
        again = await anyio.to_thread.run_sync(command, "machine", "move", machine.id, "--to", lost.node.node_id)
        assert again.status == 1 and f"volume {volume.id} cannot be read at byte" in again.err + again.out, again
        assert file_of(dying, volume).exists() and (await seen(shop, volume)).damage is None


def reserve(disk: DyingDisk) -> Path:
    """Room ahead of all that is to come, for what is written once the rest of the disk is lost."""
    spare = disk.root / ".spare"
    with spare.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 64 << 20)
    return spare


def fill(disk: DyingDisk) -> None:
    """Nothing more finds room where it would be lost."""
    with (disk.root / ".rest").open("wb") as file, suppress(OSError):  # until the disk is full
        for number in range(1 << 16):
            os.posix_fallocate(file.fileno(), number << 16, 1 << 16)


async def _is_down(client: Client, host: Host) -> bool:
    try:
        return (await states(client)).get(host.node.node_id) == "down"
    except HawkerError:
        return False


async def _only(client: Client, sound: Host) -> bool:
    """What is ordered is on the disk that is to lose something."""
    try:
        await client.call(CORDON_NODE, params=NodeParams(node_id=sound.node.node_id))
    except HawkerError:  # that it lives is known before where it answers
        return False
    return True


async def _named(shop: Shop, volume: Volume) -> VolumeDamage | None:
    damage = (await seen(shop, volume)).damage
    return damage if damage is not None and damage.unnamed is not None else None
