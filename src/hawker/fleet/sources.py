"""Where a worker's rows come from: a source for each bucket of its store that the fleet hears of, by the bucket's name,
and for what is in no store: health, room, images.
"""

from collections.abc import Callable, Iterable
from functools import partial

from hawker.fleet.publish import Publisher, Source
from hawker.fleet.rows import (
    NodeFacts,
    Row,
    address_rows,
    app_ip_rows,
    app_row,
    capacity_row,
    health_rows,
    image_name_row,
    image_row,
    machine_row,
    node_row,
    peer_row,
    service_rows,
    takeover_row,
    volume_row,
)
from hawker.ids import MachineId, NodeId
from hawker.node import Capacity
from hawker.record.app import APPS, IPS, WIREGUARD_PEERS
from hawker.record.machine import MACHINES, CheckResult, MachineRecord, taken
from hawker.record.node import NODE, TAKEOVERS, USED, used
from hawker.record.volume import VOLUMES
from hawker.store.contract import Bucket, Observable, Reader
from hawker.value_object import ValueObject

HEALTH, IMAGES, IMAGE_NAMES = "health", "images", "image_names"
ALL = "all"


class PublishedState(ValueObject, frozen=True, kw_only=True):
    """What a worker has that others are told of. `health_of` are the results of a machine's checks, `room` is what the
    host has to sell, `images` are the digests of the images that are here, `image_names` are the names of uploads, each
    with its digest and when it was given."""

    node: NodeId
    store: Reader
    health_of: Callable[[MachineRecord], Iterable[CheckResult]]
    room: Callable[[], Capacity]
    images: Callable[[], Iterable[str]]
    image_names: Callable[[], Iterable[tuple[str, str, float]]] = tuple


def worker_sources(published: PublishedState, said: NodeFacts) -> tuple[Source, ...]:
    rows = _Rows(published, said)
    keys = partial(_keys, published.store)
    return (
        Source(name=NODE.name, every=partial(keys, NODE), rows=rows.node),
        Source(name=APPS.name, every=partial(keys, APPS), rows=rows.app),
        Source(name=IPS.name, every=partial(keys, IPS), rows=rows.app_ip),
        Source(name=WIREGUARD_PEERS.name, every=partial(keys, WIREGUARD_PEERS), rows=rows.peer),
        Source(name=MACHINES.name, every=partial(keys, MACHINES), rows=rows.machine),
        Source(name=TAKEOVERS.name, every=partial(keys, TAKEOVERS), rows=rows.takeover),
        Source(name=VOLUMES.name, every=partial(keys, VOLUMES), rows=rows.volume),
        Source(name=USED.name, every=_one, rows=rows.capacity, calm=True, looked_at=True),
        Source(name=HEALTH, every=partial(keys, MACHINES), rows=rows.health, calm=True),
        Source(name=IMAGES, every=_one, rows=rows.images, calm=True, looked_at=True),
        Source(name=IMAGE_NAMES, every=_one, rows=rows.image_names),
    )


def follow(publisher: Publisher, store: Observable, hear: Callable[[Callable[[MachineId], None]], None]) -> None:
    """Have the publisher told of every change in the store, and of machines whose health changed, by `hear`."""
    store.listen(publisher.note)
    hear(partial(publisher.note, HEALTH))


def _keys(reader: Reader, bucket: Bucket[object]) -> list[str]:
    return [key for key, _ in reader.scan(bucket)]


def _one() -> tuple[str, ...]:
    return (ALL,)


class _Rows:
    def __init__(self, published: PublishedState, said: NodeFacts) -> None:
        self._published = published
        self._said = said
        self._store = published.store
        self._node = published.node

    def node(self, key: str) -> Iterable[Row]:
        record = self._store.get(NODE, key)
        return () if record is None else (node_row(record, self._said),)

    def app(self, key: str) -> Iterable[Row]:
        record = self._store.get(APPS, key)
        return () if record is None else (app_row(self._node, record),)

    def app_ip(self, key: str) -> Iterable[Row]:
        record = self._store.get(IPS, key)
        return () if record is None else app_ip_rows(self._node, key.partition("/")[0], record)

    def peer(self, key: str) -> Iterable[Row]:
        record = self._store.get(WIREGUARD_PEERS, key)
        return () if record is None else (peer_row(self._node, record),)

    def machine(self, key: str) -> Iterable[Row]:
        record = self._store.get(MACHINES, key)
        if record is None:
            return ()
        machine, node = machine_row(self._node, record), self._node
        return (machine, *service_rows(node, record), *address_rows(node, record))

    def takeover(self, key: str) -> Iterable[Row]:
        record = self._store.get(TAKEOVERS, key)
        return () if record is None else (takeover_row(self._node, record),)

    def volume(self, key: str) -> Iterable[Row]:
        record = self._store.get(VOLUMES, key)
        return () if record is None else (volume_row(self._node, record),)

    def health(self, key: str) -> Iterable[Row]:
        record = self._store.get(MACHINES, MachineId(key))
        return () if record is None else health_rows(self._node, record, self._published.health_of(record))

    def capacity(self, key: str) -> Iterable[Row]:
        return (capacity_row(self._node, self._published.room(), used(self._store), taken(self._store)),)

    def images(self, key: str) -> Iterable[Row]:
        return (image_row(self._node, digest) for digest in dict.fromkeys(self._published.images()))

    def image_names(self, key: str) -> Iterable[Row]:
        return (image_name_row(self._node, *named) for named in self._published.image_names())
