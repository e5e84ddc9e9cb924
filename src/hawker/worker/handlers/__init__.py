"""The worker's answers to the route table, one file per noun. They translate; what they call decides."""

from hawker.api.handlers import Handlers
from hawker.fleet.app_handlers import PeerAppHandlers
from hawker.fleet.handlers import ClusterHandlers
from hawker.worker.bids import Bids
from hawker.worker.handlers.apps import AppHandlers
from hawker.worker.handlers.catalog import CatalogHandlers
from hawker.worker.handlers.doctor import DoctorHandlers
from hawker.worker.handlers.history import HistoryHandlers
from hawker.worker.handlers.images import ImageHandlers
from hawker.worker.handlers.inside import InsideHandlers
from hawker.worker.handlers.ip_assignments import IpHandlers
from hawker.worker.handlers.leases import LeaseHandlers
from hawker.worker.handlers.machines import MachineHandlers
from hawker.worker.handlers.memory import MemoryHandlers
from hawker.worker.handlers.metadata import MetadataHandlers
from hawker.worker.handlers.metrics import MetricsHandlers
from hawker.worker.handlers.network_policies import PolicyHandlers
from hawker.worker.handlers.node import NodeHandlers
from hawker.worker.handlers.operations import OperationHandlers
from hawker.worker.handlers.orders import OrderHandlers
from hawker.worker.handlers.orgs import OrgHandlers
from hawker.worker.handlers.placements import PlacementHandlers
from hawker.worker.handlers.runs import RunHandlers
from hawker.worker.handlers.secret_keys import SecretKeyHandlers
from hawker.worker.handlers.secrets import SecretHandlers
from hawker.worker.handlers.snapshots import SnapshotHandlers
from hawker.worker.handlers.volumes import VolumeHandlers
from hawker.worker.order import NoAppBundles, OrderIntake, OrderLedger
from hawker.worker.parts import Parts


def intake_of(parts: Parts, ledger: OrderLedger) -> OrderIntake:
    """Where this worker's orders become machines."""
    bundles = parts.porter or NoAppBundles()
    return OrderIntake(parts.node, parts.deps, parts.apps, parts.operations, ledger, bundles)


def worker_handlers(parts: Parts) -> Handlers:
    """Everything that this worker answers."""
    handlers = Handlers()
    AppHandlers(parts).bind(handlers)
    ClusterHandlers(parts).bind(handlers)
    machines = MachineHandlers(parts)
    machines.bind(handlers)
    OperationHandlers(parts).bind(handlers)
    HistoryHandlers(parts).bind(handlers)
    SecretKeyHandlers(parts).bind(handlers)
    SecretHandlers(parts).bind(handlers)
    VolumeHandlers(parts).bind(handlers)
    SnapshotHandlers(parts).bind(handlers)
    LeaseHandlers(parts).bind(handlers)
    MemoryHandlers(parts).bind(handlers)
    MetadataHandlers(parts).bind(handlers)
    IpHandlers(parts).bind(handlers)
    PolicyHandlers(parts).bind(handlers)
    NodeHandlers(parts).bind(handlers)
    PlacementHandlers(parts).bind(handlers)
    ledger = OrderLedger(parts.deps.store, parts.deps.clock, parts.deps.table)
    OrderHandlers(intake_of(parts, ledger), ledger, Bids(parts), parts.operations, machines.show).bind(handlers)
    PeerAppHandlers(parts).bind(handlers)
    MetricsHandlers(parts).bind(handlers)
    DoctorHandlers(parts).bind(handlers)
    CatalogHandlers(parts).bind(handlers)
    handlers.add(InsideHandlers(parts), OrgHandlers(parts), RunHandlers(parts), ImageHandlers(parts))
    return handlers
