"""What a worker is made of, as its handlers share it. Built once, by `up`."""

from collections.abc import Callable
from dataclasses import dataclass

from hawker.catalog.contract import Catalog
from hawker.fleet.app_bundle import AppBundler
from hawker.fleet.fleet import Fleet
from hawker.fsm.runner import Runner
from hawker.netpolicy.policies import Policies
from hawker.node import Capacity
from hawker.observe.metrics import MetricsRegistry
from hawker.record.node import NodeRecord
from hawker.runtime.driver_probe import DriverVerdict
from hawker.volume.operations import Volumes
from hawker.volume.restore import Origins
from hawker.volume.snapshots import Snapshots
from hawker.volume.soft_delete import SoftDeletes
from hawker.worker.apps import Apps
from hawker.worker.changes import Changes
from hawker.worker.containers.supervisor import ContainerSupervisors
from hawker.worker.health import Health
from hawker.worker.ip_assignments import Ips
from hawker.worker.lifecycle.deps import Deps
from hawker.worker.operations import Operations
from hawker.worker.scrape import Scraper


@dataclass(frozen=True, slots=True)
class Parts:
    """`room` is what the host has to sell, read when asked. `started_at` is Unix seconds. `drivers` is what was
    found of each when the node began. `catalog` and `fleet` are None on a node that is alone."""

    node: NodeRecord
    deps: Deps
    runner: Runner[Deps]
    operations: Operations
    apps: Apps
    volumes: Volumes
    snapshots: Snapshots
    origins: Origins
    farewells: SoftDeletes
    health: Health
    tending: ContainerSupervisors
    changes: Changes
    room: Callable[[], Capacity]
    ips: Ips
    policies: Policies
    metrics: MetricsRegistry
    scraper: Scraper
    started_at: float
    drivers: tuple[DriverVerdict, ...] = ()
    catalog: Catalog | None = None
    fleet: Fleet | None = None
    porter: AppBundler | None = None
