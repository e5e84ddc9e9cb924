"""The worker's answers to the route table, one file per noun. They translate; what they call decides."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from hawker.api.contract.node import NodeInfo
from hawker.api.handlers import Handlers
from hawker.catalog.contract import Catalog
from hawker.ids import NodeId
from hawker.worker.assembly import AssembledWorker
from hawker.worker.filling import Luggage
from hawker.worker.handlers.apps import AppHandlers
from hawker.worker.handlers.catalog import CatalogHandlers
from hawker.worker.handlers.doctor import DoctorHandlers
from hawker.worker.handlers.history import HistoryHandlers
from hawker.worker.handlers.images import ImageHandlers
from hawker.worker.handlers.inside import InsideHandlers
from hawker.worker.handlers.ip_assignments import IpHandlers
from hawker.worker.handlers.leases import LeaseHandlers
from hawker.worker.handlers.machines import MachineHandlers
from hawker.worker.handlers.market import MarketHandlers
from hawker.worker.handlers.memory import MemoryHandlers
from hawker.worker.handlers.metadata import MetadataHandlers
from hawker.worker.handlers.metrics import MeasuredFleet, MetricsHandlers
from hawker.worker.handlers.network_policies import PolicyHandlers
from hawker.worker.handlers.node import NodeHandlers, node_info
from hawker.worker.handlers.operations import OperationHandlers
from hawker.worker.handlers.orgs import OrgHandlers
from hawker.worker.handlers.placements import PlacementHandlers
from hawker.worker.handlers.runs import RunHandlers
from hawker.worker.handlers.secret_keys import SecretKeyHandlers
from hawker.worker.handlers.secrets import SecretHandlers
from hawker.worker.handlers.snapshots import SnapshotHandlers
from hawker.worker.handlers.volumes import VolumeHandlers


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSide:
    """What the worker's answers take from its fleet: nothing on a node that is alone. `wrong_clocks` are nodes, and
    what is wrong with the clock of each."""

    catalog: Catalog | None = None
    fleet: MeasuredFleet | None = None
    luggage: Luggage | None = None
    wrong_clocks: Callable[[], Iterable[tuple[NodeId, str]]] = tuple


ALONE = FleetSide()


def node_info_of(worker: AssembledWorker) -> Callable[[], NodeInfo]:
    return partial(node_info, worker)


def worker_handlers(parts: AssembledWorker, side: FleetSide = ALONE) -> Handlers:
    """Everything that this worker answers."""
    handlers = Handlers()
    AppHandlers(parts).bind(handlers)
    MachineHandlers(parts).bind(handlers)
    OperationHandlers(parts).bind(handlers)
    HistoryHandlers(parts).bind(handlers)
    InsideHandlers(parts).bind(handlers)
    SecretKeyHandlers(parts).bind(handlers)
    SecretHandlers(parts).bind(handlers)
    OrgHandlers(parts).bind(handlers)
    VolumeHandlers(parts).bind(handlers)
    SnapshotHandlers(parts).bind(handlers)
    LeaseHandlers(parts).bind(handlers)
    MemoryHandlers(parts).bind(handlers)
    MetadataHandlers(parts).bind(handlers)
    IpHandlers(parts).bind(handlers)
    PolicyHandlers(parts).bind(handlers)
    NodeHandlers(parts).bind(handlers)
    PlacementHandlers(parts).bind(handlers)
    MarketHandlers(parts, side.luggage).bind(handlers)
    MetricsHandlers(parts, side.fleet).bind(handlers)
    RunHandlers(parts).bind(handlers)
    ImageHandlers(parts).bind(handlers)
    DoctorHandlers(parts, side.wrong_clocks).bind(handlers)
    CatalogHandlers(side.catalog).bind(handlers)
    return handlers
