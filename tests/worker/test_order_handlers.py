"""The market's calls between nodes, as they come over HTTP."""

import msgspec
import pytest

from hawker.api.codec import encode_json
from hawker.api.contract.app import AppParams
from hawker.api.contract.machine import CreateMachineRequest, Machine
from hawker.api.contract.market import (
    CANCEL,
    CLAIM,
    EXPORT_APP,
    FILL,
    QUOTE,
    BidAsk,
    BidsRequest,
    CancelQuery,
    ClaimParams,
    ClaimRequest,
    OrderParams,
    OrderRequest,
)
from hawker.api.routes import PEER_ROUTES
from hawker.errors import BadRequest, OrderCancelled
from hawker.machine import State
from hawker.sim.node.sim_worker import APP, SimWorker, config_of
from hawker.worker.bids import MOST_AT_ONCE

pytestmark = pytest.mark.anyio
MACHINE = CreateMachineRequest(config=config_of())


async def fill(worker: SimWorker, key: str = "o", machine: CreateMachineRequest = MACHINE) -> Machine:
    app = await worker.api.call(EXPORT_APP, params=AppParams(app_name=APP))
    return await worker.api.call(FILL, body=OrderRequest(order_id=key, app=app, machine=machine))


async def test_many_asks_are_answered_in_their_order(worker: SimWorker) -> None:
    asks = [msgspec.Raw(encode_json(BidAsk(app=APP, machine=MACHINE, count=count))) for count in (1, 2, 3)]
    bids = (await worker.api.call(QUOTE, body=BidsRequest(asks=(*asks, msgspec.Raw(b"7"))))).bids
    assert [bid.fits for bid in bids] == [1, 2, 3, 0]
    with pytest.raises(BadRequest, match="asks: 65 are more than 64"):
        await worker.api.call(QUOTE, body=BidsRequest(asks=(asks[0],) * (MOST_AT_ONCE + 1)))


async def test_an_order_is_answered_with_the_machine_and_its_lease(worker: SimWorker) -> None:
    made = await fill(worker, machine=msgspec.structs.replace(MACHINE, lease_ttl=60))
    assert made.nonce and made.state is State.CREATED
    assert (await fill(worker, machine=msgspec.structs.replace(MACHINE, lease_ttl=60))).nonce == made.nonce


async def test_a_cancel_says_what_became_of_the_order(worker: SimWorker) -> None:
    made = await fill(worker, "o")
    query = CancelQuery(app_name=APP)
    late = await worker.api.call(CANCEL, params=OrderParams(order_id="o"), query=query)
    assert late.filled is not None and late.filled.id == made.id
    early = await worker.api.call(CANCEL, params=OrderParams(order_id="p"), query=query)
    assert early.filled is None
    with pytest.raises(OrderCancelled):
        await fill(worker, "p")


async def test_an_undone_order_is_destroyed_whoever_holds_its_lease(worker: SimWorker) -> None:
    made = await fill(worker, machine=msgspec.structs.replace(MACHINE, lease_ttl=60))
    query = CancelQuery(app_name=APP, destroy=True)
    for _ in range(2):
        undone = await worker.api.call(CANCEL, params=OrderParams(order_id="o"), query=query)
        assert undone.filled is not None and undone.filled.id == made.id
        await worker.at_rest()
        assert worker.record(made.id).state is State.DESTROYED
    with pytest.raises(OrderCancelled):
        await fill(worker)


async def test_a_claim_is_given_once(worker: SimWorker) -> None:
    params = ClaimParams(app_name=APP, order_id="k/1")
    first = await worker.api.call(CLAIM, params=params, body=ClaimRequest(node="0000000a"))
    second = await worker.api.call(CLAIM, params=params, body=ClaimRequest(node="0000000b"))
    assert first == second and (first.node, first.number) == ("0000000a", 0)
    moved = await worker.api.call(CLAIM, params=params, body=ClaimRequest(node="0000000b", instead_of=0))
    assert (moved.node, moved.number) == ("0000000b", 1)


def test_calls_between_nodes_are_none_of_the_publics() -> None:
    assert {QUOTE, FILL, CANCEL, CLAIM, EXPORT_APP} <= set(PEER_ROUTES)
    assert all(route.path.startswith("/internal/v1/") for route in PEER_ROUTES)
