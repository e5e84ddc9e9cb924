"""Calls of an earlier coordinator change nothing."""

from typing import Any

import anyio
import pytest

from hawker.api.contract.body import Ok
from hawker.api.contract.deploy import ANNOUNCE_TERM, AnnounceTermRequest, RegisterParams
from hawker.api.contract.machine import MachineParams
from hawker.api.contract.machine_operation import CORDON_MACHINE
from hawker.api.handlers import Handlers
from hawker.api.in_process import InProcessCaller
from hawker.api.route import Call
from hawker.deploys.term_fence import TermFence, written_term
from hawker.errors import BadRequest, WrongState
from hawker.sim.harness.loop import LoopClock
from hawker.store.memory_store import MemoryStore
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time

AT = MachineParams(app_name="shop", machine_id="m")


class Fenced:
    """A node that cordons in so many seconds."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.changed: list[str | None] = []
        clock, handlers = LoopClock(), Handlers()

        async def cordon(call: Call[Any, Any, Any]) -> Ok:
            await clock.sleep(takes_s)
            self.changed.append(call.deploy_term)
            return Ok(ok=True)

        fence = TermFence(MemoryStore(), clock)
        handlers.add(fence)
        handlers.on(CORDON_MACHINE, cordon)
        handlers.wrap(CORDON_MACHINE, fence.guard)
        self._caller = InProcessCaller(handlers, clock, "peer")

    async def cordon(self, term: str | None = None) -> None:
        await self._caller.call(CORDON_MACHINE, params=AT, deploy_term=term)

    async def announce(self, version: int, term: int) -> None:
        params = RegisterParams(app_id="shop", version=str(version))
        await self._caller.call(ANNOUNCE_TERM, params=params, body=AnnounceTermRequest(term=term))


async def test_an_earlier_term_is_refused_once_a_later_one_is_announced() -> None:
    node = Fenced()
    await node.cordon(written_term(1, 1))
    await node.announce(1, 2)
    await node.announce(1, 1)
    with pytest.raises(WrongState):
        await node.cordon(written_term(1, 1))
    await node.cordon(written_term(1, 2))
    await node.cordon(written_term(2, 1))
    await node.cordon()
    assert node.changed == ["1/1", "1/2", "2/1", None]


async def test_an_announcement_waits_for_what_an_earlier_term_has_under_way() -> None:
    node = Fenced(takes_s=2.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(node.cordon, "1/1")
        await LoopClock().sleep(1)
        await node.announce(1, 2)
        assert node.changed == ["1/1"]


@pytest.mark.parametrize("text", ["", "1", "1/x", "-1/2", "9" * 40 + "/1"])
async def test_a_term_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        await Fenced().cordon(text)
