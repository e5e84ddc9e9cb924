"""Logs of apps on real nodes: a follower sees every line once, whichever daemon or broker is killed."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hawker.api.client import Client
from hawker.api.contract.app import CREATE_APP, AppParams, CreateAppRequest
from hawker.api.contract.app_log import APP_LOG_PAGE, AppLogPageQuery
from hawker.api.contract.machine import CREATE_MACHINE, CreateMachineRequest, Machine
from hawker.errors import DeadlineExceeded, HawkerError, Unavailable
from hawker.log import Secret
from hawker.sim.node.sim_worker import config_of
from tests.e2e.running_node import HAWKER, RunningNode
from tests.e2e.test_broker_process import HOST, broker
from tests.e2e.test_fleet_join import peer_port
from tests.e2e.test_process_driver import shell
from tests.waiting import eventually, wait_for

pytestmark = pytest.mark.anyio
WITHIN_S = 150.0
HERE = AppParams(app_name="shop")
LINES = 1500
COUNTS = (
    f"i=0; while [ $i -lt {LINES} ]; do echo line $i; i=$((i+1)); [ $((i % 10)) = 0 ] && sleep 0.01; done; printf end"
)


@contextmanager
def node_at(place: Path) -> Iterator[RunningNode]:
    """At a port that stays its own over daemons."""
    node = RunningNode(place, "--driver", "process", "--listen", f"127.0.0.1:{peer_port('127.0.0.1')}")
    try:
        yield node.start()
    finally:
        strays = node.withdraw()
    assert not strays


async def _order(client: Client, script: str, **fields: object) -> Machine:
    order = CreateMachineRequest(config=config_of(**shell(script), **fields))
    return await client.call(CREATE_MACHINE, params=HERE, body=order)


@pytest.mark.slow
async def test_a_follower_sees_every_line_once_over_a_killed_daemon(tmp_path: Path) -> None:
    """The machine goes with its last line, and its log stays."""
    with node_at(tmp_path) as node:
        async with node.client() as client:
            await client.call(CREATE_APP, body=CreateAppRequest(name="shop"))
            machine = await _order(client, COUNTS, auto_destroy=True, restart={"policy": "no"})
        said = tmp_path / "said"
        _follow_over_a_kill(node, said)
        lines = [line.split(" | ", 1)[1] for line in said.read_text().splitlines()]
        assert lines == [*(f"line {number}" for number in range(LINES)), "end"]
        async with node.client() as client:
            await eventually(lambda: _destroyed(client, machine.id), WITHIN_S)
            page = await client.call(APP_LOG_PAGE, params=HERE, query=AppLogPageQuery(tail=3, machine=machine.id))
        assert [line.text for line in page.lines][:2] == ["end", "Main child exited normally with code: 0"]


def _follow_over_a_kill(node: RunningNode, said: Path) -> None:
    """With the command, into the file `said`, until the machine has written its last line."""
    environment = node.environment | {"HAWKER_URL": node.url, "HAWKER_TOKEN": node.token}
    with said.open("wb") as out:
        following = subprocess.Popen([HAWKER, "logs", "-a", "shop", "-f"], env=environment, stdout=out)
    try:
        wait_for(lambda: "line 100\n" in said.read_text(), WITHIN_S)
        node.kill()
        node.start()
        wait_for(lambda: said.read_text().endswith("end\n"), WITHIN_S)
    finally:
        following.kill()
        following.wait()


async def _destroyed(client: Client, machine_id: str) -> bool:
    query = AppLogPageQuery(tail=1, machine=machine_id)
    page = await client.call(APP_LOG_PAGE, params=HERE, query=query)
    return page.lines[-1].text == "machine destroyed (destroy)"


@pytest.mark.slow
async def test_a_token_of_a_broker_that_was_killed_goes_on_at_another(tmp_path: Path) -> None:
    node = RunningNode(tmp_path, "--driver", "process", "--advertise", HOST, "--peer-port", str(peer_port(HOST)))
    try:
        node.start()
        with broker(node) as (first, first_url), broker(node) as (_, second_url):
            token = Secret(node.token)
            async with Client(first_url, token) as one, Client(second_url, token) as other:
                await eventually(lambda: _makes_app(one), WITHIN_S)
                await _order(one, COUNTS, restart={"policy": "no"})
                found, place = await _followed(one, "", 500)
                first.kill()
                more, _ = await _followed(other, place, LINES + 1 - len(found))
        assert found + more == [*(f"line {number}" for number in range(LINES)), "end"]
    finally:
        strays = node.withdraw()
    assert not strays


async def _makes_app(client: Client) -> bool:
    try:
        await client.call(CREATE_APP, body=CreateAppRequest(name="shop"))
    except HawkerError as error:
        return "already been taken" in str(error)
    return True


async def _followed(client: Client, place: str, least: int) -> tuple[list[str], str]:
    """Output until there are so many lines of it, and the place behind them."""
    found = list[str]()
    while len(found) < least:
        try:
            query = AppLogPageQuery(after=place, wait_s=5.0)
            page = await client.call(APP_LOG_PAGE, params=HERE, query=query)
        except (Unavailable, DeadlineExceeded):
            continue
        found += [line.text for line in page.lines if line.provider == "app"]
        place = page.next
    return found, place
