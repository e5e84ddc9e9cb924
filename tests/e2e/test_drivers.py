"""A node that chooses its driver: what it says of each, and that it keeps to the one whose machines it has."""

from pathlib import Path

import pytest

from hawker.api.contract.node import NODE_INFO
from hawker.runtime.driver_selection import NAMES
from tests.e2e.running_node import running_node
from tests.e2e.shop import HELLO, Shop

pytestmark = [pytest.mark.anyio, pytest.mark.root]


async def test_a_node_that_chooses_says_what_it_found_of_each_driver(tmp_path: Path) -> None:
    with running_node(tmp_path / "node", "--ephemeral", "--driver", "auto") as node:
        async with node.client() as client:
            told = await client.call(NODE_INFO)
    assert tuple(driver.name for driver in told.drivers) == NAMES and all(driver.reason for driver in told.drivers)
    assert [driver.name for driver in told.drivers if driver.chosen] == [told.driver]
    assert told.driver == "container", "no kernel is imported, and root can have containers"


async def test_a_node_keeps_to_the_driver_of_its_machines(tmp_path: Path) -> None:
    """Root would be given containers, which could not reach processes."""
    with running_node(tmp_path / "node", "--driver", "process") as node:
        async with node.client() as client:
            shop = await Shop(client, "shop").open()
            machine = await shop.run({"image": HELLO, "init": {"exec": ["/bin/sleep", "60"]}})
        node.stop()
        node.flags = ("--driver", "auto")
        node.start()
        async with node.client() as client:
            assert (await client.call(NODE_INFO)).driver == "process"
            assert (await Shop(client, "shop").get(machine.id)).state == "started"
