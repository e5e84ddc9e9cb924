"""A client of one app for a scenario: each call typed and short, and the few questions that are asked after a crash."""

from contextlib import suppress
from dataclasses import dataclass

from hawker.api.caller import Caller
from hawker.api.contract.app import CREATE_APP, AppParams, CreateAppRequest
from hawker.api.contract.exec import EXEC_MACHINE, ExecRequest
from hawker.api.contract.image import PRUNE_IMAGES, PULL_IMAGE, PruneRequest, PullRequest
from hawker.api.contract.machine import (
    CREATE_MACHINE,
    DELETE_MACHINE,
    GET_MACHINE,
    LIST_MACHINES,
    UPDATE_MACHINE,
    CreateMachineRequest,
    DeleteMachineQuery,
    ExitEvent,
    Machine,
    MachineParams,
    SignalRequest,
    UpdateMachineRequest,
    WaitState,
)
from hawker.api.contract.machine_operation import (
    RESTART_MACHINE,
    SIGNAL_MACHINE,
    START_MACHINE,
    STOP_MACHINE,
    SUSPEND_MACHINE,
    WAIT_MACHINE,
    WaitQuery,
)
from hawker.api.contract.memory import SET_MEMORY, SetMemoryRequest
from hawker.api.contract.run import LIST_RUNS, ListRunsQuery, RunSummary
from hawker.api.contract.volume import (
    CREATE_VOLUME,
    DELETE_VOLUME,
    EXTEND_VOLUME,
    LIST_VOLUMES,
    CreateVolumeRequest,
    ExtendVolumeRequest,
    Volume,
    VolumeParams,
)
from hawker.config import MachineConfig
from hawker.errors import NameTaken, NotFound
from hawker.history.flow import ARCHIVE
from hawker.ids import MachineId, VolumeId
from hawker.machine import State

_WAIT_S = 55.0


@dataclass(frozen=True, slots=True)
class ScenarioClient:
    client: Caller
    app: str

    async def open(self) -> None:
        """Safe to repeat."""
        with suppress(NameTaken):
            await self.client.call(CREATE_APP, body=CreateAppRequest(name=self.app))

    # Orders: each returns once it is acknowledged.

    async def create(self, config: MachineConfig, key: str, *, launch: bool = True) -> MachineId:
        body = CreateMachineRequest(config=config, skip_launch=not launch)
        params = AppParams(app_name=self.app)
        made = await self.client.call(CREATE_MACHINE, params=params, body=body, idempotency_key=key)
        return MachineId(made.id)

    async def start(self, machine_id: MachineId) -> None:
        await self.client.call(START_MACHINE, params=self._params(machine_id))

    async def stop(self, machine_id: MachineId) -> None:
        await self.client.call(STOP_MACHINE, params=self._params(machine_id))

    async def suspend(self, machine_id: MachineId) -> None:
        await self.client.call(SUSPEND_MACHINE, params=self._params(machine_id))

    async def set_memory(self, machine_id: MachineId, limit_mib: int) -> None:
        await self.client.call(SET_MEMORY, params=self._params(machine_id), body=SetMemoryRequest(limit_mb=limit_mib))

    async def restart(self, machine_id: MachineId) -> None:
        await self.client.call(RESTART_MACHINE, params=self._params(machine_id))

    async def update(self, machine_id: MachineId, config: MachineConfig) -> None:
        await self.client.call(
            UPDATE_MACHINE, params=self._params(machine_id), body=UpdateMachineRequest(config=config)
        )

    async def destroy(self, machine_id: MachineId) -> None:
        query = DeleteMachineQuery(force=True)
        await self.client.call(DELETE_MACHINE, params=self._params(machine_id), query=query)

    async def signal(self, machine_id: MachineId, name: str) -> None:
        await self.client.call(SIGNAL_MACHINE, params=self._params(machine_id), body=SignalRequest(signal=name))

    async def volume(self, name: str, size_gb: int = 1) -> VolumeId:
        """The one of this name, made if it is not there. Raises `Fault` when it cannot be made."""
        params = AppParams(app_name=self.app)
        for volume in await self.volumes(name):
            if volume.state in ("creating", "created", "extending"):
                return VolumeId(volume.id)
        body = CreateVolumeRequest(name=name, size_gb=size_gb, encrypted=False, auto_backup_enabled=False)
        return VolumeId((await self.client.call(CREATE_VOLUME, params=params, body=body)).id)

    async def volumes(self, name: str) -> list[Volume]:
        """Those of this name, also when they are on their way out."""
        listed = await self.client.call(LIST_VOLUMES, params=AppParams(app_name=self.app))
        return [volume for volume in listed.items if volume.name == name]

    async def delete_volumes(self, name: str) -> None:
        """Safe to repeat."""
        for volume in await self.volumes(name):
            with suppress(NotFound):
                params = VolumeParams(app_name=self.app, volume_id=volume.id)
                await self.client.call(DELETE_VOLUME, params=params)

    async def extend(self, volume_id: VolumeId, size_gb: int) -> None:
        params = VolumeParams(app_name=self.app, volume_id=volume_id)
        await self.client.call(EXTEND_VOLUME, params=params, body=ExtendVolumeRequest(size_gb=size_gb))

    # Around them.

    async def reaches(self, machine_id: MachineId, state: State) -> None:
        """Wait for it. Raises `DeadlineExceeded`."""
        query = WaitQuery(state=(WaitState(state.value),), timeout=_WAIT_S)
        await self.client.call(WAIT_MACHINE, params=self._params(machine_id), query=query)

    async def pull(self, reference: str) -> None:
        async with self.client.stream(PULL_IMAGE, body=PullRequest(reference=reference)) as events:
            async for _ in events:
                pass

    async def prune(self) -> None:
        await self.client.call(PRUNE_IMAGES, body=PruneRequest())

    async def machines(self) -> tuple[Machine, ...]:
        return tuple((await self.client.call(LIST_MACHINES, params=AppParams(app_name=self.app))).items)

    async def machine(self, machine_id: MachineId) -> Machine:
        return await self.client.call(GET_MACHINE, params=self._params(machine_id))

    async def runs(self, machine_id: MachineId) -> tuple[RunSummary, ...]:
        """On the machine, newest first; then on its history."""
        on_it = (await self.client.call(LIST_RUNS, query=ListRunsQuery(resource_id=machine_id))).runs
        archived = (await self.client.call(LIST_RUNS, query=ListRunsQuery(flow=ARCHIVE.name))).runs
        return (*on_it, *(run for run in archived if run.resource_id == machine_id))

    async def said(self, machine_id: MachineId, *command: str) -> str:
        """What a command in the machine writes to stdout."""
        body = ExecRequest(command=command, timeout=int(_WAIT_S))
        return (await self.client.call(EXEC_MACHINE, params=self._params(machine_id), body=body)).stdout

    def _params(self, machine_id: MachineId) -> MachineParams:
        return MachineParams(app_name=self.app, machine_id=machine_id)


def exits_of(machine: Machine) -> list[ExitEvent]:
    """Oldest first."""
    requests = [event.request for event in reversed(machine.events) if event.type == "exit"]
    return [request.exit_event for request in requests if request is not None]
