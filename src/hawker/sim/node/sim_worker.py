"""One life of the daemon as a client and an observer see it: the handlers are called as HTTP calls them."""

from functools import cached_property
from typing import Any

import msgspec
from anyio.abc import TaskGroup

from hawker.api.contract.app import CREATE_APP, AppParams, CreateAppRequest
from hawker.api.contract.machine import (
    CREATE_MACHINE,
    DELETE_MACHINE,
    GET_MACHINE,
    SET_METADATA,
    UPDATE_MACHINE,
    CreateMachineRequest,
    DeleteMachineQuery,
    GetMachineQuery,
    Machine,
    MachineEvent,
    MachineParams,
    MetadataKeyParams,
    SetMetadataRequest,
    StopRequest,
    UpdateMachineRequest,
    WaitState,
)
from hawker.api.contract.machine_operation import (
    CREATE_LEASE,
    RELEASE_LEASE,
    RESTART_MACHINE,
    SET_MEMORY,
    START_MACHINE,
    STOP_MACHINE,
    SUSPEND_MACHINE,
    WAIT_MACHINE,
    LeaseAnswer,
    LeaseRequest,
    MemoryAnswer,
    SetMemoryRequest,
    WaitQuery,
)
from hawker.api.contract.market import OrderRequest
from hawker.api.contract.network_policy import (
    LIST_POLICIES,
    PUT_POLICY,
    NetworkPolicyRequest,
    PolicyPort,
    Rule,
    Selector,
)
from hawker.api.contract.volume import (
    CREATE_SNAPSHOT,
    CREATE_VOLUME,
    DELETE_VOLUME,
    EXTEND_VOLUME,
    GET_VOLUME,
    UNDELETE_VOLUME,
    CreateVolumeRequest,
    ExtendVolumeAnswer,
    ExtendVolumeRequest,
    Volume,
    VolumeParams,
    VolumeSnapshot,
)
from hawker.api.handlers import Handlers
from hawker.api.in_process import InProcessCaller
from hawker.api.route import Call, NoQuery
from hawker.config import MachineConfig
from hawker.errors import NameTaken
from hawker.fsm.run import State as RunState
from hawker.fsm.view import RunView
from hawker.handlers.assembly import intake_of
from hawker.handlers.machines import MachineHandlers
from hawker.ids import MachineId
from hawker.machine import State
from hawker.policy import Direction, Transport
from hawker.record.machine import MACHINES, MachineRecord, machine_resource
from hawker.sim.harness.loop import eventually
from hawker.sim.node.fake_host import SimHost
from hawker.up.wiring import node_handlers
from hawker.worker.assembly import AssembledWorker
from hawker.worker.order import HomeOfAll, OrderLedger
from hawker.worker.reconcile import Reconciler

APP = "stall"


class _DirectOrders:
    """Orders that are given to the one worker there is, without a market: what is simulated is how it fills them."""

    def __init__(self, parts: AssembledWorker) -> None:
        deps = parts.deps
        self._parts = parts
        self._intake = intake_of(parts, OrderLedger(deps.store, deps.clock, deps.table), HomeOfAll())
        self._show = MachineHandlers(parts).show
        self._given = 0

    async def create(self, call: Call[AppParams, NoQuery, CreateMachineRequest]) -> Machine:
        self._given += 1
        order_id = call.idempotency_key or f"direct-{self._parts.deps.clock.now()}-{self._given}"
        order = OrderRequest(order_id=order_id, app=self._intake.export(call.params.app_name), machine=call.body)
        made = await self._intake.accept_order(order, call.caller)
        return self._show(made, nonce=made.lease.nonce if made.lease and call.body.lease_ttl else None)


def handlers_of_one(parts: AssembledWorker) -> Handlers:
    """All that a simulated node answers, which is a worker and nothing around it."""
    handlers = node_handlers(parts)
    handlers.on(CREATE_MACHINE, _DirectOrders(parts).create)
    return handlers


class SimWorker:
    """One life of the daemon, and a client of it that calls the handlers as HTTP does. What is to die with it runs in
    `tasks`."""

    def __init__(self, parts: AssembledWorker, reconciler: Reconciler, host: SimHost, tasks: TaskGroup) -> None:
        self.tasks = tasks
        self.parts = parts
        self.host = host
        self.store = parts.deps.store
        self.reconciler = reconciler

    @cached_property
    def handlers(self) -> Handlers:
        """Made once in a life, and only for whoever calls: a worker of a simulated fleet is asked by its node."""
        return handlers_of_one(self.parts)

    @cached_property
    def api(self) -> InProcessCaller:
        return InProcessCaller(self.handlers, self.parts.deps.clock, "ann")

    async def app(self, name: str = APP) -> None:
        try:
            await self.api.call(CREATE_APP, body=CreateAppRequest(name=name))
        except NameTaken:
            return

    async def policy(self) -> None:
        """All machines of the app may be reached at one port."""
        here = AppParams(app_name=APP)
        if not await self.api.call(LIST_POLICIES, params=here):
            port = PolicyPort(protocol=Transport.TCP, port=80)
            rule = Rule(action="allow", direction=Direction.INGRESS, ports=(port,))
            body = NetworkPolicyRequest(name="web", selector=Selector(all=True), allowed=(rule,))
            await self.api.call(PUT_POLICY, params=here, body=body)

    async def create(self, *, app: str = APP, key: str | None = None, order: Any = None, **config: Any) -> Machine:
        body = CreateMachineRequest(config=config_of(**config), **(order or {}))
        return await self.api.call(CREATE_MACHINE, params=AppParams(app_name=app), body=body, idempotency_key=key)

    async def started(self, **config: Any) -> str:
        """A new machine's id, once it runs."""
        machine = await self.create(**config)
        await self.reaches(machine.id, State.STARTED)
        return machine.id

    async def stopped(self, **config: Any) -> str:
        machine = await self.create(order={"skip_launch": True}, **config)
        await self.reaches(machine.id, State.STOPPED)
        return machine.id

    async def get(self, machine_id: str, **query: Any) -> Machine:
        return await self.api.call(GET_MACHINE, params=params(machine_id), query=GetMachineQuery(**query))

    async def start(self, machine_id: str, nonce: str | None = None) -> State:
        answer = await self.api.call(START_MACHINE, params=params(machine_id), nonce=nonce)
        return answer.previous_state

    async def stop(self, machine_id: str, nonce: str | None = None, **body: Any) -> None:
        await self.api.call(STOP_MACHINE, params=params(machine_id), body=StopRequest(**body), nonce=nonce)

    async def suspend(self, machine_id: str, nonce: str | None = None) -> str:
        """How it was done."""
        return (await self.api.call(SUSPEND_MACHINE, params=params(machine_id), nonce=nonce)).kind

    async def set_memory(self, machine_id: str, limit_mib: int, nonce: str | None = None) -> MemoryAnswer:
        body = SetMemoryRequest(limit_mb=limit_mib)
        return await self.api.call(SET_MEMORY, params=params(machine_id), body=body, nonce=nonce)

    async def restart(self, machine_id: str, nonce: str | None = None) -> None:
        await self.api.call(RESTART_MACHINE, params=params(machine_id), nonce=nonce)

    async def update(self, machine_id: str, *, nonce: str | None = None, order: Any = None, **config: Any) -> Machine:
        body = UpdateMachineRequest(config=config_of(**config), **(order or {}))
        return await self.api.call(UPDATE_MACHINE, params=params(machine_id), body=body, nonce=nonce)

    async def destroy(self, machine_id: str, *, force: bool = False, nonce: str | None = None) -> None:
        query = DeleteMachineQuery(force=force)
        await self.api.call(DELETE_MACHINE, params=params(machine_id), query=query, nonce=nonce)

    async def volume(self, name: str, **fields: Any) -> Volume:
        """A new volume, as soon as its order is answered."""
        body = CreateVolumeRequest(name=name, **fields)
        return await self.api.call(CREATE_VOLUME, params=AppParams(app_name=APP), body=body)

    async def extend_volume(self, volume_id: str, size_gb: int) -> ExtendVolumeAnswer:
        target = VolumeParams(app_name=APP, volume_id=volume_id)
        return await self.api.call(EXTEND_VOLUME, params=target, body=ExtendVolumeRequest(size_gb=size_gb))

    async def delete_volume(self, volume_id: str) -> Volume:
        return await self.api.call(DELETE_VOLUME, params=VolumeParams(app_name=APP, volume_id=volume_id))

    async def undelete_volume(self, volume_id: str) -> Volume:
        return await self.api.call(UNDELETE_VOLUME, params=VolumeParams(app_name=APP, volume_id=volume_id))

    async def snapshot(self, volume_id: str) -> VolumeSnapshot:
        target = VolumeParams(app_name=APP, volume_id=volume_id)
        return (await self.api.call(CREATE_SNAPSHOT, params=target)).Msg.backup

    async def get_volume(self, volume_id: str) -> Volume:
        return await self.api.call(GET_VOLUME, params=VolumeParams(app_name=APP, volume_id=volume_id))

    async def set_metadata(self, machine_id: str, key: str, value: str) -> None:
        target = MetadataKeyParams(app_name=APP, machine_id=machine_id, key=key)
        await self.api.call(SET_METADATA, params=target, body=SetMetadataRequest(value=value))

    async def lease(self, machine_id: str, ttl_s: int, nonce: str | None = None) -> LeaseAnswer:
        body = LeaseRequest(ttl=ttl_s)
        return await self.api.call(CREATE_LEASE, params=params(machine_id), body=body, nonce=nonce)

    async def release(self, machine_id: str, nonce: str | None) -> None:
        await self.api.call(RELEASE_LEASE, params=params(machine_id), nonce=nonce)

    async def wait(self, machine_id: str, *states: str, **query: Any) -> State:
        wanted = WaitQuery(state=tuple(map(WaitState, states)), **query)
        return (await self.api.call(WAIT_MACHINE, params=params(machine_id), query=wanted)).state

    # Looking at it.

    def record(self, machine_id: str) -> MachineRecord:
        found = self.parts.deps.table.lookup(self.store, MachineId(machine_id))
        assert found is not None, f"there is no machine {machine_id}"
        return found

    async def reaches(self, machine_id: str, *states: State) -> MachineRecord:
        """The record once it is in one of the states and nothing is under way at it."""

        def there() -> bool:
            return self.record(machine_id).state in states and not self.under_way(machine_id)

        try:
            await eventually(self.parts.deps.clock, there, 600)
        except TimeoutError:
            raise AssertionError(f"not {states} but {self.record(machine_id)}; {self.under_way(machine_id)}") from None
        return self.record(machine_id)

    def under_way(self, machine_id: str) -> list[RunView]:
        resource = machine_resource(MachineId(machine_id))
        return [run for run in self.parts.runner.list(resource=resource, active=True) if run.state != RunState.DELAYED]

    async def at_rest(self, every_s: float = 0.01) -> None:
        """Nothing is under way, or only waits for a later moment."""

        def quiet() -> bool:
            open_runs = [run for run in self.parts.runner.list(active=True) if run.state != RunState.DELAYED]
            return not open_runs

        await eventually(self.parts.deps.clock, quiet, 3600, every_s)

    def events(self, machine_id: str) -> list[str]:
        """`type/status`, oldest first."""
        found = self.parts.deps.table.events(self.store, MachineId(machine_id), 1000)
        return [f"{event.type}/{event.status}" for event in reversed(found)]

    async def exits(self, machine_id: str) -> list[MachineEvent]:
        """Newest first."""
        return [event for event in (await self.get(machine_id)).events if event.type == "exit"]

    def machines(self) -> list[MachineRecord]:
        return [record for _, record in self.store.scan(MACHINES)]


def params(machine_id: str, app: str = APP) -> MachineParams:
    return MachineParams(app_name=app, machine_id=machine_id)


def config_of(**fields: Any) -> MachineConfig:
    return msgspec.convert({"image": "hawker/hello", **fields}, MachineConfig)
