"""Two real nodes, of which one is killed: what it has stays in lists, with its host named."""

import json

import pytest

from tests.e2e.command_line import CommandLine
from tests.e2e.shop import Shop
from tests.e2e.test_fleet_images import at_host, hosts, shops
from tests.e2e.test_fleet_join import WITHIN_S, Host, states
from tests.waiting import eventually

__all__ = ["hosts", "shops"]
pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.slow]


@pytest.mark.long(reason="a host is lost; tests/gateway/test_lists.py and test_agent_fleet.py are the short form")
async def test_a_machine_of_a_lost_host_stays_in_the_list(shops: tuple[Shop, Shop], hosts: tuple[Host, Host]) -> None:
    shop, node = shops[0], hosts[0].node
    line = CommandLine(node.environment | {"HAWKER_DATA_DIR": str(node.data_dir)})
    there = await at_host(shop, 1, "hawker/hello")

    def listed() -> tuple[str, str]:
        done = line("machine", "list", "-a", shop.app, "-o", "json")
        found = [each["machine"] for each in json.loads(done.out) if each["machine"]["id"] == there.id]
        return found[0]["host_status"] if found else "missing", done.err

    async def lost() -> bool:
        return listed()[0] == "unreachable"

    async def all_alive() -> bool:
        return set((await states(shop.client)).values()) == {"alive"}

    hosts[1].node.kill()
    try:
        await eventually(lost, WITHIN_S)
        assert "no answer from" in listed()[1] and "away" in line("ps", "-a", shop.app).out
    finally:
        hosts[1].node.start()
        await eventually(all_alive, WITHIN_S)
