"""A node alone is a fleet of one: its orders go through the market, everything else to its worker."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hawker.api.contract.app import AppParams
from hawker.api.contract.machine import CREATE_MACHINE, LIST_MACHINES, CreateMachineRequest, ListMachinesQuery, Machine
from hawker.api.contract.market import PLACE, PlaceAnswer, PlaceRequest, Verdict
from hawker.api.handlers import Handlers
from hawker.api.in_process import InProcessCaller
from hawker.api.routes import ROUTES
from hawker.clock import ManualClock
from hawker.errors import CannotStart, NoRoom, NotFound, Unprocessable
from hawker.market.preferences import preferences
from hawker.place import Place
from hawker.record.node import NODE
from hawker.settings import Settings
from hawker.sim.node.sim_worker import APP, SimWorker, config_of
from hawker.sim.node.world import MemoryWorld
from hawker.up.servers import bind_for_edge, handlers_alone, open_doors
from hawker.up.wiring import node_handlers
from tests.worker.hourglass import in_virtual_time

anyio_backend = in_virtual_time
pytestmark = pytest.mark.anyio


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[SimWorker]:
    async with MemoryWorld(tmp_path).open() as worker:
        await worker.app()
        yield worker


def _api(worker: SimWorker) -> InProcessCaller:
    own = node_handlers(worker.parts)
    TokensElsewhere().bind(own)
    return InProcessCaller(handlers_alone(worker.parts, own, preferences()), worker.parts.deps.clock, "ann")


class TokensElsewhere:
    """Tokens are not asked about here."""

    def bind(self, handlers: Handlers) -> None:
        for route in ROUTES:
            if route is not CREATE_MACHINE and handlers.missing((route,)):
                handlers._bind(route, lambda call: None)


async def _create(worker: SimWorker, *, key: str | None = None, **given: Any) -> Machine:
    body = CreateMachineRequest(config=config_of(), **given)
    params = AppParams(app_name=APP)
    return await _api(worker).call(CREATE_MACHINE, params=params, body=body, idempotency_key=key)


async def test_order_becomes_a_machine_that_the_worker_lists(worker: SimWorker) -> None:
    made = await _create(worker, name="web")
    (listed,) = (
        await _api(worker).call(LIST_MACHINES, params=AppParams(app_name=APP), query=ListMachinesQuery())
    ).items
    assert listed.id == made.id and listed.name == "web"


async def test_order_with_a_key_is_filled_once(worker: SimWorker) -> None:
    made = await _create(worker, key="one")
    assert (await _create(worker, key="one")).id == made.id
    assert len(worker.machines()) == 1


async def test_cordoned_node_refuses_orders(worker: SimWorker) -> None:
    record = msgspec.structs.replace(worker.parts.node, cordoned=True)
    await worker.store.write(lambda tx: tx.put(NODE, "self", record))
    with pytest.raises(NoRoom):
        await _create(worker)
    assert worker.machines() == []


async def test_order_of_an_app_that_is_not_there_is_refused(worker: SimWorker) -> None:
    body, params = CreateMachineRequest(config=config_of()), AppParams(app_name="other")
    with pytest.raises(NotFound, match="app not found"):
        await _api(worker).call(CREATE_MACHINE, params=params, body=body)


async def _place(worker: SimWorker, *, key: str | None = None, memory_mb: int = 256, **given: Any) -> PlaceAnswer:
    guest = {"cpu_kind": "shared", "cpus": 1, "memory_mb": memory_mb}
    machine = CreateMachineRequest(config=config_of(guest=guest), region=given.pop("region", None))
    return await _api(worker).call(PLACE, body=PlaceRequest(app=APP, machine=machine, **given), idempotency_key=key)


async def test_a_dry_run_shows_the_bid_and_makes_nothing(worker: SimWorker) -> None:
    answer = await _place(worker, dry_run=True)
    assert (answer.filled, answer.machines, answer.refusal) == (1, (), None)
    (bid,) = answer.bids
    assert bid.verdict is Verdict.BEST and {part.name for part in bid.parts} >= {"cpu", "memory", "disk", "image"}
    assert worker.machines() == []


async def test_several_are_filled_at_once_and_the_same_key_finds_them_again(worker: SimWorker) -> None:
    answer = await _place(worker, count=3, key="three")
    assert answer.filled == 3 and len({machine.id for machine in answer.machines}) == 3
    again = await _place(worker, count=3, key="three")
    assert [machine.id for machine in again.machines] == [machine.id for machine in answer.machines]
    assert len(worker.machines()) == 3


async def test_an_order_that_does_not_fit_is_reported_and_the_rest_is_filled(worker: SimWorker) -> None:
    answer = await _place(worker, count=6)
    assert answer.filled == len(worker.machines()) == 4
    assert answer.refusal is not None and answer.refusal.shortfall == {"memory_mb": 256}


async def test_all_or_nothing_leaves_nothing(worker: SimWorker) -> None:
    with pytest.raises(NoRoom):
        await _place(worker, count=6, all_or_nothing=True)
    assert worker.machines() == []


async def test_an_order_that_cannot_be_placed_is_refused_with_the_reason(worker: SimWorker) -> None:
    with pytest.raises(NoRoom, match="no host in region 'mad', the nearest is 'local'"):
        await _place(worker, region="mad")
    with pytest.raises(Unprocessable, match=r"config.guest.memory_mb must be between"):
        await _place(worker, memory_mb=1)
    shown = await _place(worker, memory_mb=8192, dry_run=True)
    assert shown.refusal is not None and shown.bids[0].why == "short of 7168 MiB of memory"


@pytest.mark.parametrize(
    ("flag", "given"),
    [
        ("--machine-api", {"machine_api": True}),
        (
            "--api-hostname",
            {"api_hostname": "api.example.com", "acme_directory": "https://ca/", "edge_addresses": ("::1",)},
        ),
    ],
    ids=["machines", "edge"],
)
def test_node_that_answers_no_clients_answers_no_machines_and_nobody_through_the_edge(
    tmp_path: Path, flag: str, given: dict[str, Any]
) -> None:
    settings = Settings(data_dir=tmp_path, advertise="127.0.0.1", peer_port=1, **given)
    with pytest.raises(CannotStart, match=f"{flag} is for a node that answers clients"):
        open_doors(settings, Place(tmp_path), ManualClock(), None, public=False)
    assert not list(tmp_path.iterdir())


def test_a_place_for_the_edge_that_cannot_be_had_is_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "edge").write_text("")
    with pytest.raises(CannotStart, match=r"cannot listen at .*api\.sock"):
        bind_for_edge(tmp_path / "edge" / "api.sock", None)
