"""Answers to the calls that move a machine between states, and to the one that waits for it."""

from contextlib import suppress

from hawker.api.bounds import LONGEST_WAIT_S, SHORTEST_WAIT_S
from hawker.api.contract.body import Ok
from hawker.api.contract.machine import (
    MachineParams,
    SignalRequest,
    StartAnswer,
    StopRequest,
    SuspendAnswer,
    WaitAnswer,
)
from hawker.api.contract.machine_operation import (
    CORDON_MACHINE,
    CREATE_LEASE,
    GET_LEASE,
    GET_MEMORY,
    RECLAIM_MEMORY,
    RELEASE_LEASE,
    RENAME_MACHINE,
    RESTART_MACHINE,
    SET_MEMORY,
    SIGNAL_MACHINE,
    START_MACHINE,
    STOP_MACHINE,
    SUSPEND_MACHINE,
    UNCORDON_MACHINE,
    WAIT_MACHINE,
    LeaseAnswer,
    LeaseQuery,
    LeaseReleased,
    LeaseRequest,
    MemoryAnswer,
    ReclaimAnswer,
    ReclaimRequest,
    RenameRequest,
    RestartQuery,
    SetMemoryRequest,
    WaitQuery,
    lease_released,
)
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoQuery
from hawker.app import machine_name
from hawker.clock import Clock
from hawker.config.duration import parse_seconds
from hawker.config.process_rules import LONGEST_STOP_S, signal_name, signal_number
from hawker.errors import BadRequest, NotFound, Unavailable, Unprocessable, WrongState
from hawker.handlers.machines import MachineFinder, target_of
from hawker.machine import GONE, Operation, State, judge
from hawker.record import views
from hawker.record.machine import EVENTS, EventRecord, MachineRecord
from hawker.record.move import check_not_gone
from hawker.runtime.driver import Driver, Memory
from hawker.store.contract import Store, Tx
from hawker.worker import changes, leases
from hawker.worker.changes import Changes
from hawker.worker.memory import MachineMemory
from hawker.worker.operations import Operations
from hawker.worker.table import MachineTable

_OK = Ok(ok=True)


class OperationHandlers:
    def __init__(
        self,
        machines: MachineFinder,
        store: Store,
        table: MachineTable,
        driver: Driver,
        clock: Clock,
        operations: Operations,
        changes: Changes,
    ) -> None:
        self._machines = machines
        self._store = store
        self._table = table
        self._driver = driver
        self._clock = clock
        self._operations = operations
        self._changes = changes

    def bind(self, handlers: Handlers) -> None:
        handlers.on(START_MACHINE, self.start)
        handlers.on(STOP_MACHINE, self.stop)
        handlers.on(SUSPEND_MACHINE, self.suspend)
        handlers.on(RESTART_MACHINE, self.restart)
        handlers.on(RENAME_MACHINE, self.rename)
        handlers.on(SIGNAL_MACHINE, self.signal)
        handlers.on(CORDON_MACHINE, self.cordon)
        handlers.on(UNCORDON_MACHINE, self.uncordon)
        handlers.on(WAIT_MACHINE, self.wait)

    async def start(self, call: Call[MachineParams, NoQuery, None]) -> StartAnswer:
        self._machines.find(call.params)
        before = await self._operations.start(target_of(call.params, call.nonce))
        return StartAnswer(previous_state=before, migrated=False, new_host="")

    async def stop(self, call: Call[MachineParams, NoQuery, StopRequest]) -> Ok:
        """Stops a machine. Another stop with SIGKILL ends a slow stop that is under way."""
        record, timeout = self._machines.find(call.params), call.body.timeout
        signal = _signal(call.body.signal) if call.body.signal else None
        await self._operations.stop(
            target_of(call.params, call.nonce),
            signal=signal,
            timeout_s=_timeout_s(timeout) if timeout is not None else None,
        )
        if record.state is State.STOPPING and signal == "SIGKILL":
            with suppress(NotFound, WrongState):  # it is over already
                await self._driver.signal(record.id, signal_number(signal))
        return _OK

    async def suspend(self, call: Call[MachineParams, NoQuery, None]) -> SuspendAnswer:
        self._machines.find(call.params)
        kind = await self._operations.suspend(target_of(call.params, call.nonce))
        return SuspendAnswer(ok=True, kind=kind)

    async def restart(self, call: Call[MachineParams, RestartQuery, None]) -> Ok:
        self._machines.find(call.params)
        query = call.query
        signal = "SIGKILL" if query.force_stop else query.signal or None
        await self._operations.restart(
            target_of(call.params, call.nonce),
            signal=_signal(signal) if signal is not None else None,
            timeout_s=None if query.timeout is None else _bounded(query.timeout),
        )
        return _OK

    async def rename(self, call: Call[MachineParams, NoQuery, RenameRequest]) -> Ok:
        seen, name = self._machines.find(call.params), machine_name(call.body.name)

        def apply(tx: Tx) -> None:
            record = self._table.find(tx, seen.app, seen.id)
            leases.check(record, call.nonce, self._clock.now())
            if record.state in GONE:
                raise NotFound("machine not found")
            self._table.rename(tx, record, name)

        await self._store.write(apply)
        return _OK

    async def signal(self, call: Call[MachineParams, NoQuery, SignalRequest]) -> Ok:
        record = self._machines.find(call.params)
        number = signal_number(_signal(call.body.signal))
        judge(Operation.SIGNAL, record.state)
        try:
            await self._driver.signal(record.id, number)
        except Unavailable as error:  # its end is about to be recorded
            raise WrongState(f"unable to signal machine: {error}") from error
        return _OK

    async def cordon(self, call: Call[MachineParams, NoQuery, None]) -> Ok:
        self._machines.find(call.params)
        await self._operations.cordon(target_of(call.params, call.nonce), True)
        return _OK

    async def uncordon(self, call: Call[MachineParams, NoQuery, None]) -> Ok:
        self._machines.find(call.params)
        await self._operations.cordon(target_of(call.params, call.nonce), False)
        return _OK

    async def wait(self, call: Call[MachineParams, WaitQuery, None]) -> WaitAnswer:
        query, machine_id = call.query, self._machines.find(call.params).id
        if not SHORTEST_WAIT_S <= query.timeout <= LONGEST_WAIT_S:
            raise BadRequest("invalid WaitMachineRequest.Timeout: value must be inside range [1s, 1m0s]")
        wanted = changes.wanted(
            tuple(query.state) or ("started",), query.version or query.instance_id, query.from_event_id
        )
        store = self._store

        def record_of() -> MachineRecord:
            return self._machines.find(call.params)

        def events_since(event_id: str) -> list[EventRecord]:
            return [event for _, event in store.scan(EVENTS, f"{machine_id}/", after=f"{machine_id}/{event_id}")]

        state, record = await changes.wait(self._changes, record_of, wanted, query.timeout, events_since)
        return WaitAnswer(ok=True, state=state, version=record.version, event_id=record.last_event)


def _signal(value: str | int) -> str:
    try:
        return signal_name(value)
    except ValueError as error:
        raise BadRequest(f"signal: {error}") from error


def _timeout_s(value: str | int) -> float:
    """A Go duration, or whole nanoseconds (contract 1.0)."""
    try:
        return _bounded(value / 1e9 if isinstance(value, int) else parse_seconds(value))
    except ValueError as error:
        raise BadRequest(f"timeout: {error}") from error


def _bounded(seconds: float) -> float:
    if not 0 <= seconds <= LONGEST_STOP_S:
        raise BadRequest(f"timeout must be between 0 and {LONGEST_STOP_S:g} seconds, not {seconds:g}")
    return seconds


# Answers about leases.


class LeaseHandlers:
    def __init__(self, machines: MachineFinder, store: Store, table: MachineTable, clock: Clock) -> None:
        self._machines = machines
        self._store = store
        self._table = table
        self._clock = clock

    def bind(self, handlers: Handlers) -> None:
        handlers.on(CREATE_LEASE, self.create)
        handlers.on(GET_LEASE, self.get)
        handlers.on(RELEASE_LEASE, self.release)

    async def create(self, call: Call[MachineParams, LeaseQuery, LeaseRequest]) -> LeaseAnswer:
        clock, table = self._clock, self._table
        seen = self._machines.find(call.params)
        ttl_s = float(call.body.ttl or call.query.ttl or leases.DEFAULT_S)
        fresh = leases.new(clock, call.caller, call.body.description or "", ttl_s)

        def apply(tx: Tx) -> MachineRecord:
            record = table.find(tx, seen.app, seen.id)
            if record.state in GONE:
                raise NotFound("machine not found")
            return leases.acquire(tx, table, clock, record, nonce=call.nonce, fresh=fresh)

        held = await self._store.write(apply)
        return views.lease(held, leases.require(held, clock.now()))

    async def get(self, call: Call[MachineParams, NoQuery, None]) -> LeaseAnswer:
        record = self._machines.find(call.params)
        return views.lease(record, leases.require(record, self._clock.now()))

    async def release(self, call: Call[MachineParams, NoQuery, None]) -> LeaseReleased:
        seen = self._machines.find(call.params)

        def apply(tx: Tx) -> None:
            record = self._table.lookup(tx, seen.id)
            check_not_gone(tx, seen.id, seen.app)
            if record is None or record.state in GONE:
                raise NotFound("lease not found")
            leases.release(tx, self._table, record, nonce=call.nonce, now=self._clock.now())

        await self._store.write(apply)
        return lease_released()


# Answers about the memory of a running machine.


class MemoryHandlers:
    def __init__(self, machines: MachineFinder, clock: Clock, memory: MachineMemory) -> None:
        self._machines = machines
        self._clock = clock
        self._memory = memory

    def bind(self, handlers: Handlers) -> None:
        handlers.on(GET_MEMORY, self.get)
        handlers.on(SET_MEMORY, self.set)
        handlers.on(RECLAIM_MEMORY, self.reclaim)

    async def get(self, call: Call[MachineParams, NoQuery, None]) -> MemoryAnswer:
        return _shown(await self._memory.read(self._machines.find(call.params)))

    async def set(self, call: Call[MachineParams, NoQuery, SetMemoryRequest]) -> MemoryAnswer:
        self._machines.find(call.params)
        return _shown(await self._memory.set_limit(target_of(call.params, call.nonce), call.body.limit_mb))

    async def reclaim(self, call: Call[MachineParams, NoQuery, ReclaimRequest]) -> ReclaimAnswer:
        record = self._machines.find(call.params)
        leases.check(record, call.nonce, self._clock.now())
        if call.body.amount_mb < 0:
            raise Unprocessable(f"amount_mb must not be negative, but is {call.body.amount_mb}")
        return ReclaimAnswer(actual_mb=await self._memory.reclaim(record, call.body.amount_mb))


def _shown(found: Memory) -> MemoryAnswer:
    return MemoryAnswer(limit_mb=found.limit_mib, available_mb=found.available_mib)
