"""A node as it comes: calls that come too often are refused, and whoever uses `hawker` never sees it."""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import pytest

from hawker.api.client import Client
from hawker.api.contract.app import CREATE_APP, GET_APP, LIST_APPS, AppParams, CreateAppRequest
from hawker.api.contract.machine import LIST_MACHINES
from hawker.api.contract.node import METRICS, NODE_INFO
from hawker.api.contract.secret import LIST_SECRETS
from hawker.errors import RateLimited
from tests.e2e.command_line import CommandLine
from tests.e2e.running_node import RunningNode, running_node

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
SHOP = AppParams(app_name="shop")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """With no setting that would switch anything off."""
    place = tmp_path_factory.mktemp("node")
    with running_node(place, "--ephemeral", "--driver", "process", limited=True) as node:
        yield node


@pytest.fixture
async def client(node: RunningNode) -> AsyncIterator[Client]:
    async with node.client() as client:
        if not [app for app in (await client.call(LIST_APPS)).apps if app.name == "shop"]:
            await client.call(CREATE_APP, body=CreateAppRequest(name="shop"))
        yield client


async def test_calls_that_come_too_often_are_refused_and_counted(client: Client) -> None:
    """The fourth at once; on a slow host they come further apart, and one of many is the one too many."""
    with pytest.raises(RateLimited, match=r"^rate limit exceeded$"):
        for _ in range(100):
            await client.call(GET_APP, params=SHOP)
    metrics = await client.call(METRICS)
    counted = re.search(
        r'^hawker_api_rate_limited_total{method="GET",route="/v1/apps/{app_name}"} (\d+)', metrics, re.M
    )
    assert counted and float(counted[1]) >= 1


async def test_another_action_has_its_own_bucket_and_our_own_calls_have_none(client: Client) -> None:
    with suppress(RateLimited):
        for _ in range(4):
            await client.call(LIST_MACHINES, params=SHOP)
    await client.call(LIST_SECRETS, params=SHOP)
    for _ in range(30):
        await client.call(NODE_INFO)


async def test_a_script_of_commands_waits_for_its_turn(client: Client, node: RunningNode) -> None:
    hawker = CommandLine(node.environment | {"HAWKER_DATA_DIR": str(node.data_dir)})
    for _ in range(6):
        hawker.say("secrets", "list", "-a", "shop")
