"""A node whose disk is full to the last block, whoever filled it: what there is can be stopped and destroyed, which
makes room, and one machine that writes its own disk full is noticed by nobody else.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.errors import NoRoom
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.shop import HELLO, Shop

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.slow]
CONFIG = {"image": HELLO, "guest": {"memory_mb": 64}, "restart": {"policy": "no"}}
DISK_MIB = 1024


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("small")
    image, target = place / "image", place / "disk"
    with image.open("wb") as file:
        file.truncate(DISK_MIB << 20)
    subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", str(image)], check=True, timeout=60)
    target.mkdir()
    subprocess.run(["mount", "-o", "loop", str(image), str(target)], check=True, timeout=60)
    yield target
    subprocess.run(["umount", "-l", str(target)], check=True, timeout=60)


@pytest.fixture(scope="module")
def node(disk: Path) -> Iterator[RunningNode]:
    flags = ("--machine-disk-mib", "64", "--free-disk-floor-mib", "64")
    with running_node(disk / "node", "--ephemeral", *flags) as node:
        yield node


def fill(disk: Path) -> Path:
    """To the last block."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                os.fsync(file.fileno())
    return filler


async def test_machines_can_be_stopped_and_destroyed_on_a_full_disk(shop: Shop, disk: Path) -> None:
    machines = [(await shop.run(CONFIG)).id for _ in range(3)]
    filler = fill(disk)
    try:
        await shop.stop(machines[0])
        await shop.wait(machines[0], "stopped")
        for machine_id in machines:
            await shop.destroy(machine_id)
            await shop.gone(machine_id)
        with pytest.raises(NoRoom):
            await shop.order(CONFIG)
    finally:
        filler.unlink()
    await shop.run_somewhere(CONFIG)  # a node looks at its disk every few seconds, and sells what it saw then


async def test_a_machine_that_writes_its_disk_full_is_noticed_by_nobody_else(
    shop: Shop, disk: Path, toolbox_image: str
) -> None:
    config = {**CONFIG, "image": toolbox_image, "init": {"exec": ["sleep", "1000"]}}
    hog, other = [(await shop.run_somewhere(config)).id for _ in range(2)]
    answer = await shop.shell(hog, "yes > /fill")
    assert answer.exit_code != 0 and "No space left" in answer.stderr
    assert await shop.said(other, "sh", "-c", "yes | head -c 20000000 > /mine && echo fine") == "fine\n"
    assert os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize > (DISK_MIB // 2) << 20
    await shop.destroy(hog)
    await shop.gone(hog)


async def test_more_than_the_disk_can_keep_is_not_promised(shop: Shop) -> None:
    with pytest.raises(NoRoom, match=r"short of \d+ MiB of disk"):
        await shop.order({**CONFIG, "rootfs": {"size_gb": 2}})
