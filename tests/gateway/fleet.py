"""A fleet in one process and in virtual time: whole workers, and a wire from brokers to them that fails as told."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from hawker.api.contract.app import CREATE_APP, AppParams, CreateAppRequest
from hawker.api.contract.machine import CREATE_MACHINE, CreateMachineRequest, Machine
from hawker.api.contract.market import PLACE
from hawker.api.directory import Node
from hawker.api.failure import ConnectionLost, Overdue, Unreachable
from hawker.api.handlers import Handlers
from hawker.api.in_process import InProcessCaller
from hawker.errors import HawkerError
from hawker.ids import AppName, NodeId
from hawker.machine import GONE
from hawker.market.handlers import MarketHandlers
from hawker.market.preferences import Preferences, preferences
from hawker.node import Capacity
from hawker.record.app import APPS
from hawker.record.machine import MachineRecord
from hawker.record.node import NODE, NodeRecord
from hawker.record.volume import VOLUMES
from hawker.sim.harness.loop import LoopClock
from hawker.sim.node.sim_worker import APP, SimWorker, config_of
from hawker.sim.node.world import ROOM, MemoryWorld
from hawker.up.wiring import node_handlers


class Loss(Enum):
    """What becomes of one call."""

    REFUSED = "nothing was sent"
    REQUEST = "sent, and lost on the way there"
    ANSWER = "done there, and the answer lost"
    LATE = "done there only when the test says so; nobody waits any more"


class Host:
    """One node: its stall, and the life that its daemon has now."""

    def __init__(self, node_id: str, region: str, stall: MemoryWorld, labels: dict[str, str]) -> None:
        self.id, self.region, self.stall, self.labels = NodeId(node_id), region, stall, labels
        self.alive = True
        self.seen_cordoned = True  # as soon as it is
        self.worker: SimWorker | None = None
        self.handlers: Handlers | None = None
        self._over = anyio.Event()
        self._gone = anyio.Event()

    async def live(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        over, gone = self._over, self._gone
        async with self.stall.open() as worker:
            self.worker = worker
            node = NodeRecord(id=self.id, region=self.region, created_at=0.0)
            self.handlers = node_handlers(replace(worker.parts, node=node))
            task_status.started()
            await over.wait()
        gone.set()

    async def die(self) -> None:
        """As by kill -9: what was promised is what the disk has."""
        over, gone = self._over, self._gone
        self.worker = self.handlers = None
        self._over, self._gone = anyio.Event(), anyio.Event()
        over.set()
        await gone.wait()
        self.stall.crash(0)

    def made(self, app: str = APP) -> list[MachineRecord]:
        """The app's machines that are there."""
        assert self.worker is not None
        return [record for record in self.worker.machines() if record.app == app and record.state not in GONE]


class Fleet:
    """Directory and peers of any number of brokers."""

    def __init__(self, clock: LoopClock, tasks: TaskGroup, directory: Path) -> None:
        self.clock = clock
        self.region = "mad"
        self.hosts: dict[NodeId, Host] = {}
        self.home: NodeId | None = None
        self.losses: list[tuple[str, str | None, Loss]] = []
        self.late: list[Callable[[], Awaitable[Any]]] = []
        self.calls: list[tuple[str, NodeId]] = []
        self.delays: dict[str, float] = {}
        self._tasks = tasks
        self._directory = directory

    async def host(
        self, region: str = "mad", *, room: Capacity = ROOM, labels: dict[str, str] | None = None, **settings: Any
    ) -> Host:
        number = len(self.hosts)
        node_id = f"{number:08x}"
        labels = labels or {}
        said = tuple(f"{key}={value}" for key, value in labels.items())
        stall = MemoryWorld(self._directory / node_id, seed=number, room=room, labels=said, **settings)
        found = Host(node_id, region, stall, labels)
        await self._tasks.start(found.live)
        self.hosts[found.id] = found
        if self.home is None:
            await self.app(found)
        return found

    async def app(self, home: Host) -> None:
        assert home.handlers is not None
        await InProcessCaller(home.handlers, self.clock, "ann").call(CREATE_APP, body=CreateAppRequest(name=APP))
        self.home = home.id

    async def restart(self, host: Host) -> None:
        if host.worker is not None:
            await host.die()
        await self._tasks.start(host.live)

    def broker(self, prefer: Preferences | None = None, *, limited: bool = False) -> "Broker":
        return Broker(self, prefer or preferences(), limited)

    def lose(self, route: str, loss: Loss, node: Host | None = None, times: int = 1) -> None:
        """The next so many calls of this route, to this node if one is named."""
        self.losses += [(route, None if node is None else node.id, loss)] * times

    def slow(self, route: str, seconds: float) -> None:
        """All calls of this route."""
        self.delays[route] = seconds

    async def cordon(self, host: Host) -> None:
        record = NodeRecord(id=host.id, region=host.region, created_at=0.0, cordoned=True)
        await host.stall.store.write(lambda tx: tx.put(NODE, "self", record))

    async def knows(self, host: Host) -> None:
        """The app, though it is not its home."""
        home = self.hosts[self.home or host.id]
        app = home.stall.store.get(APPS, AppName(APP))
        assert app is not None
        await host.stall.store.write(lambda tx: tx.put(APPS, APP, app))

    async def at_rest(self) -> None:
        for host in self.hosts.values():
            if host.worker is not None:
                await host.worker.at_rest()

    def made(self) -> list[MachineRecord]:
        return [record for host in self.hosts.values() if host.worker is not None for record in host.made()]

    # Directory.

    def nodes(self) -> Sequence[Node]:
        return [found for node_id in self.hosts if (found := self.node(node_id)) is not None]

    def node(self, node_id: NodeId) -> Node | None:
        host = self.hosts.get(node_id)
        if host is None:
            return None
        record = host.stall.store.get(NODE, "self")
        return Node(
            id=host.id,
            region=host.region,
            alive=host.alive,
            cordoned=host.seen_cordoned and record is not None and record.cordoned,
            drivers=("fake",),
            labels=host.labels,
        )

    def owner_of_machine(self, machine_id: str, app: AppName | None = None) -> NodeId | None:
        return next((host.id for host in self.hosts.values() if any(m.id == machine_id for m in host.made())), None)

    def owner_of_volume(self, volume_id: str) -> NodeId | None:
        return next((host.id for host in self.hosts.values() if host.stall.store.get(VOLUMES, volume_id)), None)

    def nodes_of_app(self, app: AppName) -> Sequence[NodeId]:
        return () if self.home is None or app != APP else (self.home,)

    def home_of_app(self, app: AppName) -> NodeId | None:
        return self.home

    async def caught_up(self, token: str, *, timeout_s: float) -> bool:
        return True

    # Peers.

    def caller(self, node_id: NodeId, *, behalf: str) -> "Wire":
        return Wire(self, self.hosts[node_id], behalf)

    def loss_of(self, route: str, node: NodeId) -> Loss | None:
        for index, (name, where, loss) in enumerate(self.losses):
            if name == route and where in (None, node):
                del self.losses[index]
                return loss
        return None

    async def deliver(self) -> list[Any]:
        """What was late comes now: the answers, or the errors that nobody hears."""
        heard = []
        while self.late:
            try:
                heard.append(await self.late.pop(0)())
            except HawkerError as error:
                heard.append(error)
        return heard


class Wire:
    """A `Caller` of one host."""

    def __init__(self, fleet: Fleet, host: Host, behalf: str) -> None:
        self._fleet, self._host, self._behalf = fleet, host, behalf

    async def call(self, route: Any, *, timeout_s: float | None = None, **given: Any) -> Any:
        fleet, host = self._fleet, self._host
        fleet.calls.append((route.name, host.id))
        loss = fleet.loss_of(route.name, host.id)
        await anyio.lowlevel.checkpoint()
        if loss is Loss.REFUSED or host.handlers is None:
            raise Unreachable(f"cannot reach {host.id}")
        if loss is Loss.REQUEST:
            raise ConnectionLost("the connection was lost")

        async def done() -> Any:
            if host.handlers is None:
                raise Unreachable(f"cannot reach {host.id}")
            caller = InProcessCaller(host.handlers, fleet.clock, self._behalf)
            with anyio.move_on_after(timeout_s):
                await fleet.clock.sleep(fleet.delays.get(route.name, 0.0))
                return await caller.call(route, timeout_s=timeout_s, **given)
            raise Overdue("no answer in time")

        if loss is Loss.LATE:
            fleet.late.append(done)
            raise Overdue("no answer in time")
        answer = await done()
        if loss is Loss.ANSWER:
            raise ConnectionLost("the connection was lost")
        return answer

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a broker's market does not {name}")


class Broker:
    """One of any number; forgetting it is all that killing it takes."""

    def __init__(self, fleet: Fleet, prefer: Preferences, limited: bool) -> None:
        self.handlers = Handlers()
        MarketHandlers(fleet, fleet, prefer, fleet.clock, limited=limited).bind(self.handlers)
        self.api = InProcessCaller(self.handlers, fleet.clock, "ann")

    async def order(
        self, *, key: str | None = None, name: str | None = None, region: str | None = None, **config: Any
    ) -> Machine:
        body = CreateMachineRequest(config=config_of(**config), region=region, name=name)
        return await self.api.call(
            CREATE_MACHINE, params=AppParams(app_name=APP), body=body, idempotency_key=key, timeout_s=600
        )

    async def place(self, body: Any, key: str | None = None) -> Any:
        return await self.api.call(PLACE, body=body, idempotency_key=key, timeout_s=600)


@asynccontextmanager
async def fleet_at(directory: Path, hosts: int = 0) -> AsyncIterator[Fleet]:
    async with anyio.create_task_group() as tasks:
        fleet = Fleet(LoopClock(7), tasks, directory)
        for _ in range(hosts):
            await fleet.host()
        yield fleet
        for host in fleet.hosts.values():
            if host.worker is not None:
                await host.die()
        tasks.cancel_scope.cancel()
