"""A node whose machines are processes of the host: for anyone, with nothing installed."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hawker.api.contract.node import NODE_INFO
from hawker.errors import Unprocessable
from tests.e2e.anyone import AS_NOBODY, open_to_all
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.shop import HELLO, Shop

pytestmark = pytest.mark.anyio


def shell(script: str, **fields: Any) -> dict[str, Any]:
    return {"image": HELLO, "init": {"exec": ["/bin/sh", "-c", script]}, **fields}


@pytest.fixture
def lasting(tmp_path: Path) -> Iterator[RunningNode]:
    with running_node(tmp_path / "lasting", "--driver", "process") as node:
        yield node


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
async def test_processes_outlive_the_daemon(lasting: RunningNode, killed: bool) -> None:
    async with lasting.client() as client:
        shop = await Shop(client, "shop").open()
        machine = await shop.run(shell("echo $$; exec sleep 60", env={"MINE": "yes"}))
        await shop.logged(machine.id, "\n")
        pid = int(await shop.logs(machine.id))
    if killed:
        lasting.kill()
    else:
        lasting.stop()
    os.kill(pid, 0)
    lasting.start()
    async with lasting.client() as client:
        shop = Shop(client, "shop")
        assert (await shop.get(machine.id)).state == "started"
        assert await shop.said(machine.id, "sh", "-c", "echo $MINE $FLY_MACHINE_ID") == f"yes {machine.id}\n"
        await shop.stop(machine.id, signal="SIGTERM")
        await shop.wait(machine.id, "stopped")
        assert [(exit.guest_signal, exit.requested_stop) for exit in await shop.exits(machine.id)] == [(15, True)]


async def test_a_config_that_needs_a_filesystem_of_its_own_is_refused(lasting: RunningNode) -> None:
    async with lasting.client() as client:
        shop = await Shop(client, "shop").open()
        with pytest.raises(Unprocessable, match=r"config\.files"):
            await shop.order(shell("true", files=[{"guest_path": "/etc/x", "raw_value": "eA=="}]))
        assert await shop.machines() == []


@pytest.mark.root
async def test_the_process_driver_is_the_default_of_whoever_is_not_root() -> None:
    """The image's user is root, which means nothing where the image's filesystem is not used."""
    with open_to_all() as place, running_node(place / "node", "--ephemeral", before_it=AS_NOBODY) as node:
        async with node.client() as client:
            assert (await client.call(NODE_INFO)).driver == "process"
            shop = await Shop(client, "shop").open()
            machine = await shop.run(shell("id -u; exec sleep 60"))
            await shop.logged(machine.id, "65534\n")
            assert await shop.said(machine.id, "id", "-u") == "65534\n"
