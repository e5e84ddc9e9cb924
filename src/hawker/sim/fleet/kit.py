"""What a simulated node is made of beside its worker: each part by who makes it. A planted bug is a kit with one other
part."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hawker.api.directory import Peers
from hawker.catalog.storage import SqliteStorage
from hawker.clock import Clock
from hawker.fleet.failover_view import FailoverView
from hawker.ids import NodeId
from hawker.sim.node.kit import SOUND, WorkerKit
from hawker.store.contract import Store


class Makes(Protocol):
    """Opens the catalog of a node."""

    def __call__(self, path: Path, node: NodeId, clock: Clock, *, boot: Callable[[], str]) -> SqliteStorage: ...


def _store(store: Store) -> Store:
    return store


def _peers(peers: Peers) -> Peers:
    return peers


def _sight(sight: FailoverView) -> FailoverView:
    return sight


def _storage(path: Path, node: NodeId, clock: Clock, *, boot: Callable[[], str]) -> SqliteStorage:
    return SqliteStorage(path, node, clock, boot=boot)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetKit:
    """Each is called once in every life of a daemon. `peers` is how its broker reaches workers, `sight` what it sees of
    what its spares stand by for."""

    worker: WorkerKit = SOUND
    store: Callable[[Store], Store] = _store
    peers: Callable[[Peers], Peers] = _peers
    sight: Callable[[FailoverView], FailoverView] = _sight
    storage: Makes = _storage


SOUND_FLEET = FleetKit()
