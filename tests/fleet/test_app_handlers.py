"""What nodes ask a worker about apps and what it has."""

from typing import Any

import pytest

from hawker.api.contract.app import AppParams
from hawker.api.contract.machine import DELETE_MACHINE, DeleteMachineQuery, MachineParams
from hawker.api.contract.market import OrderedApp
from hawker.api.contract.owner import (
    CARRY_APP,
    GET_OWNER,
    KEEP_NAME,
    RELEASE_NAME,
    SETTLE_HOME,
    HomeRequest,
    NameRequest,
    OwnerParams,
    ReleaseQuery,
)
from hawker.api.in_process import InProcessCaller
from hawker.catalog.contract import ResultTable, Statement
from hawker.errors import Conflict, NotFound, NotServed, Unprocessable
from hawker.gossip.contract import Fate, Member
from hawker.ids import NodeId
from hawker.machine import State
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.up.wiring import node_handlers
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time

NAME = AppParams(app_name="shop")


def owner(kind: Any, name: str) -> OwnerParams:
    return OwnerParams(kind=kind, id=name)


async def test_a_node_has_the_apps_of_its_records_also_for_a_while_after_the_end(worker: SimWorker) -> None:
    machine = await worker.stopped()
    volume = (await worker.volume("data")).id
    for mine in (owner("machine", machine), owner("volume", volume)):
        found = await worker.api.call(GET_OWNER, params=mine)
        assert (found.node, found.app) == (worker.parts.node.id, APP)
    params = MachineParams(app_name=APP, machine_id=machine)
    await worker.api.call(DELETE_MACHINE, params=params, query=DeleteMachineQuery(force=True))
    await worker.reaches(machine, State.DESTROYED)
    assert (await worker.api.call(GET_OWNER, params=owner("machine", machine))).app == APP


@pytest.mark.parametrize("kind", ["machine", "volume", "snapshot"])
async def test_a_node_says_which_apps_it_does_not_have(worker: SimWorker, kind: str) -> None:
    with pytest.raises(NotFound, match=f"{kind} not found"):
        await worker.api.call(GET_OWNER, params=owner(kind, "../x"))


class Told:
    """A catalog in which everything is at a neighbour."""

    async def query(self, statement: Statement, *, timeout_s: float = 60.0) -> ResultTable:
        return ResultTable(columns=("node", "app"), rows=(("0000000b", APP),) if statement.params == ("here",) else ())


async def test_its_catalog_speaks_for_its_neighbours(worker: SimWorker) -> None:
    handlers = node_handlers(worker.parts, catalog=Told())  # type: ignore[arg-type]  # as much as is asked
    api = InProcessCaller(handlers, worker.parts.deps.clock, "ann")
    assert (await api.call(GET_OWNER, params=owner("machine", "here"))).node == "0000000b"
    for missing in (owner("machine", "there"), owner("snapshot", "here")):
        with pytest.raises(NotFound):
            await api.call(GET_OWNER, params=missing)


async def test_a_name_is_kept_for_who_came_first_and_given_on_by_name(worker: SimWorker) -> None:
    async def keep(claim: str, instead_of: str | None = None) -> str:
        body = NameRequest(claim=claim, home="0000000a", instead_of=instead_of)
        return (await worker.api.call(KEEP_NAME, params=NAME, body=body)).claim

    assert [await keep("a"), await keep("b"), await keep("b", "x"), await keep("b", "a")] == ["a", "a", "a", "b"]
    await worker.api.call(RELEASE_NAME, params=NAME, query=ReleaseQuery(claim="a"))
    assert await keep("c") == "b"
    await worker.api.call(RELEASE_NAME, params=NAME, query=ReleaseQuery(claim="b"))
    assert await keep("c") == "c"


async def test_a_name_of_an_app_that_is_here_is_taken(worker: SimWorker) -> None:
    body = NameRequest(claim="a", home="0000000a")
    kept = await worker.api.call(KEEP_NAME, params=AppParams(app_name=APP), body=body)
    assert kept.taken and kept.age_s == 0
    with pytest.raises(Unprocessable):
        await worker.api.call(KEEP_NAME, params=AppParams(app_name="../x"), body=body)


async def test_a_node_that_is_alone_takes_no_apps(worker: SimWorker) -> None:
    app = OrderedApp(id="1", number=1, name="shop", org="personal", network="default", network_id=1, created_at=0)
    with pytest.raises(NotServed):
        await worker.api.call(CARRY_APP, params=NAME, body=app)


class Alive:
    """A fleet in which the old home lives."""

    members = (Member(node=NodeId("0000000b"), fate=Fate.ALIVE, address="", incarnation=1),)


async def test_a_node_that_lives_stays_the_home_of_its_apps(worker: SimWorker) -> None:
    with pytest.raises(NotServed):
        await worker.api.call(SETTLE_HOME, params=AppParams(app_name=APP), body=HomeRequest())
    handlers = node_handlers(worker.parts, bundler=object(), fleet=Alive())  # type: ignore[arg-type]  # as much as is asked
    api = InProcessCaller(handlers, worker.parts.deps.clock, "ann")
    with pytest.raises(Conflict, match="node 0000000b, the home of app 'shop', lives"):
        await api.call(SETTLE_HOME, params=NAME, body=HomeRequest(old="0000000b", take=True))
