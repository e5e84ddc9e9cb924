"""What a simulated worker is made of: each part by who makes it. A planted bug is a kit with one other part."""

from collections.abc import Callable, Sequence
from typing import Any

from hawker.clock import Clock
from hawker.fsm.contract import Flow
from hawker.fsm.runner import Runner
from hawker.netpolicy.policies import HostFilters, PolicyEnforcer
from hawker.runtime.driver import Features, NodeDriver, Suspension
from hawker.runtime.fake_driver import FakeDriver
from hawker.runtime.fake_host import FakeHost
from hawker.store.contract import Store
from hawker.up.wiring import NODE_FLOWS
from hawker.value_object import ValueObject
from hawker.volume.disks import Copies, Disks
from hawker.volume.moved_files import MovedFiles
from hawker.worker.changes import Changes
from hawker.worker.lifecycle.deps import FlowDeps
from hawker.worker.lifecycle.host_adapters import Networks, Rootfs
from hawker.worker.moves.orders import MachineMoves
from hawker.worker.supervisor import ExitHandler, Supervisor
from hawker.worker.table import MachineTable

FEATURES = Features(
    rootfs=True, network=True, limits=True, mounts=True, suspend=Suspension.FREEZE, lacks_swap="", containers=True
)
GUEST_FEATURES = Features(
    rootfs=True,
    network=True,
    limits=True,
    suspend=Suspension.SNAPSHOT,
    kernel=True,
    disks=True,
    lacks_swap="its machines have no swap disks",
    overhead_mib=100,
    gpus=True,
)
"""Of machines with kernels of their own."""


def _flows() -> Sequence[Flow[Any]]:
    return NODE_FLOWS


def _driver(host: FakeHost, features: Features) -> NodeDriver:
    return FakeDriver(host, features)


def _store(store: Store) -> Store:
    return store


def _rootfs(rootfs: Rootfs) -> Rootfs:
    return rootfs


def _networks(networks: Networks) -> Networks:
    return networks


def _disks(disks: Disks) -> Disks:
    return disks


def _copies(copies: Copies) -> Copies:
    return copies


def _moved_files(files: MovedFiles) -> MovedFiles:
    return files


class WorkerKit(ValueObject, frozen=True):
    """Each is called once in every life of the daemon, so that what a part remembers dies with it."""

    flows: Callable[[], Sequence[Flow[Any]]] = _flows
    store: Callable[[Store], Store] = _store
    driver: Callable[[FakeHost, Features], NodeDriver] = _driver
    rootfs: Callable[[Rootfs], Rootfs] = _rootfs
    networks: Callable[[Networks], Networks] = _networks
    disks: Callable[[Disks], Disks] = _disks
    copies: Callable[[Copies], Copies] = _copies
    moved_files: Callable[[MovedFiles], MovedFiles] = _moved_files
    moves: type[MachineMoves] = MachineMoves
    enforcer: Callable[[Store, HostFilters | None], PolicyEnforcer] = PolicyEnforcer
    table: Callable[[Clock, Changes], MachineTable] = MachineTable
    runner: type[Runner[FlowDeps]] = Runner
    supervisor: type[Supervisor] = Supervisor
    exits: type[ExitHandler] = ExitHandler


SOUND = WorkerKit()
