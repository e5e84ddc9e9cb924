"""Brokers as processes beside a real node: each answers for the node, and one that is killed takes nothing with it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hawker.api.client import Client
from hawker.api.contract.app import CREATE_APP, AppParams, CreateAppRequest
from hawker.api.contract.machine import CREATE_MACHINE, LIST_MACHINES, CreateMachineRequest
from hawker.errors import HawkerError
from hawker.log import Secret
from hawker.sim.node.sim_worker import config_of
from tests.e2e.running_node import HAWKER, RunningNode
from tests.e2e.test_fleet_join import two_ports
from tests.e2e.test_process_driver import shell
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

HOST = "127.0.0.6"
WITHIN_S = 150.0
HERE = AppParams(app_name="shop")


@contextmanager
def broker(node: RunningNode) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    command = [HAWKER, "broker", "--data-dir", str(node.data_dir), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, env=node.environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().removeprefix("ready ").strip()
        finally:
            process.kill()


async def test_an_order_is_found_again_by_another_broker_once_the_first_was_killed(tmp_path: Path) -> None:
    node = RunningNode(tmp_path, "--driver", "process", "--advertise", HOST, "--peer-port", str(two_ports(HOST)))
    try:
        node.start()
        order = CreateMachineRequest(config=config_of(**shell("sleep 1000")))
        with broker(node) as (first, first_url), broker(node) as (_, second_url):
            token = Secret(node.token)
            async with Client(first_url, token) as one, Client(second_url, token) as other:
                await eventually(lambda: _knows_the_app(one), WITHIN_S)
                made = await one.call(CREATE_MACHINE, params=HERE, body=order, idempotency_key="the same")
                first.kill()
                again = await other.call(CREATE_MACHINE, params=HERE, body=order, idempotency_key="the same")
                listed = (await other.call(LIST_MACHINES, params=HERE)).items
                assert made.id == again.id and [machine.id for machine in listed] == [made.id]
    finally:
        strays = node.withdraw()
    assert not strays


async def _knows_the_app(client: Client) -> bool:
    """Its node has just begun, and may not have told the catalog of itself yet."""
    try:
        await client.call(CREATE_APP, body=CreateAppRequest(name="shop"))
    except HawkerError as error:
        return "already been taken" in str(error)
    return True
