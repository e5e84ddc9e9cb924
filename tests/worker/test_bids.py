from pathlib import Path
from typing import Any

import msgspec
import pytest

from hawker.api.codec import encode_json
from hawker.api.contract.machine import CreateMachineRequest
from hawker.api.contract.market import Bid, BidAsk, DeclineKind, LayerRef
from hawker.errors import Unavailable
from hawker.record.node import NODE, NodeRecord
from hawker.sim.node.sim_worker import APP, SimWorker, config_of
from hawker.sim.node.world import ROOM, MemoryWorld
from hawker.worker.bids import Bidder

pytestmark = pytest.mark.anyio


def ask(**given: Any) -> msgspec.Raw:
    named = {key: given.pop(key) for key in ("count", "order_id", "layers", "app") if key in given}
    order = {key: given.pop(key) for key in ("skip_launch", "name") if key in given}
    machine = CreateMachineRequest(config=config_of(**given), **order)
    return msgspec.Raw(encode_json(BidAsk(app=named.pop("app", APP), machine=machine, **named)))


def bid(worker: SimWorker, **given: Any) -> Bid:
    (found,) = Bidder(worker.parts).quotes([ask(**given)])
    return found


def kind(worker: SimWorker, **given: Any) -> DeclineKind | None:
    found = bid(worker, **given)
    assert (found.decline is None) == (found.fits > 0)
    return None if found.decline is None else found.decline.kind


async def test_a_bid_says_what_would_be_left(worker: SimWorker) -> None:
    await worker.started(guest={"cpu_kind": "shared", "cpus": 2, "memory_mb": 256})
    found = bid(worker, guest={"cpu_kind": "performance", "cpus": 1, "memory_mb": 512})
    cpu, memory = found.headroom["cpu"], found.headroom["memory"]
    assert (cpu.total, cpu.takes, cpu.left) == (4000, 1000, 2750)
    assert (memory.total, memory.takes, memory.left) == (1024, 512, 256)
    assert (found.fits, found.same_app) == (1, 1)


@pytest.mark.parametrize("depth", [500, 900, 950, 970, 990, 1000, 1100, 5000])
async def test_an_ask_too_deep_to_be_read_spoils_no_other(worker: SimWorker, depth: int) -> None:
    response = b'{"headers":{"a":' + b"[" * depth + b"]" * depth + b"}}"
    port = b'{"port":80,"http_options":{"response":' + response + b"}}"
    config = b'{"image":"a","services":[{"internal_port":80,"ports":[' + port + b"]}]}"
    deep = msgspec.Raw(b'{"app":"shop","machine":{"config":' + config + b"}}")
    first, spoiled, last = Bidder(worker.parts).quotes([ask(), deep, ask(count=2)])
    assert (first.fits, last.fits > 0) == (1, True)
    assert spoiled.decline is None or spoiled.decline.kind is DeclineKind.UNFIT


async def test_how_many_would_fit_is_asked_with_a_count(worker: SimWorker) -> None:
    assert [bid(worker, count=count).fits for count in (1, 3, 9)] == [1, 3, ROOM.memory_mib // 256]


async def test_one_that_is_not_to_be_launched_takes_nothing(worker: SimWorker) -> None:
    found = bid(worker, skip_launch=True, guest={"cpu_kind": "shared", "cpus": 1, "memory_mb": 4096})
    assert found.fits == 1 and found.headroom["memory"].takes == 0


async def test_a_shortage_is_told(worker: SimWorker) -> None:
    found = bid(worker, guest={"cpu_kind": "shared", "cpus": 1, "memory_mb": 2048})
    assert found.decline is not None and found.decline.shortfall == {"memory_mb": 1024}


async def test_every_other_reason_has_its_kind(worker: SimWorker) -> None:
    await worker.started()
    assert kind(worker) is None
    assert kind(worker, metadata={"hawker_labels": "disk=ssd"}) is DeclineKind.LABELS
    assert kind(worker, metadata={"hawker_driver": "microvm"}) is DeclineKind.DRIVER
    assert kind(worker, metadata={"hawker_driver": "fake"}) is None
    assert kind(worker, metadata={"hawker_spread": "hard"}) is DeclineKind.APART
    assert kind(worker, metadata={"hawker_spread": "hard"}, app="other") is None
    assert kind(worker, metadata={"hawker_spread": "x"}) is DeclineKind.UNFIT
    assert kind(worker, guest={"cpu_kind": "shared", "cpus": 0}) is DeclineKind.UNFIT
    assert kind(worker, mounts=[{"volume": "vol_0000000000000000", "path": "/d"}]) is DeclineKind.VOLUME
    (unread,) = Bidder(worker.parts).quotes([msgspec.Raw(b'{"app": 1}')])
    assert unread.decline is not None and unread.decline.kind is DeclineKind.UNFIT


@pytest.mark.parametrize(("fields", "why"), [({"cordoned": True}, "cordoned"), ({"draining": True}, "draining")])
async def test_a_closed_node_declines(worker: SimWorker, fields: dict[str, bool], why: str) -> None:
    record = NodeRecord(id=worker.parts.node.id, region="local", created_at=0.0, **fields)
    await worker.store.write(lambda tx: tx.put(NODE, "self", record))
    found = bid(worker)
    assert found.decline is not None and (found.decline.kind, found.decline.reason) == (
        DeclineKind.CLOSED,
        f"the node is {why}",
    )


async def test_gpus_are_counted_apart(tmp_path: Path) -> None:
    room = msgspec.structs.replace(ROOM, gpus=())
    async with MemoryWorld(tmp_path, room=room, guests=True).open() as worker:
        await worker.app()
        guest = {"cpu_kind": "performance", "cpus": 1, "memory_mb": 256, "gpu_kind": "a10", "gpus": 1}
        found = bid(worker, guest=guest)
        assert found.decline is not None and found.decline.shortfall in ({"gpus.a10": 1}, {})


async def test_a_filled_order_and_a_taken_name_are_told(worker: SimWorker) -> None:
    made = await worker.create(key="k", order={"name": "web"})
    assert bid(worker, order_id="k").filled == made.id
    assert bid(worker, order_id="l").filled is None
    assert bid(worker, name="web").name_taken and not bid(worker, name="api").name_taken


async def test_an_image_counts_by_what_is_missing_of_it(worker: SimWorker) -> None:
    unknown = bid(worker)
    assert (unknown.image_bytes, unknown.missing_bytes) == (None, None)
    await worker.started()
    known = bid(worker)
    assert known.image_bytes and known.missing_bytes == 0
    layers = known.layers["hawker/hello"]
    absent = LayerRef(digest="sha256:" + "1" * 64, size=1000)
    wrong = LayerRef(digest="../../etc/passwd", size=10)
    other = bid(worker, image="web:3", layers={"web:3": (*layers, absent, wrong)})
    assert (other.missing_bytes, other.image_bytes) == (1010, known.image_bytes + 1010)


async def test_equal_asks_are_worked_out_once(worker: SimWorker) -> None:
    first, second, other = Bidder(worker.parts).quotes([ask(), ask(), ask(count=2)])
    assert first is second and first is not other


async def test_an_image_that_nobody_can_hand_over_is_not_bid_on(worker: SimWorker) -> None:
    lost = Unavailable("image web:1 was imported at 0000000b, which cannot hand it over now")
    images = worker.parts.deps.images
    object.__setattr__(images, "out_of_reach", lambda name: lost if name == "web:1" else None)
    found = bid(worker, image="web:1")
    assert found.decline is not None and found.decline.problem is not None
    assert (found.decline.kind, found.decline.http_status) == (DeclineKind.UNFIT, 503)
    assert kind(worker, image="web:2") is None


async def test_a_bid_says_what_a_neighbour_has(worker: SimWorker) -> None:
    layers = {"web:1": (LayerRef(digest="sha256:" + "5" * 64, size=700),)}
    assert bid(worker, image="web:1", layers=layers).nearby_bytes == 0
    object.__setattr__(worker.parts.deps.images, "has_neighbour", lambda name: True)
    found = bid(worker, image="web:1", layers=layers)
    assert (found.missing_bytes, found.nearby_bytes) == (700, 700)


async def test_a_plain_volume_is_bid_with_where_encryption_is_a_wish(tmp_path: Path) -> None:
    """Clients copy `encrypted` into the machines that they order with it; the node that has the volume takes them."""
    for setting, expected in (("wished", None), ("required", DeclineKind.VOLUME)):
        async with MemoryWorld(tmp_path / setting, volume_encryption=setting).open() as worker:
            await worker.app()
            made = await worker.volume("data", size_gb=1, encrypted=False)
            assert kind(worker, mounts=[{"volume": made.id, "path": "/data", "encrypted": True}]) is expected
