"""What a worker is made of, as its handlers share it. Built once, by `up`."""

from collections.abc import Callable
from dataclasses import dataclass

from hawker.fsm.runner import Runner
from hawker.node import Capacity
from hawker.observe.metrics import Metrics
from hawker.worker.apps import Apps
from hawker.worker.changes import Changes
from hawker.worker.health import Health
from hawker.worker.lifecycle.deps import Deps
from hawker.worker.operations import Operations
from hawker.worker.records import NodeRecord


@dataclass(frozen=True, slots=True)
class Parts:
    """`room` is what the host has to sell, read when asked. `started_at` is Unix seconds."""

    node: NodeRecord
    deps: Deps
    runner: Runner[Deps]
    operations: Operations
    apps: Apps
    health: Health
    changes: Changes
    room: Callable[[], Capacity]
    metrics: Metrics
    started_at: float
