"""A deploy over three real nodes, whose home is lost in the middle: it goes on at another one."""

from pathlib import Path
from typing import Any

import pytest

from hawker.api.client import Client
from hawker.api.contract.app import AppParams
from hawker.api.contract.deploy import CREATE_DEPLOY, GET_DEPLOY, CreateDeployRequest, DeployInfo, DeployParams
from hawker.errors import DeadlineExceeded, NotFound, Unavailable
from hawker.flytoml.machines import GROUP, PLATFORM
from tests.e2e.shop import HELLO, Shop
from tests.e2e.test_fleet_join import WITHIN_S, Host, three_hosts
from tests.e2e.two_hosts import met
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.slow]

LATEST = DeployParams(app_name="shop", version="latest")
SLEEPS = ["/bin/sh", "-c", "exec sleep 600"]
"""A program that needs no port: these machines share the host's network."""
CONFIG: dict[str, Any] = {"image": HELLO, "init": {"exec": SLEEPS}, "guest": {"memory_mb": 64}}


async def _shown(client: Client) -> DeployInfo | None:
    try:
        return await client.call(GET_DEPLOY, params=LATEST)
    except (Unavailable, NotFound, DeadlineExceeded):
        return None


async def _machines(shop: Shop, hosts: tuple[Host, ...]) -> list[str]:
    """One of the group at each host, in their order."""
    made = []
    for number, _ in enumerate(hosts):
        metadata = {**PLATFORM, GROUP: "app", "hawker_labels": f"host={number}"}
        made.append((await shop.run_somewhere({**CONFIG, "metadata": metadata})).id)
    return made


async def _deploy(client: Client) -> DeployInfo:
    pace = {"smoke": "6s", "smoke_rest": "3s"}
    own = {"hawker": {"deploy": pace}, "experimental": {"exec": SLEEPS}}
    definition = {"env": {"A": "2"}, "deploy": {"wait_timeout": "60s"}, **own}
    body = CreateDeployRequest(definition=definition, image=HELLO)
    return await client.call(CREATE_DEPLOY, params=AppParams(app_name="shop"), body=body)


@pytest.mark.long(reason="a host is lost; the simulator of deploys in `make check` loses the hosts of drivers, too")
async def test_a_deploy_goes_on_at_another_node_when_its_home_is_lost(tmp_path: Path) -> None:
    with three_hosts(tmp_path) as hosts:
        home, second, third = hosts
        for each in (second, third):
            assert each.join(home.node).returncode == 0
            each.node.start()
        await met(hosts)
        async with home.node.client() as client:
            shop = await Shop(client, "shop").open()
            _, *others = await _machines(shop, hosts)
            begun = await _deploy(client)
            assert begun.status == "running" and len(begun.slots) == 3
        home.node.lose()
        async with third.node.client() as client:

            async def over() -> DeployInfo | None:
                found = await _shown(client)
                return found if found is not None and found.ended_at is not None else None

            ended = await eventually(over, 2 * WITHIN_S)
            assert ended is not None and ended.status == "complete", ended
            assert {slot.state for slot in ended.slots if slot.machine_id in others} == {"done"}
            releases = [(await Shop(client, "shop").get(each)).config for each in others]
            assert [((each.metadata if each else None) or {})["fly_release_version"] for each in releases] == ["1", "1"]
        home.node.start()
        async with home.node.client() as client:

            async def heard() -> bool:
                found = await _shown(client)
                return found is not None and found.status == "complete"

            await eventually(heard, WITHIN_S)
