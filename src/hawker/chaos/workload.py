"""What clients do to a node while it is hurt: each customer calls at random on machines of its own, and remembers what
it was told. Nobody else calls on them, so what was acknowledged last is what must be.
"""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec
from anyio import Event

from hawker.api.contract.app import AppParams
from hawker.api.contract.exec import EXEC_MACHINE, ExecRequest
from hawker.api.contract.machine import (
    CREATE_MACHINE,
    DELETE_MACHINE,
    GET_MACHINE,
    LIST_EVENTS,
    SET_METADATA,
    UPDATE_MACHINE,
    CreateMachineRequest,
    DeleteMachineQuery,
    MetadataKeyParams,
    SetMetadataRequest,
    SignalRequest,
    StopRequest,
    UpdateMachineRequest,
    WaitState,
)
from hawker.api.contract.machine_operation import (
    CREATE_LEASE,
    RELEASE_LEASE,
    RESTART_MACHINE,
    SIGNAL_MACHINE,
    START_MACHINE,
    STOP_MACHINE,
    WAIT_MACHINE,
    LeaseRequest,
    WaitQuery,
)
from hawker.api.route import B, P, Q, R, Unary
from hawker.chaos.chance import SeededChance
from hawker.chaos.endings import ToldExits
from hawker.chaos.tally import APP, CallOutcome, MeasuredCalls, params_of
from hawker.clock import Clock
from hawker.config import MachineConfig
from hawker.config.machine import Guest, Init, MachineRestart, StopConfig
from hawker.errors import NotFound
from hawker.ids import MachineId
from hawker.machine import State
from hawker.proof.promises import ClientCall, Promises, ToldMachine

OWN_LIMIT = 3
_PAUSE_S = 0.25
_LEASE_S = 3
_WORD = "still here"
_SMALL = Guest(cpu_kind="shared", cpus=1, memory_mb=256)

Act: TypeAlias = Callable[[MachineId], Awaitable[object]]


class SoakClient:
    """`networked`: machines are the sample web server in a network of their own, else processes that sleep."""

    def __init__(
        self,
        name: str,
        calls: MeasuredCalls,
        promises: Promises,
        endings: ToldExits,
        chance: SeededChance,
        *,
        networked: bool,
    ) -> None:
        self._name = name
        self._calls = calls
        self._promises = promises
        self._endings = endings
        self._chance = chance
        self._networked = networked
        self._own: list[MachineId] = []
        self._orders = 0
        self._order: CreateMachineRequest | None = None  # asked for, and not answered yet
        self._acts: tuple[tuple[int, Act], ...] = (
            (6, self._get),
            (6, self._start),
            (5, self._stop),
            (3, self._restart),
            (4, self._update),
            (4, self._set_metadata),
            (2, self._update_under_lease),
            (5, self._exec),
            (2, self._signal),
            (3, self._wait),
            (2, self._look_back),
            (4, self._end),
            (3, self._destroy),
        )

    async def shop(self, closed: Event, clock: Clock) -> None:
        """Call until it is closed; a call under way is ended first."""
        while not closed.is_set():
            if self._order is not None or not self._own or (len(self._own) < OWN_LIMIT and self._chance.happens(0.1)):
                await self._create()
            else:
                await self._chance.weighted(self._acts)(self._chance.choice(self._own))
            await clock.sleep(self._chance.between(0, _PAUSE_S))

    # Orders.

    async def _create(self) -> None:
        """Orders with one key until the order is answered, as a client that was cut off does."""
        if self._order is None:
            self._orders += 1
            policy = self._chance.choice(("no", "always", "on-failure"))
            self._order = CreateMachineRequest(config=self._config({"N": "0"}, {}, policy))
        key, order = f"{self._name}-{self._orders}", self._order
        reply = await self._calls.call(CREATE_MACHINE, params=AppParams(app_name=APP), body=order, idempotency_key=key)
        if reply.value is not None:
            machine_id = MachineId(reply.value.id)
            for violation in self._promises.created(machine_id, key, env=order.config.env):
                self._calls.node.note(str(violation))
            self._own.append(machine_id)
        if reply.ok or reply.changed_nothing:
            self._order = None

    def _config(self, env: dict[str, str], metadata: dict[str, str], policy: str) -> MachineConfig:
        sleep = None if self._networked else Init(exec=("/bin/sleep", "1000000"))
        restart = msgspec.convert({"policy": policy}, MachineRestart)
        stop = StopConfig(signal="SIGTERM", timeout="3s")
        return MachineConfig(
            image="hawker/hello",
            env=env,
            metadata=metadata,
            guest=_SMALL,
            init=sleep,
            restart=restart,
            stop_config=stop,
        )

    # Changes.

    async def _start(self, machine_id: MachineId) -> None:
        await self._change(ClientCall.START, START_MACHINE, machine_id)

    async def _stop(self, machine_id: MachineId) -> None:
        await self._change(ClientCall.STOP, STOP_MACHINE, machine_id, body=StopRequest(timeout="2s"))

    async def _restart(self, machine_id: MachineId) -> None:
        await self._change(ClientCall.RESTART, RESTART_MACHINE, machine_id)

    async def _destroy(self, machine_id: MachineId) -> None:
        query = DeleteMachineQuery(force=self._chance.happens(0.7))
        reply = await self._change(ClientCall.DESTROY, DELETE_MACHINE, machine_id, query=query)
        if reply.ok:
            self._own.remove(machine_id)

    async def _update(self, machine_id: MachineId, nonce: str | None = None) -> None:
        env = {"N": str(int(self._chance.between(0, 1e6)))}
        metadata = dict(self._promises.told[machine_id].metadata or {})
        policy = self._chance.choice(("no", "always", "on-failure"))
        body = UpdateMachineRequest(config=self._config(env, metadata, policy))
        await self._change(
            ClientCall.UPDATE, UPDATE_MACHINE, machine_id, env=env, metadata=metadata, body=body, nonce=nonce
        )

    async def _set_metadata(self, machine_id: MachineId) -> None:
        value = str(int(self._chance.between(0, 1e6)))
        metadata = {**(self._promises.told[machine_id].metadata or {}), "mark": value}
        params = MetadataKeyParams(app_name=APP, machine_id=machine_id, key="mark")
        body = SetMetadataRequest(value=value)
        await self._change(ClientCall.METADATA, SET_METADATA, machine_id, metadata=metadata, params=params, body=body)

    async def _update_under_lease(self, machine_id: MachineId) -> None:
        params = params_of(machine_id)
        lease = await self._calls.call(CREATE_LEASE, params=params, body=LeaseRequest(ttl=_LEASE_S))
        if lease.value is not None:
            await self._update(machine_id, lease.value.nonce)
            await self._calls.call(RELEASE_LEASE, params=params, nonce=lease.value.nonce)

    async def _change(
        self,
        call: ClientCall,
        route: Unary[P, Q, B, R],
        machine_id: MachineId,
        *,
        env: dict[str, str] | None = None,
        metadata: dict[str, str] | None = None,
        **arguments: object,
    ) -> CallOutcome[R]:
        """`env` and `metadata`: what is kept if it is acknowledged."""
        before = self._promises.told[machine_id]
        ticket = self._promises.ask(machine_id, call)
        reply = await self._calls.call(route, **{"params": params_of(machine_id), **arguments})
        if reply.ok:
            ticket.acknowledged(env=env, metadata=metadata)
        elif reply.changed_nothing:
            ticket.refused()
        if isinstance(reply.error, NotFound):
            await self._lose(machine_id, before)
        return reply

    async def _lose(self, machine_id: MachineId, told: ToldMachine) -> None:
        """It is not there: either it was to be destroyed, or it could not even be launched."""
        self._own.remove(machine_id)
        if told.sure and told.last is not ClientCall.DESTROY and not await self._calls.taken_back(machine_id):
            self._calls.node.note(f"{machine_id} was acknowledged and is not found")

    # What changes nothing, or not by a call.

    async def _get(self, machine_id: MachineId) -> None:
        await self._calls.call(GET_MACHINE, params=params_of(machine_id))

    async def _look_back(self, machine_id: MachineId) -> None:
        await self._calls.call(LIST_EVENTS, params=params_of(machine_id))

    async def _wait(self, machine_id: MachineId) -> None:
        query = WaitQuery(state=(WaitState.SETTLED,), timeout=self._chance.between(1, 4))
        await self._calls.call(WAIT_MACHINE, params=params_of(machine_id), query=query)

    async def _signal(self, machine_id: MachineId) -> None:
        """One that it does not mind."""
        await self._calls.call(SIGNAL_MACHINE, params=params_of(machine_id), body=SignalRequest(signal="SIGCONT"))

    async def _exec(self, machine_id: MachineId) -> None:
        command = ("/bin/hello", "echo", _WORD) if self._networked else ("/bin/echo", _WORD)
        body = ExecRequest(command=command, timeout=10)
        reply = await self._calls.call(EXEC_MACHINE, params=params_of(machine_id), body=body)
        if reply.value is not None and reply.value.exit_code == 0 and reply.value.stdout != f"{_WORD}\n":
            self._calls.node.note(f"exec in {machine_id} answered {reply.value}")

    async def _end(self, machine_id: MachineId) -> None:
        """By itself, and only when nothing else is under way there."""
        told = self._promises.told[machine_id]
        reply = await self._calls.call(GET_MACHINE, params=params_of(machine_id))
        if told.sure and reply.value is not None and reply.value.state is State.STARTED:
            await self._endings.end(reply.value)


class SoakReader:
    """Reads what all customers have: whatever was acknowledged is in the list."""

    def __init__(self, calls: MeasuredCalls, promises: Promises, chance: SeededChance) -> None:
        self._calls = calls
        self._promises = promises
        self._chance = chance

    async def look(self, closed: Event, clock: Clock) -> None:
        while not closed.is_set():
            before = {
                key for key, told in self._promises.told.items() if told.sure and told.last is not ClientCall.DESTROY
            }
            listed = await self._calls.machines()
            destroyed = {
                key for key, told in self._promises.told.items() if told.last is ClientCall.DESTROY or not told.sure
            }
            for machine_id in before - destroyed - set(listed.value or before):
                if not await self._calls.taken_back(machine_id):
                    self._calls.node.note(f"{machine_id} was acknowledged and is not in the list")
            if listed.value:
                await self._calls.call(GET_MACHINE, params=params_of(self._chance.choice(sorted(listed.value))))
            await clock.sleep(self._chance.between(0, 2 * _PAUSE_S))
