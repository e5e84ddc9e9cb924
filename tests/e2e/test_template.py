"""A node behind its template: killed daemons have successors at the same address, and machines do not notice."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.api.contract.node import NODE_INFO
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.shop import HELLO, Shop
from tests.waiting import eventually, wait_for

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with running_node(tmp_path / "node", "--driver", "process", "--template") as node:
        yield node


def _daemons(node: RunningNode) -> list[int]:
    """The template's children: one, or none between two."""
    return [int(child) for child in Path(f"/proc/{node.pid}/task/{node.pid}/children").read_text().split()]


def _daemon(node: RunningNode) -> int:
    (daemon,) = _daemons(node)
    return daemon


async def test_killed_daemon_is_replaced_at_its_address_and_machines_go_on(node: RunningNode) -> None:
    url = node.url
    async with node.client() as client:
        shop = await Shop(client, "shop").open()
        machine = await shop.run({"image": HELLO, "init": {"exec": ["/bin/sh", "-c", "exec sleep 1000"]}})
        first = _daemon(node)
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: _daemons(node) not in ([], [first]))
        await client.call(NODE_INFO)  # waits at the address that the template holds
        assert set(node.output.split()) == {"ready", url}
        assert (await shop.get(machine.id)).instance_id == machine.instance_id
        assert (await shop.get(machine.id)).state == "started"
        await shop.close()
    node.stop()


@pytest.mark.long(reason="a node of its own; tests/up/test_template.py stops templates")
def test_template_stops_as_a_daemon_does(node: RunningNode) -> None:
    daemon = _daemon(node)
    node.stop()
    assert not Path(f"/proc/{daemon}").exists()


@pytest.mark.long(reason="a node of its own; tests/up/test_template.py kills templates, the test above a daemon")
def test_killed_template_leaves_the_directory_to_the_next_node(node: RunningNode) -> None:
    daemon = _daemon(node)
    node.kill()
    wait_for(lambda: not Path(f"/proc/{daemon}").exists())
    assert _daemon(node.start()) != daemon
