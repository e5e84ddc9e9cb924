"""An order that a broker sends, at the worker."""

from typing import Any

import anyio
import msgspec
import pytest

from hawker.api.contract.machine import CreateMachineRequest
from hawker.api.contract.market import OrderedApp, OrderRequest
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
from hawker.ids import AppName, NodeId, OrderId
from hawker.image.blobs import ImageReader
from hawker.machine import State
from hawker.node import Resources
from hawker.record.app import APPS, AppRecord
from hawker.record.machine import MachineRecord
from hawker.record.node import CANCELLED, CLAIMS, NODE, NodeRecord
from hawker.sim.node.sim_worker import APP, SimWorker, config_of
from hawker.store.contract import Reader, Tx
from hawker.worker.images import Images
from hawker.worker.order import (
    MAX_KEY_BYTES,
    HomeOfAll,
    NoAppBundles,
    OrderIntake,
    OrderLedger,
    new_record,
    serves_region,
)
from tests.worker.machines import IMAGE

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


def filling(worker: SimWorker, luggage: Any = None) -> OrderIntake:
    ledger = OrderLedger(worker.store, worker.parts.deps.clock, worker.parts.deps.table)
    parts = worker.parts
    return OrderIntake(
        parts.node, parts.deps, parts.apps, parts.admission, parts.runner, ledger, luggage or NoAppBundles()
    )


def order(app: OrderedApp, key: str = "o", **given: Any) -> OrderRequest:
    named = {each: given.pop(each) for each in ("region", "min_secrets_version") if each in given}
    return OrderRequest(order_id=key, app=app, machine=CreateMachineRequest(config=config_of(**given), **named))


def other(name: str = "far") -> OrderedApp:
    return OrderedApp(
        id="0a", number=1, name=name, org="acme", network="default", network_id=7, created_at=1.0, luggage=b"x"
    )


async def test_an_app_that_is_not_known_comes_with_the_order(worker: SimWorker) -> None:
    trunk = Trunk()
    made = await filling(worker, trunk).accept_order(order(other()), "ann")
    assert (made.app, made.network.network_id, trunk.unpacked) == ("far", 7, [b"x"])
    known = worker.store.get(APPS, "far")
    assert known is not None and (known.id, known.org, known.idempotency_key) == ("0a", "acme", None)


async def test_exported_fields_are_those_an_order_carries(worker: SimWorker) -> None:
    app = filling(worker, Trunk()).export(APP)
    assert app.luggage == b"of stall"
    made = await filling(worker, Trunk()).accept_order(order(app), "ann")
    assert made.app == APP
    with pytest.raises(NotFound, match="app not found"):
        filling(worker).export("nothing")


async def test_the_same_order_is_the_same_machine_also_at_once(worker: SimWorker) -> None:
    app, found = filling(worker).export(APP), list[str]()

    async def fill() -> None:
        found.append((await filling(worker).accept_order(order(app), "ann")).id)

    async with anyio.create_task_group() as tasks:
        for _ in range(6):
            tasks.start_soon(fill)
    assert len(set(found)) == 1 and len(worker.machines()) == 1


async def test_a_refused_order_leaves_nothing_behind(worker: SimWorker) -> None:
    guest = {"cpu_kind": "shared", "cpus": 1, "memory_mb": 4096}
    with pytest.raises(NoRoom):
        await filling(worker).accept_order(order(other(), guest=guest), "ann")
    assert worker.store.get(APPS, "far") is None and worker.machines() == []


async def test_one_that_was_cancelled_is_refused_also_while_it_is_under_way(worker: SimWorker) -> None:
    app = filling(worker).export(APP)
    ledger = OrderLedger(worker.store, worker.parts.deps.clock, worker.parts.deps.table)
    await ledger.cancel(AppName(APP), OrderId("o"))
    with pytest.raises(OrderCancelled):
        await filling(worker).accept_order(order(app), "ann")
    asked = anyio.Event()

    async def slowly(reference: str, credentials: object, *, org: ImageReader) -> Any:
        asked.set()
        await ledger.cancel(AppName(APP), OrderId("p"))
        return await type(worker.parts.deps.images).resolve(worker.parts.deps.images, reference, org=org)

    object.__setattr__(worker.parts.deps.images, "resolve", slowly)
    with pytest.raises(OrderCancelled):
        await filling(worker).accept_order(order(app, "p"), "ann")
    assert asked.is_set() and worker.machines() == []


async def test_a_registry_that_is_slower_than_the_caller_ends_it(worker: SimWorker) -> None:
    async def never(reference: str, credentials: object, *, org: str) -> Any:
        await anyio.sleep_forever()

    object.__setattr__(worker.parts.deps.images, "resolve", never)
    with pytest.raises(DeadlineExceeded, match="nothing was created"):
        await filling(worker).accept_order(order(other()), "ann", 2.0)


async def test_another_app_of_the_same_name_is_not_taken_for_it(worker: SimWorker) -> None:
    app = msgspec.structs.replace(filling(worker).export(APP), id="ff")
    with pytest.raises(NameTaken):
        await filling(worker).accept_order(order(app), "ann")


async def test_a_config_that_was_found_sound_is_not_validated_again(
    worker: SimWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []
    monkeypatch.setattr("hawker.worker.order.validate", lambda config, served: seen.append(config.image))
    fill = filling(worker)
    for key, env in (("first", {}), ("second", {}), ("large", {"A": "a" * 20_000})):
        await fill.accept_order(order(other(), key, env=env), "me")
    assert len(seen) == 2 and len(fill._sound) == 1


async def test_a_change_since_the_bid_is_looked_at_again(worker: SimWorker) -> None:
    app = filling(worker).export(APP)
    with pytest.raises(Unavailable, match="does not have the label disk=ssd"):
        await filling(worker).accept_order(order(app, metadata={"hawker_labels": "disk=ssd"}), "ann")
    await filling(worker).accept_order(order(app), "ann")
    with pytest.raises(NoRoom, match="they are to be apart"):
        await filling(worker).accept_order(order(app, "p", metadata={"hawker_spread": "hard"}), "ann")
    record = NodeRecord(id=worker.parts.node.id, region="local", created_at=0.0, cordoned=True)
    await worker.store.write(lambda tx: tx.put(NODE, "self", record))
    with pytest.raises(Unavailable, match="the node is cordoned: nothing was created"):
        await filling(worker).accept_order(order(app, "q"), "ann")


async def test_an_error_of_the_order_is_said(worker: SimWorker) -> None:
    app = filling(worker).export(APP)
    with pytest.raises(Unprocessable, match=r"config.guest"):
        await filling(worker).accept_order(order(app, guest={"cpu_kind": "shared", "cpus": 0}), "ann")
    with pytest.raises(WrongState, match="secrets"):
        await filling(worker).accept_order(order(app, min_secrets_version=3), "ann")
    with pytest.raises(NoRoom, match="no host in region 'sin'"):
        await filling(worker).accept_order(order(app, region="sin"), "ann")
    with pytest.raises(BadRequest, match="Idempotency-Key"):
        await filling(worker).accept_order(order(app, ""), "ann")


def _record(worker: SimWorker, **order: object) -> MachineRecord:
    app = worker.parts.apps.get(worker.store, APP)
    request = CreateMachineRequest(config=config_of(), **order)  # type: ignore[arg-type]
    return new_record(
        worker.parts.node, worker.parts.deps, app, request, Images(IMAGE), caller="ann", key=OrderId("key")
    )


async def test_an_order_becomes_a_record(worker: SimWorker) -> None:
    record = _record(worker, name="web", lease_ttl=30, skip_service_registration=True)
    assert (record.name, record.state, record.order, record.cordoned) == ("web", State.CREATED, "key", True)
    assert record.holds == Resources(shared_cpus=1, memory_mib=256, disk_mib=256)
    assert record.lease is not None and record.lease.owner == "ann"
    assert record.lease.expires_at == record.created_at + 30
    assert record.network.private_ip.startswith("fdaa:")


async def test_an_order_not_launched_holds_nothing(worker: SimWorker) -> None:
    record = _record(worker, skip_launch=True)
    assert record.holds == Resources() and record.lease is None and not record.cordoned


async def test_a_machine_without_a_name_is_given_one(worker: SimWorker) -> None:
    assert _record(worker).name != _record(worker).name
    with pytest.raises(Unprocessable):
        _record(worker, name="../up")


@pytest.mark.parametrize("wanted", [None, "", "local", "ams,local", "any", "ams, any"])
def test_a_region_list_that_names_this_one_is_served(wanted: str | None) -> None:
    serves_region("local", wanted)


def test_another_region_is_refused_with_the_nearest() -> None:
    with pytest.raises(NoRoom) as refusal:
        serves_region("local", "ams,fra")
    assert (refusal.value.nearest, refusal.value.shortfall) == ("local", {"hosts": 1})


SHOP, KEY = AppName(APP), OrderId("k")
A, B, C = NodeId("0000000a"), NodeId("0000000b"), NodeId("0000000c")


@pytest.fixture
def ledger(worker: SimWorker) -> OrderLedger:
    return OrderLedger(worker.store, worker.parts.deps.clock, worker.parts.deps.table)


async def test_a_cancelled_order_is_refused_whenever_it_comes(ledger: OrderLedger, worker: SimWorker) -> None:
    ledger.check(worker.store, SHOP, KEY)
    assert await ledger.cancel(SHOP, KEY) is None
    with pytest.raises(OrderCancelled, match="order k was cancelled"):
        ledger.check(worker.store, SHOP, KEY)
    ledger.check(worker.store, AppName("other"), KEY)


async def test_a_cancel_that_came_too_late_gives_the_machine(ledger: OrderLedger, worker: SimWorker) -> None:
    made = await worker.create(key="k")
    found = await ledger.cancel(SHOP, KEY)
    assert found is not None and found.id == made.id
    ledger.check(worker.store, SHOP, KEY)


async def test_an_order_undone_counts_as_not_filled(ledger: OrderLedger, worker: SimWorker) -> None:
    made = await worker.create(key="k")
    found = await ledger.cancel(SHOP, KEY, anyway=True)
    assert found is not None and found.id == made.id
    assert await ledger.cancel(SHOP, KEY) is None
    again = await ledger.cancel(SHOP, KEY, anyway=True)
    assert again is not None and again.id == made.id


async def test_the_first_claim_counts_until_it_is_moved_on(ledger: OrderLedger) -> None:
    first = await ledger.claim(SHOP, KEY, A, None)
    assert (first.node, first.number) == (A, 0)
    assert await ledger.claim(SHOP, KEY, B, None) == first
    moved = await ledger.claim(SHOP, KEY, B, 0)
    assert (moved.node, moved.number) == (B, 1)
    assert await ledger.claim(SHOP, KEY, C, 0) == moved


async def test_old_entries_are_dropped_as_new_ones_come(worker: SimWorker) -> None:
    ledger = OrderLedger(worker.store, worker.parts.deps.clock, worker.parts.deps.table, kept_s=60.0)
    for number in range(50):
        await ledger.cancel(SHOP, OrderId(f"old{number}"))
        await ledger.claim(SHOP, OrderId(f"old{number}"), A, None)
    await worker.parts.deps.clock.sleep(61)
    for number in range(50):
        await ledger.cancel(SHOP, OrderId(f"new{number}"))
        await ledger.claim(SHOP, OrderId(f"new{number}"), A, None)
    cancelled = [key for key, _ in worker.store.scan(CANCELLED)]
    claims = [key for key, _ in worker.store.scan(CLAIMS)]
    for left in (cancelled, claims):
        assert not [key for key in left if "old" in key] and len(left) == 50


@pytest.mark.parametrize("key", ["", "k" * (MAX_KEY_BYTES + 1), "é" * MAX_KEY_BYTES])
async def test_a_key_has_bounds(ledger: OrderLedger, key: str) -> None:
    with pytest.raises(BadRequest):
        await ledger.cancel(SHOP, OrderId(key))
    with pytest.raises(BadRequest):
        await ledger.claim(SHOP, OrderId(key), A, None)


async def test_machine_is_not_made_in_an_app_that_was_deleted_meanwhile(worker: SimWorker) -> None:
    app = filling(worker).export(APP)
    await worker.parts.apps.delete(APP)
    with pytest.raises(NotFound, match="app not found"):
        await filling(worker, HomeOfAll()).accept_order(order(app), "a caller")
