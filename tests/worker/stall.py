"""A whole worker in one process: everything that `up` joins, over a host and a store in memory, in virtual time.

A `Stall` is what outlives the daemon; `open` is one life of it. Leaving a life is what SIGTERM is; `Death` raised in it
is kill -9, and `crash` is then what the disk kept.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from hawker.api.bodies import (
    CreateAppRequest,
    CreateMachineRequest,
    Machine,
    MachineEvent,
    SetMetadataRequest,
    StopRequest,
    UpdateMachineRequest,
    WaitState,
)
from hawker.api.local import LocalCaller
from hawker.api.routes import (
    CREATE_APP,
    CREATE_MACHINE,
    DELETE_MACHINE,
    GET_MACHINE,
    RESTART_MACHINE,
    SET_METADATA,
    START_MACHINE,
    STOP_MACHINE,
    UPDATE_MACHINE,
    WAIT_MACHINE,
    AppParams,
    DeleteMachineQuery,
    GetMachineQuery,
    MachineParams,
    MetadataKeyParams,
    WaitQuery,
)
from hawker.errors import NameTaken
from hawker.fsm.run import State as RunState
from hawker.fsm.runner import Runner
from hawker.fsm.view import RunView
from hawker.ids import MachineId, NodeId
from hawker.image.cache import ImageCache
from hawker.image.limits import BlockChoice, ImageSettings
from hawker.image.resolve import Resolved
from hawker.machine import State
from hawker.node import Capacity
from hawker.runtime.driver import Features
from hawker.runtime.fake import FakeDriver
from hawker.settings import Settings
from hawker.store.memory import Faults, MemoryStore
from hawker.worker.apps import Apps
from hawker.worker.changes import Changes
from hawker.worker.handlers import worker_handlers
from hawker.worker.health import Health
from hawker.worker.lifecycle import FLOWS
from hawker.worker.lifecycle.deps import Deps, machine_resource
from hawker.worker.operations import Operations
from hawker.worker.parts import Parts
from hawker.worker.probe import Finding, Probe
from hawker.worker.reconcile import Reconciler
from hawker.worker.records import MACHINES, MachineRecord, NodeRecord
from hawker.worker.supervisor import Supervisor
from hawker.worker.table import MachineTable
from tests.waiting import eventually
from tests.worker.hourglass import Hourglass, LoopClock
from tests.worker.machines import config_of
from tests.worker.premises import Cellar, Death, Fuse, Shelves, Wires, fused

APP = "stall"
ROOM = Capacity(cpus=4, memory_mib=1024, disk_mib=100_000)
LIFE_S = 7 * 86_400.0


class Prober:
    """Answers probes as told, by port; passing otherwise. `asked` are those that came."""

    def __init__(self) -> None:
        self.answers: dict[int, Finding] = {}
        self.asked: list[Probe] = []

    async def __call__(self, probe: Probe) -> Finding:
        self.asked.append(probe)
        await anyio.lowlevel.checkpoint()
        return self.answers.get(probe.port, Finding(True, "Success"))


class Images(ImageCache):
    """The real cache; fetching waits for the event that `held` has for the reference."""

    held: dict[str, anyio.Event]

    async def fetch(self, resolved: Resolved, *arguments: Any, **named: Any) -> None:
        if resolved.reference in self.held:
            await self.held[resolved.reference].wait()
        await super().fetch(resolved, *arguments, **named)


class Worker:
    """One life of the daemon, and a client of it that calls the handlers as HTTP does."""

    def __init__(self, parts: Parts, reconciler: Reconciler, host: Cellar) -> None:
        self.parts = parts
        self.host = host
        self.store = parts.deps.store
        self.reconciler = reconciler
        self.api = LocalCaller(worker_handlers(parts), parts.deps.clock, "ann")

    async def app(self, name: str = APP) -> None:
        try:
            await self.api.call(CREATE_APP, body=CreateAppRequest(name=name))
        except NameTaken:
            return

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

    async def restart(self, machine_id: str, nonce: str | None = None) -> None:
        await self.api.call(RESTART_MACHINE, params=params(machine_id), nonce=nonce)

    async def update(self, machine_id: str, *, nonce: str | None = None, order: Any = None, **config: Any) -> Machine:
        body = UpdateMachineRequest(config=config_of(**config), **(order or {}))
        return await self.api.call(UPDATE_MACHINE, params=params(machine_id), body=body, nonce=nonce)

    async def destroy(self, machine_id: str, *, force: bool = False, nonce: str | None = None) -> None:
        query = DeleteMachineQuery(force=force)
        await self.api.call(DELETE_MACHINE, params=params(machine_id), query=query, nonce=nonce)

    async def set_metadata(self, machine_id: str, key: str, value: str) -> None:
        target = MetadataKeyParams(app_name=APP, machine_id=machine_id, key=key)
        await self.api.call(SET_METADATA, params=target, body=SetMetadataRequest(value=value))

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
            await eventually(there, 600)
        except TimeoutError:
            raise AssertionError(f"not {states} but {self.record(machine_id)}; {self.under_way(machine_id)}") from None
        return self.record(machine_id)

    def under_way(self, machine_id: str) -> list[RunView]:
        resource = machine_resource(MachineId(machine_id))
        return [run for run in self.parts.runner.list(resource=resource, active=True) if run.state != RunState.DELAYED]

    async def at_rest(self) -> None:
        """Nothing is under way, or only waits for a later moment."""

        def quiet() -> bool:
            open_runs = [run for run in self.parts.runner.list(active=True) if run.state != RunState.DELAYED]
            return not open_runs

        await eventually(quiet, 3600)

    def events(self, machine_id: str) -> list[str]:
        """`type/status`, oldest first."""
        found = self.parts.deps.table.events(self.store, MachineId(machine_id), 1000)
        return [f"{event.type}/{event.status}" for event in reversed(found)]

    async def exits(self, machine_id: str) -> list[MachineEvent]:
        """Newest first."""
        return [event for event in (await self.get(machine_id)).events if event.type == "exit"]

    def machines(self) -> list[MachineRecord]:
        return [record for _, record in self.store.scan(MACHINES)]


class Stall:
    """`room` is what the host has to sell; without `reconciles` nobody tidies up after a flow."""

    def __init__(
        self, directory: Path, *, seed: int = 0, room: Capacity = ROOM, reconciles: bool = True, **settings: Any
    ) -> None:
        self.clock = LoopClock(seed)
        self.fuse = Fuse()
        self.host = Cellar(self.clock, self.fuse)
        self.rootfs, self.networks = Shelves(self.fuse), Wires(self.fuse)
        self.prober = Prober()
        self.store = MemoryStore()
        self.room = room
        self.reconciles = reconciles
        self.held: dict[str, anyio.Event] = {}
        self.directory = directory
        self.settings = Settings(data_dir=directory, **settings)

    def crash(self, keep: int | None = None, faults: Faults | None = None) -> None:
        """What the next life finds: `keep` of the commits that were not yet durable, all by default."""
        self.store = self.store.crash(self.store.pending if keep is None else keep, faults)

    def hold(self, reference: str = "hawker/hello:latest") -> anyio.Event:
        """Pulls of this image wait until the event is set."""
        return self.held.setdefault(reference, anyio.Event())

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Worker]:
        """A life of the daemon. Raises `Death` if it is killed."""
        try:
            with anyio.fail_after(LIFE_S):
                async with self._life() as worker:
                    yield worker
        except BaseExceptionGroup as group:
            raise _cause(group) from None

    @asynccontextmanager
    async def _life(self) -> AsyncIterator[Worker]:
        loop, threads = asyncio.get_running_loop(), anyio.to_thread.current_default_thread_limiter()
        if isinstance(loop, Hourglass):
            loop.mind_threads()
        images = Images(self.directory / "images", ImageSettings(block=BlockChoice.NONE), self.clock)
        images.held = self.held
        try:
            await images.open()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._die_with_the_store)
                parts = self._parts(images)
                reconciler = Reconciler(parts.deps, parts.runner)
                await tasks.start(Supervisor(parts.deps, parts.runner, parts.changes).serve)
                await tasks.start(parts.runner.serve)
                await tasks.start(parts.health.serve)
                if self.reconciles:
                    tasks.start_soon(reconciler.serve, self.settings.reconcile_every_s)
                yield Worker(parts, reconciler, self.host)
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await images.aclose()
                await eventually(lambda: not threads.borrowed_tokens)  # a dead daemon's threads are dead, too

    async def _die_with_the_store(self) -> None:
        await self.store.frozen.wait()
        raise Death

    def _parts(self, images: ImageCache) -> Parts:
        changes = Changes()
        deps = Deps(
            store=self.store,
            table=MachineTable(self.clock, changes),
            images=images,
            driver=FakeDriver(self.host, Features(rootfs=True, network=True, limits=True)),
            rootfs=self.rootfs,
            networks=self.networks,
            settings=self.settings,
            clock=self.clock,
        )
        flows = [fused(flow, self.fuse) for flow in FLOWS]
        runner = Runner(self.store, flows, deps, self.clock, queues={"pulls": 3})
        return Parts(
            node=NodeRecord(id=NodeId("0123abcd"), region="local", created_at=0.0),
            deps=deps,
            runner=runner,
            operations=Operations(deps, runner, lambda: self.room),
            apps=Apps(self.store, self.clock),
            health=Health(self.store, self.clock, changes, self.prober),
            changes=changes,
            room=lambda: self.room,
            started_at=self.clock.now(),
        )


def params(machine_id: str, app: str = APP) -> MachineParams:
    return MachineParams(app_name=app, machine_id=machine_id)


def _cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Death if anything died of it, else what the group is about."""
    deaths = group.subgroup(Death)
    if deaths is not None:
        return Death()
    while isinstance(group, BaseExceptionGroup) and len(group.exceptions) == 1:
        only = group.exceptions[0]
        if not isinstance(only, BaseExceptionGroup):
            return only
        group = only
    return group
