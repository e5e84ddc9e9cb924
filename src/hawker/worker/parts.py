"""What a worker is made of, as its handlers share it. Built once, by `up`."""

from collections.abc import Callable
from dataclasses import dataclass

from hawker.catalog.contract import Catalog
from hawker.fsm.runner import Runner
from hawker.node import Capacity
from hawker.observe.metrics import MetricsRegistry
from hawker.runtime.probe import Verdict
from hawker.worker.apps import Apps
from hawker.worker.changes import Changes
from hawker.worker.containers.tending import Tending
from hawker.worker.fleet.fleet import Fleet
from hawker.worker.health import Health
from hawker.worker.ips import Ips
from hawker.worker.lifecycle.deps import Deps
from hawker.worker.luggage import Porter
from hawker.worker.operations import Operations
from hawker.worker.policies import Policies
from hawker.worker.records import NodeRecord
from hawker.worker.scrape import Scraper
from hawker.worker.volumes.farewell import Farewells
from hawker.worker.volumes.operations import Volumes
from hawker.worker.volumes.origins import Origins
from hawker.worker.volumes.snapshots import Snapshots


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
    farewells: Farewells
    health: Health
    tending: Tending
    changes: Changes
    room: Callable[[], Capacity]
    ips: Ips
    policies: Policies
    metrics: MetricsRegistry
    scraper: Scraper
    started_at: float
    drivers: tuple[Verdict, ...] = ()
    catalog: Catalog | None = None
    fleet: Fleet | None = None
    porter: Porter | None = None
