"""How a worker is joined and how it begins: for the daemon, and for the simulator that plays it."""

from collections.abc import Callable

from anyio.abc import TaskGroup

from hawker.fsm.runner import Runner
from hawker.node import Capacity
from hawker.observe.metrics import Metrics
from hawker.worker.apps import Apps
from hawker.worker.archivist import Archivist
from hawker.worker.calendar import Calendar
from hawker.worker.health import Health
from hawker.worker.lifecycle.deps import Deps
from hawker.worker.operations import Operations
from hawker.worker.parts import Parts
from hawker.worker.probe import Prober
from hawker.worker.reconcile import Reconciler
from hawker.worker.records import NodeRecord
from hawker.worker.supervisor import Supervisor


def join(
    deps: Deps,
    runner: Runner[Deps],
    node: NodeRecord,
    *,
    room: Callable[[], Capacity],
    prober: Prober,
    metrics: Metrics,
) -> Parts:
    """Everything that handlers are given."""
    changes = deps.table.changes
    return Parts(
        node=node,
        deps=deps,
        runner=runner,
        operations=Operations(deps, runner, room),
        apps=Apps(deps.store, deps.clock),
        health=Health(deps.store, deps.clock, changes, prober),
        changes=changes,
        room=room,
        metrics=metrics,
        started_at=deps.clock.now(),
    )


async def begin(tasks: TaskGroup, parts: Parts, supervisor: Supervisor, reconciler: Reconciler | None) -> None:
    """Take up what the last daemon left, before the first call is answered: exits that were missed are recorded before
    runs are resumed, or a run would take a machine for running that has ended. The reconciler comes last, since it
    mends what no run is at; without one nobody tidies up after a flow. All end with the task group."""
    await tasks.start(supervisor.serve)
    await tasks.start(parts.runner.serve)
    await tasks.start(parts.health.serve)
    await tasks.start(Calendar(parts).serve)
    if reconciler is not None:
        tasks.start_soon(reconciler.serve, parts.deps.settings.reconcile_every_s)
    if parts.deps.archive is not None:
        archivist = Archivist(parts.deps, parts.runner, parts.deps.archive)
        tasks.start_soon(archivist.serve, parts.deps.settings.reconcile_every_s)
