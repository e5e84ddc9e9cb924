"""A tender for each started machine with containers, and what the API shows of them. As `health`, it follows the table
of machines; what it does not find it asks nobody for.
"""

import anyio
from anyio.abc import TaskGroup, TaskStatus

from hawker.config.effective_containers import healthchecks
from hawker.ids import InstanceId, MachineId
from hawker.machine import State
from hawker.runtime.driver import ProcessPhase
from hawker.worker.changes import Changes
from hawker.worker.containers.tender import Tender
from hawker.worker.health import CheckResult
from hawker.worker.lifecycle.deps import Deps
from hawker.worker.probe import Prober
from hawker.worker.records import MACHINES, MachineRecord

_SHOWN = {
    ProcessPhase.HELD: "pending",
    ProcessPhase.STARTING: "starting",
    ProcessPhase.RUNNING: "running",
    ProcessPhase.EXITED: "exited",
}


class Tending:
    def __init__(self, deps: Deps, changes: Changes, prober: Prober) -> None:
        self._deps = deps
        self._changes = changes
        self._prober = prober
        self._tended: dict[MachineId, _Tended] = {}
        self._noted: dict[MachineId, None] = {}  # in order, so that a run can be repeated
        self._wake = anyio.Event()
        changes.listen(self._note)

    def containers(self, record: MachineRecord) -> tuple[tuple[str, str], ...]:
        """Name and state of each container, in the config's order."""
        tended = self._tended.get(record.id)
        known = {} if tended is None else {each.name: _SHOWN[each.state] for each in tended.tender.states}
        default = _untended(record) if tended is None else _SHOWN[ProcessPhase.HELD]
        return tuple((each.name or "", known.get(each.name or "", default)) for each in record.config.containers or ())

    def checks(self, record: MachineRecord) -> tuple[CheckResult, ...]:
        """The results of the containers' checks, in the config's order; warning where there is none."""
        tended = self._tended.get(record.id)
        return tuple(
            (tended and tended.tender.result(check.container, check.name))
            or CheckResult(check.name, "warning", "not checked yet", record.updated_at)
            for container in record.config.containers or ()
            for check in healthchecks(container)
        )

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Tend until cancelled."""
        async with anyio.create_task_group() as tasks:
            for _, record in list(self._deps.store.scan(MACHINES)):
                self._follow(tasks, record.id, record)
            task_status.started()
            while True:
                await self._wake.wait()
                self._wake = anyio.Event()
                noted, self._noted = self._noted, {}
                for machine_id in noted:
                    self._follow(tasks, machine_id, self._deps.store.get(MACHINES, machine_id))

    def _note(self, machine_id: MachineId) -> None:
        self._noted[machine_id] = None
        self._wake.set()

    def _follow(self, tasks: TaskGroup, machine_id: MachineId, record: MachineRecord | None) -> None:
        instance = _instance_of(record)
        current = self._tended.get(machine_id)
        if current is not None and current.instance != instance:
            current.scope.cancel()
            del self._tended[machine_id]
            current = None
        if record is not None and instance is not None and current is None:
            tender = Tender(self._deps, self._prober, record, lambda: self._turned(machine_id))
            self._tended[machine_id] = _Tended(instance, tender)
            tasks.start_soon(self._tended[machine_id].serve, name=f"tend {machine_id}")

    def _turned(self, machine_id: MachineId) -> None:
        self._changes.notify(machine_id)


def _instance_of(record: MachineRecord | None) -> InstanceId | None:
    """What is to be tended: of a machine with containers, while no flow is ending it."""
    if record is None or record.running is None or record.running.exit is not None or not record.config.containers:
        return None
    return record.running.instance_id if record.state is State.STARTED else None


def _untended(record: MachineRecord) -> str:
    """What is shown of the containers of a machine that does not run, or is on its way."""
    return "suspended" if record.state is State.SUSPENDED else "stopped"


class _Tended:
    """One tender, which can be ended."""

    def __init__(self, instance: InstanceId, tender: Tender) -> None:
        self.instance, self.tender, self.scope = instance, tender, anyio.CancelScope()

    async def serve(self) -> None:
        with self.scope:
            await self.tender.serve()
