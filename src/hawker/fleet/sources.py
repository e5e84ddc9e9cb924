"""Where a worker's rows come from: a source for each bucket of its store that the fleet hears of, by the bucket's name,
and for what is in no store: health, room, images.
"""

from collections.abc import Iterable
from functools import partial

from hawker.fleet.publish import Publisher, Source
from hawker.fleet.rows import (
    Row,
    Self,
    app_row,
    capacity_row,
    health_rows,
    image_row,
    machine_row,
    node_row,
    service_rows,
    takeover_row,
    volume_row,
)
from hawker.fleet.watch import WatchedStore
from hawker.ids import MachineId
from hawker.record.app import APPS
from hawker.record.capacity import USED
from hawker.record.gpu_claim import taken
from hawker.record.machine import MACHINES
from hawker.record.node import NODE
from hawker.record.takeover import TAKEOVERS
from hawker.record.volume import VOLUMES
from hawker.store.contract import Bucket
from hawker.worker.parts import Parts

HEALTH, IMAGES = "health", "images"
_ALL = "all"


def worker_sources(parts: Parts, said: Self) -> tuple[Source, ...]:
    rows = _Rows(parts, said)
    keys = partial(_keys, parts)
    return (
        Source(name=NODE.name, every=partial(keys, NODE), rows=rows.node),
        Source(name=APPS.name, every=partial(keys, APPS), rows=rows.app),
        Source(name=MACHINES.name, every=partial(keys, MACHINES), rows=rows.machine),
        Source(name=TAKEOVERS.name, every=partial(keys, TAKEOVERS), rows=rows.takeover),
        Source(name=VOLUMES.name, every=partial(keys, VOLUMES), rows=rows.volume),
        Source(name=USED.name, every=_one, rows=rows.capacity, calm=True, looked_at=True),
        Source(name=HEALTH, every=partial(keys, MACHINES), rows=rows.health, calm=True),
        Source(name=IMAGES, every=_one, rows=rows.images, calm=True, looked_at=True),
    )


def follow(publisher: Publisher, store: WatchedStore, parts: Parts) -> None:
    """Have it hear of every change."""
    store.listen(publisher.note)
    parts.changes.listen(partial(publisher.note, HEALTH))


def _keys(parts: Parts, bucket: Bucket[object]) -> list[str]:
    return [key for key, _ in parts.deps.store.scan(bucket)]


def _one() -> tuple[str, ...]:
    return (_ALL,)


class _Rows:
    def __init__(self, parts: Parts, said: Self) -> None:
        self._parts = parts
        self._said = said
        self._store = parts.deps.store
        self._node = parts.node.id

    def node(self, key: str) -> Iterable[Row]:
        record = self._store.get(NODE, key)
        return () if record is None else (node_row(record, self._said),)

    def app(self, key: str) -> Iterable[Row]:
        record = self._store.get(APPS, key)
        return () if record is None else (app_row(self._node, record),)

    def machine(self, key: str) -> Iterable[Row]:
        record = self._store.get(MACHINES, key)
        return () if record is None else (machine_row(self._node, record), *service_rows(self._node, record))

    def takeover(self, key: str) -> Iterable[Row]:
        record = self._store.get(TAKEOVERS, key)
        return () if record is None else (takeover_row(self._node, record),)

    def volume(self, key: str) -> Iterable[Row]:
        record = self._store.get(VOLUMES, key)
        return () if record is None else (volume_row(self._node, record),)

    def health(self, key: str) -> Iterable[Row]:
        record = self._store.get(MACHINES, MachineId(key))
        return () if record is None else health_rows(self._node, record, self._parts.health.of(record))

    def capacity(self, key: str) -> Iterable[Row]:
        parts = self._parts
        used = parts.deps.table.used(self._store)
        return (capacity_row(self._node, parts.room(), used, taken(self._store)),)

    def images(self, key: str) -> Iterable[Row]:
        images = self._parts.deps.images.list()
        return (image_row(self._node, digest) for digest in {str(image.digest): None for image in images})
