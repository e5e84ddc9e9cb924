"""Brokers as processes beside a real node: each answers for the node, and one that is killed takes nothing with it."""

import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from hawker.api.client import Client
from hawker.api.contract.app import CREATE_APP, AppParams, CreateAppRequest
from hawker.api.contract.machine import CREATE_MACHINE, LIST_MACHINES, CreateMachineRequest
from hawker.errors import HawkerError
from hawker.log import Secret
from hawker.sim.node.sim_worker import config_of
from tests.e2e.running_node import HAWKER, RunningNode
from tests.e2e.test_fleet_join import peer_port
from tests.e2e.test_process_driver import shell
from tests.waiting import eventually, wait_for

pytestmark = pytest.mark.anyio

HOST = "127.0.0.6"
WITHIN_S = 150.0
HERE = AppParams(app_name="shop")


def is_told(node: RunningNode) -> bool:
    """Whether the node has told its catalog who it is and what it has, which a broker has to find there: it is ready
    before."""
    with closing(sqlite3.connect(f"file:{node.place.catalog}?mode=ro", uri=True)) as catalog:
        asked = "SELECT 1 FROM nodes JOIN capacity USING (node) WHERE node = ?"
        return bool(catalog.execute(asked, (node.node_id,)).fetchall())


@contextmanager
def broker(node: RunningNode, *before_it: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    wait_for(lambda: is_told(node))
    command = [*before_it, HAWKER, "broker", "--data-dir", str(node.data_dir), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, env=node.environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().removeprefix("ready ").strip()
        finally:
            process.kill()


async def test_an_order_is_found_again_by_another_broker_once_the_first_was_killed(tmp_path: Path) -> None:
    node = RunningNode(tmp_path, "--driver", "process", "--advertise", HOST, "--peer-port", str(peer_port(HOST)))
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


_NOBODY, _DAC_OVERRIDE = 65534, 1
_HELD = "+dac_override"
_ALONE = """
set -e; mount --bind "$0" "$0"; mount --bind "$0/catalog.db-shm" "$0/catalog.db-shm"; mount -o remount,ro,bind "$0"
exec "$@"
"""
"""Runs a command in whose view the directory cannot be written, but for one file."""
_UNPRIVILEGED = (
    *("setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups", "--no-new-privs"),
    *(f"--inh-caps=-all,{_HELD}", f"--ambient-caps={_HELD}", f"--bounding-set=-all,{_HELD}"),
)


@pytest.mark.root
async def test_a_broker_of_a_user_without_rights_serves_a_directory_it_cannot_write(tmp_path: Path) -> None:
    """As `deploy/hawker-broker.service` runs it, also over a restart of its node."""
    node = RunningNode(tmp_path, "--driver", "process", "--advertise", HOST, "--peer-port", str(peer_port(HOST)))
    try:
        node.start()
        before_it = ("unshare", "--mount", "sh", "-c", _ALONE, str(node.data_dir), *_UNPRIVILEGED)
        with broker(node, *before_it) as (process, url):
            assert _rights(process.pid) == ({str(_NOBODY)}, {1 << _DAC_OVERRIDE})
            async with Client(url, Secret(node.token)) as client:
                await eventually(lambda: _knows_the_app(client), WITHIN_S)
                order = CreateMachineRequest(config=config_of(**shell("sleep 1000")))
                made = await client.call(CREATE_MACHINE, params=HERE, body=order)
                node.stop()
                node.start()
                await eventually(lambda: _lists(client, made.id), WITHIN_S)
    finally:
        strays = node.withdraw()
    assert not strays


def _rights(pid: int) -> tuple[set[str], set[int]]:
    """A process's users and sets of capabilities."""
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return set(status["Uid"].split()), {int(status[held], 16) for held in ("CapPrm", "CapEff", "CapBnd", "CapAmb")}


async def _lists(client: Client, machine_id: str) -> bool:
    try:
        return machine_id in [machine.id for machine in (await client.call(LIST_MACHINES, params=HERE)).items]
    except HawkerError:
        return False
