"""What a dead daemon left is removed without it."""

import tempfile
from pathlib import Path

import pytest
from anyio.to_thread import run_sync

from hawker.chaos.daemon import Daemon
from hawker.chaos.scrub import scrub
from hawker.clock import SystemClock
from hawker.host.residue import host, left
from tests.e2e.shop import Shop
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
DRIVERS = [pytest.param("container", marks=pytest.mark.root), "process"]


@pytest.mark.parametrize("driver", DRIVERS)
async def test_node_whose_daemon_cannot_be_asked_leaves_no_residue(driver: str) -> None:
    before = host()
    with tempfile.TemporaryDirectory(prefix="hawker-scrub-") as name:
        daemon = Daemon(Path(name), SystemClock(), driver=driver)
        await run_sync(daemon.start)
        async with daemon.client() as client:
            shop = await Shop(client, "shop").open()
            machine = await shop.run({"image": "hawker/hello"} | command(driver))
        daemon.kill()
        assert left(before, *daemon.marks, machine.id) != []
        await scrub(daemon, SystemClock())
        await eventually(lambda: not left(before, *daemon.marks, machine.id))


def command(driver: str) -> dict[str, object]:
    return {} if driver == "container" else {"init": {"exec": ["/bin/sleep", "600"]}}
