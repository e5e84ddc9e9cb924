from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from hawker.api.caller import Caller
from hawker.api.contract.app import CREATE_APP, AppParams, CreateAppRequest
from hawker.api.contract.machine import CREATE_MACHINE, GET_MACHINE, CreateMachineRequest
from hawker.chaos.tally import APP, CallVerdict, MeasuredCalls, SoakTally, outcome_of, params_of, quantile
from hawker.errors import Conflict, DeadlineExceeded, Fault, HawkerError, NotFound, RateLimited, Unavailable
from hawker.ids import MachineId
from hawker.runtime.fake_host import FakeFault as HostFault
from hawker.sim.node.sim_worker import SimWorker, config_of
from hawker.sim.node.world import MemoryWorld
from tests.worker.hourglass import in_virtual_time


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (NotFound("machine not found"), CallVerdict.REFUSED),
        (Conflict("busy"), CallVerdict.REFUSED),
        (RateLimited("slow down"), CallVerdict.REFUSED),
        (Unavailable("the store cannot be used now"), CallVerdict.UNAVAILABLE),
        (Fault("the connection to http://127.0.0.1:1 was lost: gone"), CallVerdict.LOST),
        (DeadlineExceeded("no answer from http://127.0.0.1:1 in time"), CallVerdict.LOST),
        (DeadlineExceeded("machine failed to reach desired state, started, currently stopped"), CallVerdict.REFUSED),
        (Fault("internal error, request id 7"), CallVerdict.INTERNAL),
    ],
    ids=str,
)
def test_an_error_is_an_outcome(error: HawkerError, outcome: CallVerdict) -> None:
    assert outcome_of(error) is outcome


def test_only_good_answers_have_a_latency() -> None:
    tally = SoakTally()
    tally.called("start", CallVerdict.OK, 0.5)
    tally.called("start", CallVerdict.LOST, 9.0)
    assert tally.calls["start"] == {CallVerdict.OK: 1, CallVerdict.LOST: 1}
    assert tally.latencies_ms["start"] == [500.0]


def test_quantiles() -> None:
    assert quantile([], 0.5) == 0
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile(list(range(100)), 0.99) == 99 and quantile([5.0], 0.99) == 5.0


pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time
NOBODY = MachineId("00000000000000")


class Node:
    def __init__(self, client: Caller) -> None:
        self.client = client
        self.noted: list[str] = []

    def note(self, what: str) -> None:
        self.noted.append(what)


class Broken:
    """Answers every call with one error."""

    def __init__(self, error: HawkerError) -> None:
        self._error = error

    async def call(self, *_: Any, **__: Any) -> Any:
        raise self._error


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[SimWorker]:
    async with MemoryWorld(tmp_path).open() as worker:
        await worker.api.call(CREATE_APP, body=CreateAppRequest(name=APP))
        yield worker


def calls_of(client: Caller, worker: SimWorker) -> tuple[MeasuredCalls, Node, SoakTally]:
    node, tally = Node(client), SoakTally()
    return MeasuredCalls(node, worker.parts.deps.clock, tally), node, tally


async def test_a_good_answer_and_a_refusal_are_counted_and_no_finding(worker: SimWorker) -> None:
    calls, node, tally = calls_of(worker.api, worker)
    assert (await calls.machines()).value == {}
    refused = await calls.call(GET_MACHINE, params=params_of(NOBODY))
    assert refused.outcome is CallVerdict.REFUSED and refused.changed_nothing and not refused.ok
    assert tally.calls == {"list_machines": {CallVerdict.OK: 1}, "get_machine": {CallVerdict.REFUSED: 1}}
    assert node.noted == []


@pytest.mark.parametrize(
    ("error", "outcome", "findings"),
    [
        (Unavailable("the store cannot be used now"), CallVerdict.UNAVAILABLE, 0),
        (Fault("the connection to http://127.0.0.1:1 was lost: gone"), CallVerdict.LOST, 0),
        (Fault("internal error, request id 7"), CallVerdict.INTERNAL, 1),
    ],
    ids=["unavailable", "lost", "internal"],
)
async def test_only_an_error_without_a_word_for_it_is_a_finding(
    worker: SimWorker, error: HawkerError, outcome: CallVerdict, findings: int
) -> None:
    calls, node, _ = calls_of(cast(Caller, Broken(error)), worker)
    reply = await calls.call(GET_MACHINE, params=params_of(NOBODY))
    assert (reply.outcome, reply.error, len(node.noted)) == (outcome, error, findings)
    assert reply.changed_nothing == (outcome is CallVerdict.UNAVAILABLE)


async def test_a_machine_that_could_not_be_launched_is_told_from_one_that_is_lost(worker: SimWorker) -> None:
    calls, _, _ = calls_of(worker.api, worker)
    worker.host.script("start", *[HostFault(error=OSError("no room"), after=True)] * 3)
    body = CreateMachineRequest(config=config_of())
    made = await calls.call(CREATE_MACHINE, params=AppParams(app_name=APP), body=body)
    assert made.value is not None
    await worker.at_rest()
    assert await calls.taken_back(MachineId(made.value.id))
    assert not await calls.taken_back(NOBODY)
