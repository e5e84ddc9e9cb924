"""A step that kills every daemon that calls it: the run is stuck in the end, and the node is up."""

import signal
from contextlib import suppress
from pathlib import Path

import pytest

from hawker.api.contract.run import RETRY_RUN, RunParams
from hawker.errors import HawkerError
from hawker.fsm.transition import VAIN_RESUMES
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.shop import HELLO, Shop

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.long(
        reason="seven boots; in tests/fsm/test_crash.py as many lives end in one step, and the run is stuck"
    ),
]

DIES_WITHIN_S = 90.0
SLEEPER = {"image": HELLO, "init": {"exec": ["/bin/sh", "-c", "exec sleep 600"]}, "restart": {"policy": "no"}}


async def ordered(node: RunningNode) -> None:
    async with node.client() as client:
        shop = await Shop(client, "poisoned").open()
        with suppress(HawkerError):  # the node may be dead before it can answer
            await shop.order(SLEEPER)


@pytest.mark.parametrize("where", ["create.launch.before", "create.launch.after"])
async def test_a_step_that_kills_every_daemon_does_not_keep_the_node_down(where: str, tmp_path: Path) -> None:
    with running_node(tmp_path / "node", "--ephemeral", "--driver", "process") as node:
        node.kill()
        node.launch(failpoint=where).wait_ready()
        await ordered(node)
        for _ in range(VAIN_RESUMES):
            assert node.ended(DIES_WITHIN_S) == -signal.SIGKILL
            node.launch(failpoint=where)
        assert node.ended(DIES_WITHIN_S) == -signal.SIGKILL
        node.launch(failpoint=where).wait_ready()
        async with node.client() as client:
            shop = Shop(client, "poisoned")
            (machine,) = await shop.machines()
            (run,) = await shop.runs(machine.id)
            assert (run.state, run.step) == ("stuck", "launch")
            assert run.error == "the daemon ended 6 times in a row in step launch, attempt 1"
            assert node.alive
        node.kill()
        node.start()
        async with node.client() as client:
            shop = Shop(client, "poisoned")
            await client.call(RETRY_RUN, params=RunParams(run_id=run.id))
            await shop.wait(machine.id, "started")
