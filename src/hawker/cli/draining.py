"""Moving a node's machines to other nodes: which can be moved, and how one is, such that it may be cut short anywhere.

The copy is ordered under a name made of the old machine and its version, so a drain that is begun again finds the copy
that it made before. Spares of the machine are found, also those at nodes that are away, and pointed at the copy. The
old machine goes only once the copy runs and its checks pass.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial

import msgspec

from hawker.api.call_metadata import CallMetadata
from hawker.api.caller import Caller
from hawker.api.contract.app import AppParams
from hawker.api.contract.catalog import QUERY_CATALOG, CatalogStatement
from hawker.api.contract.machine import (
    CREATE_MACHINE,
    DELETE_MACHINE,
    GET_MACHINE,
    LIST_MACHINES,
    UPDATE_MACHINE,
    CreateMachineRequest,
    DeleteMachineQuery,
    GetMachineQuery,
    ListMachinesQuery,
    Machine,
    MachineParams,
    UpdateMachineRequest,
    WaitState,
)
from hawker.api.contract.machine_operation import STOP_MACHINE
from hawker.api.contract.move import LIST_MOVES, MOVE_MACHINE, ListMovesQuery, Move, MoveRequest
from hawker.cli import moves, waiting
from hawker.cli.exits import Failure
from hawker.clock import Clock
from hawker.config import Persist, persistence
from hawker.config.placement import APART_FROM, apart_from
from hawker.errors import HawkerError, NotFound, Unavailable, WrongState
from hawker.ids import NodeId
from hawker.machine import GONE, OFF, State
from hawker.record.move import SCHEDULED
from hawker.value_object import ValueObject

_OFF = OFF | {State.CREATED}
_TOLD = (
    "SELECT machines.id, machines.node FROM machines, json_each(machines.standby_for) AS watched"
    " WHERE machines.app = ? AND watched.value = ? ORDER BY machines.id"
)


class Spares:
    def __init__(self, caller: Caller, clock: Clock, *, within_s: float) -> None:
        self._caller = caller
        self._clock = clock
        self._within_s = within_s

    async def of(self, app: str, machine: Machine) -> list[Machine]:
        """Raises `Failure` for one that cannot be changed now."""
        metadata, query = CallMetadata(), ListMachinesQuery(region=machine.region, include_leases=True)
        page = await self._caller.call(LIST_MACHINES, params=AppParams(app_name=app), query=query, metadata=metadata)
        found = [
            each
            for each in page.items
            if each.host_status == "ok" and machine.id in _watched(each) and each.state not in GONE
        ]
        if machine.region in metadata.missing_regions:
            await self._none_is_away(app, machine, {each.id for each in found})
        for each in found:
            if each.lease is not None:
                raise Failure(
                    f"a client holds the lease of its spare {each.id}: wait until the lease is released or expires"
                )
            if each.state not in _OFF | {State.STARTED, State.SUSPENDED}:
                raise Failure(f"an operation is under way on its spare {each.id}: try again in a moment")
        return found

    async def point(self, app: str, spares: Iterable[Machine], old: str, new: str) -> str:
        """From the old machine to its copy. One that runs is left alone, since a new version would reboot it: what is
        to be known of such. May be done again at any time."""
        left: list[str] = []
        for spare in spares:
            params = MachineParams(app_name=app, machine_id=spare.id)
            with suppress(NotFound):
                now = await self._caller.call(GET_MACHINE, params=params)
                if now.state in _OFF:
                    await self._point(params, now, old, new)
                elif now.state not in GONE:
                    left.append(now.id)
        return (
            f"spare {', '.join(left)} is not stopped and was left alone: it stands by for nothing now" if left else ""
        )

    async def in_place_of(self, app: str, machine: Machine) -> str:
        """The machine that this one, a spare that runs, has replaced, if that is at a node that is away: it has to give
        way when that node is back, and only this spare's own node tells it so."""
        if machine.state is State.STARTED:
            for machine_id in _watched(machine):
                try:
                    await self._caller.call(GET_MACHINE, params=MachineParams(app_name=app, machine_id=machine_id))
                except NotFound:
                    continue
                except Unavailable:
                    return machine_id
        return ""

    async def _point(self, params: MachineParams, spare: Machine, old: str, new: str) -> None:
        if old not in _watched(spare):
            return
        assert spare.config is not None, "it was asked for whole"
        standbys = tuple(dict.fromkeys(new if each == old else each for each in _watched(spare)))
        body = UpdateMachineRequest(
            config=msgspec.structs.replace(spare.config, standbys=standbys),
            current_version=spare.version,
            skip_launch=True,
        )
        changed = await self._caller.call(UPDATE_MACHINE, params=params, body=body)
        rests = waiting.AT_REST
        await waiting.reach(self._caller, params, rests, self._clock, self._within_s, version=changed.version)
        now = await self._caller.call(GET_MACHINE, params=params)
        if new not in _watched(now):
            raise Failure(f"its spare {now.id} kept its version {now.version}: see `hawker machine status {now.id}`")

    async def _none_is_away(self, app: str, machine: Machine, there: set[str]) -> None:
        """The list has those of nodes that answer; the catalog has all."""
        body = CatalogStatement(query=_TOLD, params=(app, machine.id))
        async with self._caller.stream(QUERY_CATALOG, body=body) as lines:
            told = [line.row async for line in lines if line.row is not None]
        for spare, node in told:
            if spare not in there:
                raise Failure(
                    f"its spare {spare} is at node {node}, which is away, and cannot be told of the copy: wait for that"
                    f" node, or, if it is gone for good, `hawker node forget {node}`"
                )


def that_stand_by(spares: Iterable[Machine]) -> tuple[str, ...]:
    """Those that do not run: their hosts are no place for what they stand by for."""
    return tuple(each.id for each in spares if each.state in _OFF)


def _watched(machine: Machine) -> tuple[str, ...]:
    return (machine.config.standbys if machine.config else None) or ()


MOST_ATTEMPTS = 5
LONGEST_NAME = 57
_PASSING = "passing"
_MOVED = re.compile("-m[0-9a-f]{4}$")
_MOVED_FROM = "hawker_moved_from"
_COLD_START = "--cold-start"
"""A node names it where a machine's memory is what keeps it from moving."""


class Left(Enum):
    """Why a machine stays where it is."""

    VOLUMES = "it has a volume, and --keep-volumes leaves those where they are"
    LEASED = "a client holds its lease: wait until the lease is released or expires"
    BUSY = "an operation is under way on it: try again in a moment"
    GONE = "it is being destroyed"


class Resident(ValueObject, frozen=True, kw_only=True):
    """A machine on the node that is drained."""

    app: str
    """The name of its app."""
    machine_id: str
    """The id of the machine."""

    @property
    def params(self) -> MachineParams:
        return MachineParams(app_name=self.app, machine_id=self.machine_id)


class Drained(ValueObject, frozen=True, kw_only=True):
    """What became of one machine: its copy's id, or why it stays; one that is `gone` need not be moved. `note` is what
    else is to be known of one that was moved."""

    resident: Resident
    name: str = ""
    """As a list shows it; empty where it could not be learnt."""
    copy: str = ""
    """The id of the machine that is in its place elsewhere; empty where none was made."""
    why: str = ""
    """Why it stays or is gone, for people; empty for one that was moved."""
    gone: bool = False
    note: str = ""


def stays(machine: Machine, *, keep_volumes: bool = False) -> Left | None:
    """Why the machine cannot be moved; None when it can, as far as the machine says."""
    if machine.state in GONE:
        return Left.GONE
    if keep_volumes and has_volume(machine):
        return Left.VOLUMES
    if machine.lease is not None:
        return Left.LEASED
    return None if machine.state in OFF | {State.STARTED, State.CREATED, State.SUSPENDED} else Left.BUSY


def has_volume(machine: Machine) -> bool:
    return machine.config is not None and bool(machine.config.mounts)


def data_of(machine: Machine) -> str:
    """Its data that goes along, for people. A machine with any moves as it is; one without is copied."""
    keeps = machine.config is not None and persistence(machine.config) is not Persist.NEVER
    return " and ".join(["its volume"] * has_volume(machine) + ["its root filesystem"] * keeps)


def copy_of(machine: Machine, apart: Sequence[str] = ()) -> CreateMachineRequest:
    """The order for the same machine elsewhere in its region, not beside the machines `apart`; one that is off stays
    off."""
    assert machine.config is not None, "it was asked for whole"
    metadata = {**(machine.config.metadata or {}), _MOVED_FROM: machine.id}
    if apart := tuple(dict.fromkeys([*apart_from(machine.config), *apart])):
        metadata[APART_FROM] = ",".join(apart)
    return CreateMachineRequest(
        config=msgspec.structs.replace(machine.config, metadata=metadata),
        name=name_of_copy(machine),
        region=machine.region,
        skip_launch=machine.state is not State.STARTED or None,
        skip_service_registration=machine.cordoned or None,
    )


def name_of_copy(machine: Machine) -> str:
    """Names are unique in an app, and the old machine still has its own: `web` becomes `web-m3d8f`, and that one, when
    it is moved again, `web-m0c21`."""
    return f"{_MOVED.sub('', machine.name)[:LONGEST_NAME]}-m{machine.id[:4]}"


def order_id(node_id: NodeId, machine: Machine, attempt: int = 1) -> str:
    return f"drain-{node_id}-{machine.id}-{machine.version}-{attempt}"


class Mover:
    """`say` is told what is being done, for the person who waits."""

    def __init__(
        self,
        caller: Caller,
        clock: Clock,
        node_id: NodeId,
        say: Callable[[str], None],
        *,
        within_s: float,
        keep: bool,
        keep_volumes: bool = False,
        limit: int | None = None,
        cold_start: bool = False,
        accept_loss: bool = False,
    ) -> None:
        self._caller = caller
        self._clock = clock
        self._node_id = node_id
        self._say = say
        self._within_s = within_s
        self._keep = keep
        self._keep_volumes = keep_volumes
        self._limit = limit
        self._cold_start = cold_start
        self._accept_loss = accept_loss
        self._spares = Spares(caller, clock, within_s=within_s)

    async def move_all(self, residents: Sequence[Resident]) -> list[Drained]:
        """One app after the other, one machine after the other: never more than one machine of an app is away."""
        done: list[Drained] = []
        for resident in sorted(residents, key=lambda each: (each.app, each.machine_id)):
            done.append(await self.move(resident))
        return done

    async def move(self, resident: Resident) -> Drained:
        """What cannot be moved is said, and keeps nobody else from being moved."""
        name = ""
        try:
            machine = await self._at_rest(resident)
            name, left = machine.name, stays(machine, keep_volumes=self._keep_volumes)
            if left is Left.GONE:
                return Drained(resident=resident, name=name, why=left.value, gone=True)
            if left is not None:
                return self._stay(resident, name, left.value)
            if data_of(machine) or machine.state is State.SUSPENDED:
                return await self._move_whole(resident, machine)
            return await self._move(resident, machine)
        except NotFound:
            return Drained(resident=resident, why="it was destroyed meanwhile", gone=True)
        except (HawkerError, Failure) as error:
            return self._stay(resident, name, str(error))

    async def _at_rest(self, resident: Resident) -> Machine:
        """Once nothing is under way on it, and nobody has its lease, if that is soon enough."""
        deadline, told, looks = self._clock.monotonic() + self._within_s, False, iter(moves.LOOKS_S)
        while True:
            machine = await self._caller.call(
                GET_MACHINE, params=resident.params, query=GetMachineQuery(include_leases=True)
            )
            left = stays(machine, keep_volumes=self._keep_volumes)
            if left not in (Left.BUSY, Left.LEASED) or self._clock.monotonic() >= deadline:
                return machine
            if not told:
                why = "a client holds its lease" if left is Left.LEASED else f"it is {machine.state}"
                self._say(f"{resident.app}: {machine.name} ({machine.id}): waiting, {why}")
                told = True
            await self._clock.sleep(next(looks, moves.LOOKS_S[-1]))

    async def _move(self, resident: Resident, machine: Machine) -> Drained:
        """What fails once the copy is ready leaves both, and the next drain goes on there: it finds the copy by its
        order, and spares that are pointed at it already."""
        replaced = await self._spares.in_place_of(resident.app, machine)
        if replaced:
            raise Failure(
                f"it has taken over from {replaced}, whose node is down and must hear of that when it returns: wait"
                " for that node, or, if it will not come back, remove it with `hawker node forget`"
            )
        spares = await self._spares.of(resident.app, machine)
        self._say(f"{resident.app}: {machine.name} ({machine.id}): ordering a copy on another node")
        copy = await self._ordered(resident, machine, that_stand_by(spares))
        await self._ready(resident, machine, copy)
        try:
            note = await self._spares.point(resident.app, spares, machine.id, copy.id)
            await self._end(resident, machine)
        except NotFound:
            note = ""  # it was destroyed meanwhile, which is how it was to end
        except (HawkerError, Failure) as error:
            raise Failure(f"its copy {copy.id} is ready, repeat the drain to continue: {error}") from error
        self._say(f"{resident.app}: {machine.name} ({machine.id}): moved, the copy is {copy.id}")
        if note:
            self._say(f"{resident.app}: {machine.name}: {note}")
        return Drained(resident=resident, name=machine.name, copy=copy.id, note=note)

    async def _opened(self, resident: Resident) -> Move | None:
        """The move of an earlier drain, or of somebody else, which the nodes go on with."""
        found = await self._caller.call(LIST_MOVES, query=ListMovesQuery(app=resident.app, node=self._node_id))
        mine = (each for each in found.moves if (each.machine, each.node) == (resident.machine_id, self._node_id))
        return next((each for each in mine if each.state not in {SCHEDULED, *moves.ENDED}), None)

    async def _move_whole(self, resident: Resident, machine: Machine) -> Drained:
        """With its data: the same machine elsewhere. The nodes do it; a drain that is cut short leaves that be."""
        say, sleeps = partial(self._say_of, resident), machine.state is State.SUSPENDED
        cold = False
        try:
            done = await self._moved(resident, cold_start=False)
        except (WrongState, moves.AbortedMove) as error:
            if not sleeps or not self._cold_start or _COLD_START not in str(error):
                raise
            cold = True
            say(f"{error}; moved once more, without its memory")
            done = await self._moved(resident, cold_start=True)
        away = "" if done.away_ms is None or sleeps else f", and was away for {done.away_ms / 1000:.1f} s"
        along = f"with {data_of(machine)} " if data_of(machine) else ""
        stays_so = ", where it is stopped: its memory was dropped" if cold else ", where it is suspended" * sleeps
        note = f"{along}to node {done.to}{away}{stays_so}{moves.loss_note(done)}"
        say(f"moved {note}")
        return Drained(resident=resident, name=machine.name, copy=resident.machine_id, note=note)

    async def _moved(self, resident: Resident, *, cold_start: bool) -> Move:
        async def order(accept_loss: bool) -> Move:
            opened = await self._opened(resident)
            if opened is not None:
                return opened
            if accept_loss:  # it may be on its way to run again
                await self._at_rest(resident)
            wish = MoveRequest(
                source=self._node_id,
                limit_mib_per_s=self._limit,
                cold_start=cold_start or None,
                accept_loss=accept_loss or None,
            )
            return await self._caller.call(MOVE_MACHINE, params=resident.params, body=wish)

        return await moves.completed_move(
            self._caller,
            order,
            self._clock,
            partial(self._say_of, resident),
            accept_loss=self._accept_loss,
            within_s=self._within_s,
        )

    def _say_of(self, resident: Resident, text: str) -> None:
        self._say(f"{resident.app}: {text}")

    async def _ordered(self, resident: Resident, machine: Machine, apart: Sequence[str]) -> Machine:
        """The copy of an earlier drain, as long as that is there; one that did not start was destroyed."""
        for attempt in range(1, MOST_ATTEMPTS + 1):
            copy = await self._caller.call(
                CREATE_MACHINE,
                params=AppParams(app_name=resident.app),
                body=copy_of(machine, apart),
                idempotency_key=order_id(self._node_id, machine, attempt),
            )
            if copy.state not in GONE:
                return copy
        raise Failure(f"{MOST_ATTEMPTS} copies of it did not start: find out why and update it, then drain again")

    async def _ready(self, resident: Resident, machine: Machine, copy: Machine) -> None:
        """A copy that does not get so far goes again. Of a machine that is off, one that has begun was waited for by an
        earlier drain, which then stopped the machine: that is not undone."""
        if machine.state in OFF and copy.state not in OFF | {State.CREATED}:
            return
        params = MachineParams(app_name=resident.app, machine_id=copy.id)
        try:
            await self._reached(params, copy, runs=machine.state is State.STARTED)
        except (HawkerError, Failure):
            await self._caller.call(DELETE_MACHINE, params=params, query=DeleteMachineQuery(force=True))
            raise

    async def _reached(self, params: MachineParams, copy: Machine, *, runs: bool) -> None:
        if not runs:
            await waiting.reach(self._caller, params, (WaitState.STOPPED,), self._clock, self._within_s)
            return
        deadline, looks = self._clock.monotonic() + self._within_s, iter(moves.LOOKS_S)
        machine = await waiting.started(self._caller, params, copy.version, self._clock, self._within_s)
        while not all(check.status == _PASSING for check in machine.checks):
            if self._clock.monotonic() >= deadline:
                raise Failure(f"checks of its copy {copy.id} do not pass after {self._within_s:g} s")
            await self._clock.sleep(next(looks, moves.LOOKS_S[-1]))
            machine = await self._caller.call(GET_MACHINE, params=params)

    async def _end(self, resident: Resident, machine: Machine) -> None:
        if machine.state is State.STARTED:
            await self._caller.call(STOP_MACHINE, params=resident.params)
            states = (WaitState.STOPPED, WaitState.DESTROYED)
            await waiting.reach(self._caller, resident.params, states, self._clock, self._within_s)
        if not self._keep:
            await self._caller.call(DELETE_MACHINE, params=resident.params, query=DeleteMachineQuery(force=True))

    def _stay(self, resident: Resident, name: str, why: str) -> Drained:
        self._say(f"{resident.app}: {name or resident.machine_id} stays: {why}")
        return Drained(resident=resident, name=name, why=why)
