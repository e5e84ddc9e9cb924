"""Looks after the containers of one started machine: sees what is so on the host, asks the plan, does as it says.

It may be killed at any moment and begun again: what is so is asked of the driver each time, the count of retries is in
the machine's record before a run begins, and a run that has begun is not begun twice. Only the answers of checks, and
how long ago an exit was first seen, are its own.
"""

import math
from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import msgspec
from anyio.abc import TaskGroup, TaskStatus

from hawker.api.contract.body import instant
from hawker.api.contract.machine import ContainerStatus
from hawker.clock import Clock
from hawker.config import Container
from hawker.config.effective import container_restart, container_stop, healthchecks
from hawker.containment import UNFORESEEN_AGAIN_S, contained
from hawker.errors import HawkerError, NotFound, leaf_of
from hawker.fair.table import CHECKS_OF_MACHINE
from hawker.fair.turns import Turns
from hawker.ids import InstanceId, MachineId
from hawker.log import bind
from hawker.machine import State
from hawker.record.machine import MACHINES, CheckResult, ContainerRetry, Detail, MachineRecord
from hawker.runtime.driver import Driver, Exit, ProcessPhase, ProcessState
from hawker.store.contract import Durability, Store, Tx
from hawker.worker.changes import Changes
from hawker.worker.containers.health import Asker, Watch
from hawker.worker.containers.plan import Blocked, Condition, Need, Rules, SeenContainer, Start, plan
from hawker.worker.health import Prober
from hawker.worker.table import EVENTS_KEPT, Happened, MachineTable

_log = bind("hawker.containers")
_AGAIN_S = 1.0
_ALL_TOLD = 10  # runs of a container whose ends are all told


class ContainerSupervisor:
    """The supervisor of the containers of one instance. `turned` is called when what it shows has changed."""

    def __init__(
        self,
        store: Store,
        table: MachineTable,
        driver: Driver,
        clock: Clock,
        prober: Prober,
        commands: Turns,
        record: MachineRecord,
        turned: Callable[[], None],
    ) -> None:
        assert record.running is not None
        self._store = store
        self._table = table
        self._driver = driver
        self._clock = clock
        self._record = record
        self._instance: InstanceId = record.running.instance_id
        self._containers = record.config.containers or ()
        self._rules = rules_of(self._containers)
        self._ask = Asker(
            driver, prober, commands, record.id, record.network.private_ip, record.app, record.network.ipv4
        )
        self._turned = turned
        self._wake = anyio.Event()
        self._watches: dict[int, _Watched] = {}
        self._stopping: set[tuple[int, int]] = set()
        self._first_seen: dict[tuple[int, int], float] = {}
        self._told: set[Blocked] = set()
        self._told_exits: set[tuple[int, int]] = set()
        self.states: tuple[ProcessState, ...] = ()

    async def serve(self) -> None:
        """Tends the containers until the machine is told to end, or what runs is not what its config says."""
        while True:
            with contained("containers are tended", machine=self._record.id):
                return await self._tend()
            self._watches.clear()
            self._stopping.clear()
            await self._clock.sleep(UNFORESEEN_AGAIN_S)

    async def _tend(self) -> None:
        async with anyio.create_task_group() as tasks:
            while not await self._try(tasks):
                await self._clock.sleep(_AGAIN_S)
            tasks.cancel_scope.cancel()

    async def _try(self, tasks: TaskGroup) -> bool:
        """Whether it is over; False when the host cannot be asked just now."""
        try:
            while not await self._round(tasks):
                pass
        except NotFound:
            return False
        except (HawkerError, OSError) as error:
            _log.warning("cannot tend", extra={"machine": self._record.id, "error": str(error)})
            return False
        return True

    def result(self, container: str, check: str) -> CheckResult | None:
        """The latest of a check, while its container runs."""
        for watched in self._watches.values():
            if watched.container == container:
                return next((each for each in watched.watch.results() if each.name == check), None)
        return None

    async def _round(self, tasks: TaskGroup) -> bool:
        """Whether that was the last."""
        driver, machine_id = self._driver, self._record.id
        states = await driver.process_states(machine_id)
        if [state.name for state in states] != [each.name for each in self._containers]:
            _log.error("what runs is of another version", extra={"machine": machine_id})
            return True
        self._show(states)
        self._watch(tasks, states)
        await self._tell_exits(states)
        found = plan(self._rules, [self._seen(index, state) for index, state in enumerate(states)])
        await self._tell(found.blocked)
        for start in found.starts:
            await self._start(start)
        for index in found.stops:
            self._stop(tasks, index, states[index].run)
        if found.conclude is not None:
            await driver.conclude(machine_id, found.conclude)
            return True
        if not found.starts:
            await self._until_changed(states, found.again_in_s)
        return False

    # What is so.

    def _show(self, states: tuple[ProcessState, ...]) -> None:
        before, self.states = self.states, states
        if before != states:
            self._turned()

    def _seen(self, index: int, state: ProcessState) -> SeenContainer:
        exit, clock = state.exit, self._clock
        ran_s = ended_s = 0.0
        if exit is not None:
            first = self._first_seen.setdefault((index, state.run), clock.monotonic())
            ran_s = max(0.0, exit.exited_at - (state.started_at or exit.exited_at))
            ended_s = max(clock.now() - exit.exited_at, clock.monotonic() - first)  # the wall clock may be set back
        watched = self._watches.get(index)
        return SeenContainer(
            run=state.run,
            exit=exit,
            ran_s=ran_s,
            ended_s=ended_s,
            retries=self._retries(index, state.run),
            healthy=watched is not None and watched.watch.healthy,
            ailing=watched is not None and watched.watch.ailing,
        )

    def _retries(self, index: int, run: int) -> int:
        """Written down before a run begins; so it may be of the run that is next. With a store that has forgotten, all
        runs count as tries in a row."""
        record = self._store.get(MACHINES, self._record.id)
        running = None if record is None else record.running
        noted = None if running is None else running.retries.get(self._rules[index].name)
        if noted is None or noted.run not in (run, run + 1):
            return max(0, run - 1)
        return noted.count if noted.run == run else noted.count - 1

    async def _until_changed(self, states: tuple[ProcessState, ...], again_in_s: float) -> None:
        """Something has ended, a check has turned, or the time has come."""
        try:
            async with anyio.create_task_group() as tasks:
                for wait in (partial(self._wait_for_change, states), self._wake.wait):
                    tasks.start_soon(self._first, wait, tasks.cancel_scope)
                if math.isfinite(again_in_s):
                    await self._first(partial(self._clock.sleep, again_in_s), tasks.cancel_scope)
        except BaseExceptionGroup as group:
            raise leaf_of(group) from group.__cause__
        self._wake = anyio.Event()

    async def _first(self, wait: Callable[[], Awaitable[object]], scope: anyio.CancelScope) -> None:
        await wait()
        scope.cancel()

    async def _wait_for_change(self, states: tuple[ProcessState, ...]) -> None:
        """When the instance is over there is none; whoever records its end ends this as well."""
        if await self._driver.await_process_change(self._record.id, states) == states:
            await self._clock.sleep(_AGAIN_S)

    # What is to be done.

    async def _start(self, start: Start) -> None:
        if start.retries:
            await self._store.write(lambda tx: self._note_retry(tx, start), Durability.ORDERED)
        state = await self._driver.start_process(self._record.id, start.container, start.run)
        fields = {"machine": self._record.id, "container": state.name, "run": start.run}
        _log.info("container started", extra=fields)

    def _note_retry(self, tx: Tx, start: Start) -> None:
        record = self._still(tx)
        assert record.running is not None
        note = {self._rules[start.container].name: ContainerRetry(run=start.run, count=start.retries)}
        running = msgspec.structs.replace(record.running, retries=record.running.retries | note)
        self._table.change(tx, record, running=running)

    def _stop(self, tasks: TaskGroup, index: int, run: int) -> None:
        """Once for each run; it may take its time."""
        if (index, run) not in self._stopping:
            self._stopping.add((index, run))
            tasks.start_soon(self._stop_now, index, run)

    async def _stop_now(self, index: int, run: int) -> None:
        signal, timeout_s = container_stop(self._record.config, self._containers[index])
        try:
            await self._driver.stop_process(self._record.id, index, signal, timeout_s)
        except (HawkerError, OSError) as error:
            _log.warning("cannot stop a container", extra={"machine": self._record.id, "error": str(error)})
            await self._clock.sleep(_AGAIN_S)
            self._stopping.discard((index, run))
            self._wake.set()

    async def _tell(self, blocked: tuple[Blocked, ...]) -> None:
        for each in blocked:
            if each not in self._told:
                await self._store.write(partial(self._note_once, status="blocked", why=each.why))
                self._told.add(each)

    async def _tell_exits(self, states: tuple[ProcessState, ...]) -> None:
        """What ended by itself; a machine that is stopped ends as a whole, and says so itself."""
        for index, state in enumerate(states):
            known = (index, state.run) in self._told_exits or (index, state.run) in self._stopping
            if state.exit is None or known or not _is_told(state.run):
                continue
            why = f"container {state.name!r} {_ending(state.exit)} (run {state.run})"
            await self._store.write(partial(self._note_once, status="exited", why=why), Durability.ORDERED)
            self._told_exits.add((index, state.run))

    def _note_once(self, tx: Tx, status: str, why: str) -> None:
        """Once for each instance, whatever daemon saw it."""
        record = self._still(tx)
        for event in self._table.events(tx, record.id, EVENTS_KEPT):
            if (event.type, event.status) == ("start", "started"):
                break
            if event.type == "container" and event.detail is not None and event.detail.error == why:
                return
        self._table.change(tx, record, Happened("container", status, detail=Detail(error=why)))

    def _still(self, tx: Tx) -> MachineRecord:
        """The record, while this instance is what runs. Raises `NotFound`."""
        record = self._table.get(tx, self._record.id)
        if record.running is None or record.running.instance_id != self._instance or record.running.exit is not None:
            raise NotFound("the instance has ended")
        return record

    # The checks of what runs.

    def _watch(self, tasks: TaskGroup, states: tuple[ProcessState, ...]) -> None:
        for index, state in enumerate(states):
            watched, run = self._watches.get(index), state.run if state.state is ProcessPhase.RUNNING else None
            if watched is not None and watched.run != run:
                watched.scope.cancel()
                del self._watches[index]
                watched = None
            checks = healthchecks(self._containers[index])
            if watched is None and run is not None and checks:
                made = Watch(checks, self._clock, partial(self._ask, index), self._check_turned)
                self._watches[index] = _Watched(state.name, run, made)
                tasks.start_soon(self._watches[index].serve)

    def _check_turned(self) -> None:
        self._wake.set()
        self._turned()


def _is_told(run: int) -> bool:
    """The first ones, then fewer and fewer, so that one container does not push everything else out of the events."""
    return run <= _ALL_TOLD or run & (run - 1) == 0


def _ending(exit: Exit) -> str:
    if exit.reason:
        return f"could not be executed: {exit.reason}"
    if exit.oom_killed:
        return "ran out of memory"
    return f"was ended by signal {exit.signal}" if exit.signal else f"exited with status {exit.exit_code}"


class _Watched:
    """A watch of one run, which can be ended."""

    def __init__(self, container: str, run: int, watch: Watch) -> None:
        self.container, self.run, self.watch, self.scope = container, run, watch, anyio.CancelScope()

    async def serve(self) -> None:
        with self.scope:
            await self.watch.serve()


def rules_of(containers: tuple[Container, ...]) -> list[Rules]:
    """The rules of the containers, as the plan reads them."""
    places = {each.name: index for index, each in enumerate(containers)}
    found = []
    for each in containers:
        policy, max_retries = container_restart(each)
        needs = tuple(Need(places[need.name], Condition(need.condition or "started")) for need in each.depends_on or ())
        found.append(Rules(each.name or "", needs, policy, max_retries))
    return found


# A tender for each started machine with containers, and what the API shows of them. As `health`, it follows the
# table of machines; what it does not find it asks nobody for.

_SHOWN = {
    ProcessPhase.HELD: "pending",
    ProcessPhase.STARTING: "starting",
    ProcessPhase.RUNNING: "running",
    ProcessPhase.EXITED: "exited",
}


class ContainerSupervisors:
    def __init__(
        self, store: Store, table: MachineTable, driver: Driver, clock: Clock, changes: Changes, prober: Prober
    ) -> None:
        self._store = store
        self._table = table
        self._driver = driver
        self._clock = clock
        self._changes = changes
        self._prober = prober
        self._commands = Turns(CHECKS_OF_MACHINE)  # those over the network are the prober's
        self._tended: dict[MachineId, _Tended] = {}
        self._noted: dict[MachineId, None] = {}  # in order, so that a run can be repeated
        self._wake = anyio.Event()
        changes.listen(self._note)

    def containers(self, record: MachineRecord) -> tuple[ContainerStatus, ...]:
        """The state of each container, in the config's order."""
        tended = self._tended.get(record.id)
        known = {} if tended is None else {each.name: _status(each) for each in tended.tender.states}
        default = _untended(record) if tended is None else _SHOWN[ProcessPhase.HELD]
        names = [each.name or "" for each in record.config.containers or ()]
        return tuple(known.get(name) or ContainerStatus(name=name, state=default) for name in names)

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
        """Tends the containers of all machines, until cancelled."""
        async with anyio.create_task_group() as tasks:
            for _, record in list(self._store.scan(MACHINES)):
                self._follow(tasks, record.id, record)
            task_status.started()
            while True:
                await self._wake.wait()
                self._wake = anyio.Event()
                noted, self._noted = self._noted, {}
                for machine_id in noted:
                    self._follow(tasks, machine_id, self._store.get(MACHINES, machine_id))

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
            tender = ContainerSupervisor(
                self._store,
                self._table,
                self._driver,
                self._clock,
                self._prober,
                self._commands,
                record,
                lambda: self._turned(machine_id),
            )
            self._tended[machine_id] = _Tended(instance, tender)
            tasks.start_soon(self._tended[machine_id].serve, name=f"tend {machine_id}")

    def _turned(self, machine_id: MachineId) -> None:
        self._changes.notify(machine_id)


def _instance_of(record: MachineRecord | None) -> InstanceId | None:
    """What is to be tended: of a machine with containers, while no flow is ending it."""
    if record is None or record.running is None or record.running.exit is not None or not record.config.containers:
        return None
    return record.running.instance_id if record.state is State.STARTED else None


def _status(state: ProcessState) -> ContainerStatus:
    last = state.last_exit
    return ContainerStatus(
        name=state.name,
        state=_SHOWN[state.state],
        restarts=max(0, state.run - 1),
        exit_code=last.exit_code if last is not None else None,
        exited_at=instant(last.exited_at) if last is not None else None,
        oom_killed=last is not None and last.oom_killed,
    )


def _untended(record: MachineRecord) -> str:
    """What is shown of the containers of a machine that does not run, or is on its way."""
    return "suspended" if record.state is State.SUSPENDED else "stopped"


class _Tended:
    """One tender, which can be ended."""

    def __init__(self, instance: InstanceId, tender: ContainerSupervisor) -> None:
        self.instance, self.tender, self.scope = instance, tender, anyio.CancelScope()

    async def serve(self) -> None:
        with self.scope:
            await self.tender.serve()
