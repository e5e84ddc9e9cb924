"""Runs are found wherever they are."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hawker.api.contract.run import ABORT_RUN, GET_RUN, LIST_RUNS, RETRY_RUN, RunParams
from hawker.errors import NotFound, Unavailable, WrongState
from tests.gateway.town import FAR, HERE, Broker, Client, Town, town_of
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with town_of(tmp_path, HERE, FAR) as town:
        await client(town).app()
        await client(town).machine(region=FAR)
        yield town


def client(town: Town) -> Client:
    return Broker(town, next(iter(town.hosts.values()))).api


async def test_a_run_of_another_node_is_shown_and_handled_there(town: Town) -> None:
    api = client(town)
    runs = (await api.call(LIST_RUNS)).runs
    for run in runs:
        params = RunParams(run_id=run.id)
        assert (await api.call(GET_RUN, params=params)).id == run.id
        for route in (RETRY_RUN, ABORT_RUN):
            with pytest.raises(WrongState):
                await api.call(route, params=params)
    assert runs


async def test_a_run_that_nobody_has_is_not_found_only_when_all_were_asked(town: Town) -> None:
    params = RunParams(run_id="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    with pytest.raises(NotFound):
        await client(town).call(GET_RUN, params=params)
    _, far = town.hosts.values()
    far.cut = True
    with pytest.raises(Unavailable, match=far.id):
        await client(town).call(ABORT_RUN, params=params)
