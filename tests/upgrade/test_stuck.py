"""A run that an older version left at a step which this one does not have: visible, an operator's, never skipped."""

import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from hawker.api.contract.run import ABORT_RUN, RETRY_RUN, RunParams
from hawker.errors import HawkerError
from hawker.fsm import journal
from hawker.fsm.run import Run
from hawker.store.contract import Tx
from hawker.store.sqlite import SqliteStore
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.shop import HELLO, Shop

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

WITHIN_S = 90
OTHER = pytest.mark.long(reason="two more reasons to be stuck, each with a node of its own")


async def interrupted(node: RunningNode) -> None:
    """A create that its daemon left at its last step."""
    node.kill()
    node.launch(failpoint="create.launch.before").wait_ready()
    async with node.client() as client:
        shop = await Shop(client, "older").open()
        with suppress(HawkerError):
            await shop.order({"image": HELLO, "init": {"exec": ["/bin/sh", "-c", "exec sleep 600"]}})
    assert node.ended(WITHIN_S) == -signal.SIGKILL


async def rewritten(node: RunningNode, change: Callable[[Run], Run]) -> Run:
    """The one run that is open, as another version would have written it."""
    store = SqliteStore(node.data_dir / "hawker.db")
    (before,) = journal.open_runs(store)
    await store.write(partial(_put, run=change(before)))
    await store.close()
    return before


def _put(tx: Tx, run: Run) -> None:
    tx.put(journal.OPEN, run.id, run)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param(
            lambda run: replace(run, step="bake", definition="older"),
            "its step bake is no longer in flow create",
            id="step gone",
        ),
        pytest.param(
            lambda run: replace(run, flow="conjure", definition="older"),
            "its flow conjure no longer exists",
            id="flow gone",
            marks=OTHER,
        ),
        pytest.param(
            lambda run: replace(run, input=b"\x07", definition="older"),
            "its input is no longer what flow create takes",
            id="input changed",
            marks=OTHER,
        ),
    ],
)
async def test_a_run_this_version_cannot_go_on_with_is_stuck(
    change: Callable[[Run], Run], why: str, tmp_path: Path
) -> None:
    with running_node(tmp_path / "node", "--ephemeral", "--driver", "process") as node:
        await interrupted(node)
        run = await rewritten(node, change)
        node.start()
        async with node.client() as client:
            shop = Shop(client, "older")
            (machine,) = await shop.machines()
            (seen,) = await shop.runs(machine.id)
            assert (seen.id, seen.state) == (run.id, "stuck")
            assert seen.error is not None and seen.error.startswith(why)
            assert machine.state in ("created", "starting"), "nothing was skipped"
        node.kill()
        await rewritten(node, lambda _: run)
        node.start()
        async with node.client() as client:
            await Shop(client, "older").wait(machine.id, "started")


async def test_an_operator_gives_it_up_and_what_it_did_is_undone(tmp_path: Path) -> None:
    with running_node(tmp_path / "node", "--ephemeral", "--driver", "process") as node:
        await interrupted(node)
        run = await rewritten(node, lambda run: replace(run, step="bake", definition="older"))
        node.start()
        async with node.client() as client:
            shop = Shop(client, "older")
            (machine,) = await shop.machines()
            await client.call(RETRY_RUN, params=RunParams(run_id=run.id))
            assert [seen.state for seen in await shop.runs(machine.id)] == ["stuck"]
            await client.call(ABORT_RUN, params=RunParams(run_id=run.id))
            await shop.gone(machine.id)
