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
    RESTART_MACHINE,
    SIGNAL_MACHINE,
    START_MACHINE,
    STOP_MACHINE,
    SUSPEND_MACHINE,
    UNCORDON_MACHINE,
    WAIT_MACHINE,
    RestartQuery,
    WaitQuery,
)
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoQuery
from hawker.config.duration import parse_seconds
from hawker.config.signals import LONGEST_STOP_S, signal_name, signal_number
from hawker.errors import BadRequest, NotFound, Unavailable, WrongState
from hawker.machine import Operation, State, judge
from hawker.record.machine import EVENTS, EventRecord, MachineRecord
from hawker.runtime.driver import Driver
from hawker.store.contract import Store
from hawker.worker import changes
from hawker.worker.changes import Changes
from hawker.worker.handlers.target import MachineFinder, target_of
from hawker.worker.operations import Operations

_OK = Ok(ok=True)


class OperationHandlers:
    def __init__(
        self, machines: MachineFinder, store: Store, driver: Driver, operations: Operations, changes: Changes
    ) -> None:
        self._machines = machines
        self._store = store
        self._driver = driver
        self._operations = operations
        self._changes = changes

    def bind(self, handlers: Handlers) -> None:
        handlers.on(START_MACHINE, self.start)
        handlers.on(STOP_MACHINE, self.stop)
        handlers.on(SUSPEND_MACHINE, self.suspend)
        handlers.on(RESTART_MACHINE, self.restart)
        handlers.on(SIGNAL_MACHINE, self.signal)
        handlers.on(CORDON_MACHINE, self.cordon)
        handlers.on(UNCORDON_MACHINE, self.uncordon)
        handlers.on(WAIT_MACHINE, self.wait)

    async def start(self, call: Call[MachineParams, NoQuery, None]) -> StartAnswer:
        self._machines.find(call.params)
        before = await self._operations.start(target_of(call.params, call.nonce))
        return StartAnswer(previous_state=before, migrated=False, new_host="")

    async def stop(self, call: Call[MachineParams, NoQuery, StopRequest]) -> Ok:
        """Once more with SIGKILL ends a slow stop that is under way."""
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
