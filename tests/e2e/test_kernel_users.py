"""What the kernel counts for each of its users: the machine that uses it up is the only one that notices."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.e2e.shop import Shop

pytestmark = [pytest.mark.anyio, pytest.mark.root]

# A new pipe has 16 pages, or two when its user has more than 16,384 in all (fs.pipe-user-pages-soft).
_USE_UP = """
cd /dev/shm && ulimit -n 4096 && mkfifo $(seq 1400)
for i in $(seq 1400); do exec {fd}<>$i; done
echo used up; sleep 600
"""
_FRESH = """
cd /dev/shm && rm -f g && mkfifo g && exec 3<>g
dd if=/dev/zero of=/dev/fd/3 bs=4096 count=16 oflag=nonblock 2>&1; true
"""


async def pages_of_a_fresh_pipe(shop: Shop, machine_id: str) -> int:
    """How many pages it takes."""
    said = await shop.shell(machine_id, _FRESH)
    return int((said.stdout or "").rpartition("+0 records out")[0].rsplit(None, 1)[-1])


@asynccontextmanager
async def greedy(shop: Shop, image: str) -> AsyncIterator[str]:
    """A machine that has taken all pages of pipes that its root may have."""
    machine = await shop.run({"image": image, "init": {"cmd": ["bash", "-c", _USE_UP]}})
    await shop.logged(machine.id, "used up")
    yield machine.id


async def test_pipes_that_one_machine_uses_up_are_there_for_the_others(shop: Shop, toolbox_image: str) -> None:
    quiet = await shop.run({"image": toolbox_image})
    assert await pages_of_a_fresh_pipe(shop, quiet.id) == 16
    async with greedy(shop, toolbox_image) as machine_id:
        assert await pages_of_a_fresh_pipe(shop, machine_id) < 16, "it is at its own limit"
        assert await pages_of_a_fresh_pipe(shop, quiet.id) == 16
