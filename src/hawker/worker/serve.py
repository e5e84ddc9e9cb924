"""How a worker begins: its parts that work by themselves, each begun when what it builds on is there."""

from anyio.abc import TaskGroup

from hawker.worker.archivist import Archivist
from hawker.worker.calendar import Calendar
from hawker.worker.parts import Parts
from hawker.worker.reconcile import Reconciler
from hawker.worker.supervisor import Supervisor


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
