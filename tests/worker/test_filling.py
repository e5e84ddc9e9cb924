"""An order that a broker sends, at the worker."""

from typing import Any

import anyio
import msgspec
import pytest

from hawker.api.bodies import CreateMachineRequest, OrderedApp, OrderRequest
from hawker.errors import (
    BadRequest,
    DeadlineExceeded,
    NameTaken,
    NoRoom,
    NotFound,
    OrderCancelled,
    Unavailable,
    Unprocessable,
    WrongState,
)
from hawker.ids import AppName, OrderId
from hawker.sim.node.sim_worker import APP, SimWorker, config_of
from hawker.store.contract import Reader, Tx
from hawker.worker.filling import Filling, NoLuggage
from hawker.worker.order_ledger import OrderLedger
from hawker.worker.records import APPS, NODE, AppRecord, NodeRecord

pytestmark = pytest.mark.anyio


class Trunk:
    """Luggage that remembers what was unpacked."""

    def __init__(self) -> None:
        self.unpacked: list[bytes] = []

    def pack(self, reader: Reader, app: AppRecord) -> bytes:
        return f"of {app.name}".encode()

    def unpack(self, tx: Tx, app: AppRecord, packed: bytes) -> None:
        there = tx.get(APPS, app.name)
        assert there is None or there.id == app.id
        self.unpacked.append(packed)


def filling(worker: SimWorker, luggage: Any = None) -> Filling:
    ledger = OrderLedger(worker.store, worker.parts.deps.clock, worker.parts.deps.table)
    return Filling(worker.parts, ledger, luggage or NoLuggage())


def order(app: OrderedApp, key: str = "o", **given: Any) -> OrderRequest:
    named = {each: given.pop(each) for each in ("region", "min_secrets_version") if each in given}
    return OrderRequest(order_id=key, app=app, machine=CreateMachineRequest(config=config_of(**given), **named))


def other(name: str = "far") -> OrderedApp:
    return OrderedApp(
        id="0a", number=1, name=name, org="acme", network="default", network_id=7, created_at=1.0, luggage=b"x"
    )


async def test_an_app_that_is_not_known_comes_with_the_order(worker: SimWorker) -> None:
    trunk = Trunk()
    made = await filling(worker, trunk).fill(order(other()), "ann")
    assert (made.app, made.network.network_id, trunk.unpacked) == ("far", 7, [b"x"])
    known = worker.store.get(APPS, "far")
    assert known is not None and (known.id, known.org, known.idempotency_key) == ("0a", "acme", None)


async def test_what_is_exported_is_what_an_order_carries(worker: SimWorker) -> None:
    app = filling(worker, Trunk()).export(APP)
    assert app.luggage == b"of stall"
    made = await filling(worker, Trunk()).fill(order(app), "ann")
    assert made.app == APP
    with pytest.raises(NotFound, match="app not found"):
        filling(worker).export("nothing")


async def test_the_same_order_is_the_same_machine_also_at_once(worker: SimWorker) -> None:
    app, found = filling(worker).export(APP), list[str]()

    async def fill() -> None:
        found.append((await filling(worker).fill(order(app), "ann")).id)

    async with anyio.create_task_group() as tasks:
        for _ in range(6):
            tasks.start_soon(fill)
    assert len(set(found)) == 1 and len(worker.machines()) == 1


async def test_a_refused_order_leaves_nothing_behind(worker: SimWorker) -> None:
    guest = {"cpu_kind": "shared", "cpus": 1, "memory_mb": 4096}
    with pytest.raises(NoRoom):
        await filling(worker).fill(order(other(), guest=guest), "ann")
    assert worker.store.get(APPS, "far") is None and worker.machines() == []


async def test_one_that_was_cancelled_is_refused_also_while_it_is_under_way(worker: SimWorker) -> None:
    app = filling(worker).export(APP)
    ledger = OrderLedger(worker.store, worker.parts.deps.clock, worker.parts.deps.table)
    await ledger.cancel(AppName(APP), OrderId("o"))
    with pytest.raises(OrderCancelled):
        await filling(worker).fill(order(app), "ann")
    asked = anyio.Event()

    async def slowly(reference: str) -> Any:
        asked.set()
        await ledger.cancel(AppName(APP), OrderId("p"))
        return await type(worker.parts.deps.images).resolve(worker.parts.deps.images, reference)

    object.__setattr__(worker.parts.deps.images, "resolve", slowly)
    with pytest.raises(OrderCancelled):
        await filling(worker).fill(order(app, "p"), "ann")
    assert asked.is_set() and worker.machines() == []


async def test_a_registry_that_is_slower_than_the_caller_ends_it(worker: SimWorker) -> None:
    async def never(reference: str) -> Any:
        await anyio.sleep_forever()

    object.__setattr__(worker.parts.deps.images, "resolve", never)
    with pytest.raises(DeadlineExceeded, match="nothing was created"):
        await filling(worker).fill(order(other()), "ann", 2.0)


async def test_another_app_of_the_same_name_is_not_taken_for_it(worker: SimWorker) -> None:
    app = msgspec.structs.replace(filling(worker).export(APP), id="ff")
    with pytest.raises(NameTaken):
        await filling(worker).fill(order(app), "ann")


async def test_a_config_that_was_found_sound_is_not_validated_again(
    worker: SimWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []
    monkeypatch.setattr("hawker.worker.filling.validate", lambda config, served: seen.append(config.image))
    fill = filling(worker)
    for key, env in (("first", {}), ("second", {}), ("large", {"A": "a" * 20_000})):
        await fill.fill(order(other(), key, env=env), "me")
    assert len(seen) == 2 and len(fill._sound) == 1


async def test_what_changed_since_the_bid_is_looked_at_again(worker: SimWorker) -> None:
    app = filling(worker).export(APP)
    with pytest.raises(Unavailable, match="does not have the label disk=ssd"):
        await filling(worker).fill(order(app, metadata={"hawker_labels": "disk=ssd"}), "ann")
    await filling(worker).fill(order(app), "ann")
    with pytest.raises(NoRoom, match="they are to be apart"):
        await filling(worker).fill(order(app, "p", metadata={"hawker_spread": "hard"}), "ann")
    record = NodeRecord(id=worker.parts.node.id, region="local", created_at=0.0, cordoned=True)
    await worker.store.write(lambda tx: tx.put(NODE, "self", record))
    with pytest.raises(Unavailable, match="the node is cordoned: nothing was created"):
        await filling(worker).fill(order(app, "q"), "ann")


async def test_what_is_wrong_with_the_order_is_said(worker: SimWorker) -> None:
    app = filling(worker).export(APP)
    with pytest.raises(Unprocessable, match=r"config.guest"):
        await filling(worker).fill(order(app, guest={"cpu_kind": "shared", "cpus": 0}), "ann")
    with pytest.raises(WrongState, match="secrets"):
        await filling(worker).fill(order(app, min_secrets_version=3), "ann")
    with pytest.raises(NoRoom, match="no host in region 'sin'"):
        await filling(worker).fill(order(app, region="sin"), "ann")
    with pytest.raises(BadRequest, match="Idempotency-Key"):
        await filling(worker).fill(order(app, ""), "ann")
