"""What a simulated worker is made of: each part by who makes it. A planted bug is a kit with one other part."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hawker.clock import Clock
from hawker.fsm.contract import Flow
from hawker.fsm.runner import Runner
from hawker.runtime.driver import Driver, Features
from hawker.runtime.fake import FakeDriver
from hawker.runtime.fake_host import FakeHost
from hawker.store.contract import Store
from hawker.worker.changes import Changes
from hawker.worker.lifecycle import FLOWS
from hawker.worker.lifecycle.deps import Deps, Networks, Rootfs
from hawker.worker.supervisor import Supervisor
from hawker.worker.table import MachineTable

FEATURES = Features(rootfs=True, network=True, limits=True)


def _flows() -> Sequence[Flow[Any]]:
    return FLOWS


def _driver(host: FakeHost) -> Driver:
    return FakeDriver(host, FEATURES)


def _store(store: Store) -> Store:
    return store


def _rootfs(rootfs: Rootfs) -> Rootfs:
    return rootfs


def _networks(networks: Networks) -> Networks:
    return networks


@dataclass(frozen=True, slots=True)
class Kit:
    """Each is called once in every life of the daemon, so that what a part remembers dies with it."""

    flows: Callable[[], Sequence[Flow[Any]]] = _flows
    store: Callable[[Store], Store] = _store
    driver: Callable[[FakeHost], Driver] = _driver
    rootfs: Callable[[Rootfs], Rootfs] = _rootfs
    networks: Callable[[Networks], Networks] = _networks
    table: Callable[[Clock, Changes], MachineTable] = MachineTable
    runner: type[Runner[Deps]] = Runner
    supervisor: type[Supervisor] = Supervisor


SOUND = Kit()
