"""Finding a machine for a request and waiting for one: hold, queue and wake. Thin; `gates` decides.

Each app has a queue for each door, first come first served, with a bound; whoever leaves a machine lets the first of
each queue try, who came first before the others. Nobody waits beyond a deadline.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from msgspec.structs import replace

from hawker.edge.app_figures import AppFigures
from hawker.edge.gates import Gate, Gates
from hawker.edge.refusal import Code, ProxyError
from hawker.edge.routes import Door, Routes, ServiceTarget
from hawker.edge.steering import NOWHERE_SAID, Aim, Steering, meant, tiers
from hawker.fair.occupancy import Occupancy
from hawker.fair.table import EDGE_HOLDS, EDGE_HOLDS_OF_ORG, EDGE_VISITS, EDGE_WAKES
from hawker.fair.turns import Share
from hawker.feed import RouteHealth
from hawker.ids import AppName, MachineId
from hawker.machine import State
from hawker.value_object import ValueObject

ROUTE_TIMEOUT_S = 15.0
_LEAST_WAIT_S = 0.001
"""The least seconds to wait. Less is below what a timer can tell: the wait would be over at once, and nothing had
changed."""
WAKE_TIMEOUT_S = 60.0
_LEAVES_SLEEP_S = 5.0
"""Seconds for which a machine whose start was accepted may still be told as asleep: after that it came up, and down
again, unseen."""


class Waker(Protocol):
    async def wake(self, machine_id: MachineId, *, rested: bool) -> str:
        """Have the worker start the machine; with `rested` only if nobody has stopped it since it was put to rest.
        Returns why it was refused; empty when it was accepted, or came already."""


class Spawn(Protocol):
    def __call__(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """Start a task: a function and its arguments."""


class Counters(ValueObject, frozen=True):
    """Counts since the edge began, by name; see docs/edge.md. An event of an app is counted for the app, too."""

    values: dict[str, int]
    """The count of each name, from 0 on; a name that was never counted is not there."""
    figures: AppFigures

    def add(self, name: str, amount: int = 1, *, app: AppName | None = None) -> None:
        self.values[name] = self.values.get(name, 0) + amount
        if app is not None:
            self.figures.event(app, name)


class Visit:
    """A request as it counts in one machine, until `Visits.end`. `held`: the machine is of another host and not up, or
    of another region; its gate is to hold the request until it is. `machine` is the one that a host of another region
    has chosen for the `aim`. `trial`: the machine has taken no connection yet, or none since its host was lost, and
    another one has room."""

    __slots__ = ("aim", "gate", "held", "lasting", "machine", "owner", "target", "trial")

    def __init__(self, target: ServiceTarget, gate: Gate, owner: str, *, held: bool = False) -> None:
        self.target = target
        self.trial = False
        self.owner = owner  # whose share it counts in
        self.gate = gate
        self.held = held
        self.lasting = False
        self.aim: Aim | None = None
        self.machine: MachineId | None = None

    @property
    def reached(self) -> ServiceTarget:
        """The target, with the machine that a host of another region has chosen, where it has."""
        if self.machine is None:
            return self.target
        return replace(self.target, machine=replace(self.target.machine, id=self.machine))

    def last(self) -> None:
        """Note that the visit has no end of its own: a stop does not wait for it."""
        self.lasting = True
        self.gate.last(1)


class Visits:
    """Finds a machine for each request, and counts the requests in machines, for one event loop. `now` is its clock."""

    def __init__(
        self,
        routes: Routes,
        gates: Gates,
        waker: Waker,
        spawn: Spawn,
        now: Callable[[], float],
        counters: Counters,
        wakes: Share = EDGE_WAKES,
    ) -> None:
        self._routes = routes
        self._gates = gates
        self._waker = waker
        self._spawn = spawn
        self._now = now
        self._counters = counters
        self._queues: dict[AppName, dict[Door, deque[tuple[float, asyncio.Future[None]]]]] = {}  # and when they came
        self._inside, self._wakes = Occupancy(EDGE_VISITS), Occupancy(wakes)
        self._held, self._held_of_org = Occupancy(EDGE_HOLDS), Occupancy(EDGE_HOLDS_OF_ORG)
        self._woken_at: dict[MachineId, float] = {}  # which are not open yet
        self._accepted: dict[MachineId, float] = {}  # whose start the worker has accepted, since when
        self._starting: dict[MachineId, tuple[str, float]] = {}  # have a place among the wakes, since when

    @property
    def held(self) -> Mapping[str, int]:
        """How many requests wait for a machine, by app."""
        return self._held.counts

    @property
    def waiting(self) -> int:
        """How many requests wait for a machine, of all apps."""
        return self._held.total

    def begin_at_once(self, aim: Aim) -> Visit | None:
        """Does what `begin` does, for a request that says nothing of its way and finds room without waiting; None where
        it may have to wait."""
        app = aim.app
        if aim.steering is not NOWHERE_SAID or app in self._queues or not self._inside.fits(self._routes.owner(app)):
            return None
        visit = self._try_regions(self.found(aim), NOWHERE_SAID)
        if visit is not None:
            visit.aim = aim
        return visit

    async def begin(
        self,
        aim: Aim,
        began: float,
        cause: ProxyError | None = None,
    ) -> Visit:
        """The visit of this request in a machine of the app, in which it counts from now on; `end` it once, whatever
        happens. `began` is when the request did. `cause` is why the last machine did not take it. Raises
        `ProxyError`."""
        steering = aim.steering
        if (steering.force is not None or steering.regions) and not self.found(aim):
            raise cause if cause is not None and cause.code is Code.PR01 else ProxyError(Code.PR02)
        if steering.prefer is not None:
            there = [each for each in self.found(aim) if not each.machine.region]
            preferred = [each for each in there if each.machine.id == steering.prefer]
            found = self._try(preferred)
            if found is not None:
                return found
        visit = await self._enter(aim.app, aim.queue, partial(self.found, aim), began, cause, steering)
        visit.aim = aim
        return visit

    def found(self, aim: Aim) -> list[ServiceTarget]:
        """The targets that may be chosen, in whatever state they are."""
        return meant(self._routes, aim)

    async def admit(
        self, app: AppName, machine_id: MachineId, number: int, began: float, *, hold: bool, udp: bool = False
    ) -> Visit:
        """The visit of a request of another host's edge, in this machine of ours. Without `hold` it is let in now or
        not at all. Raises `ProxyError`."""

        targets = partial(self._named, app, machine_id, number, udp=udp)
        if hold:
            return await self._enter(app, Door(machine_id, number), targets, began)
        found = self._try(targets())
        if found is not None:
            return found
        gate = self._gates.of.get(machine_id)
        full = gate is not None and gate.is_open
        raise ProxyError(Code.HQ01 if full else Code.PR01, known=self._why(targets()))

    def admit_now(self, app: AppName, machine_id: MachineId, number: int) -> Visit | None:
        """The visit of a request of another host's edge, without waiting; None where it cannot be let in now."""
        return self._try(self._named(app, machine_id, number))

    def _named(self, app: AppName, machine_id: MachineId, number: int, *, udp: bool = False) -> list[ServiceTarget]:
        target = self._routes.service(app, machine_id, number, udp=udp)
        return [] if target is None else [target]

    async def admit_from_afar(self, aim: Aim, spoken: str, began: float) -> Visit:
        """The visit of a request of another region's edge, in a machine of this region: now, or once one is started.
        Where neither can be, others are to be asked. Raises `ProxyError`."""

        def targets() -> list[ServiceTarget]:
            door, steering = aim.door, aim.steering
            there = self._routes.of_region(aim.app, door.port, spoken, inside=aim.inside, udp=door.udp)
            if steering.force is not None:
                return [there[steering.force]] if steering.force in there else []
            return [each for each in there.values() if each.machine.id not in steering.apart]

        found = targets()
        if aim.steering.force is not None and not found:
            raise ProxyError(Code.PR02)
        preferred = [each for each in found if each.machine.id == aim.steering.prefer]
        visit = self._try(preferred) or self._try(found)
        if visit is not None:
            return visit
        if self._may_start(found):
            door = Door(f"@{aim.steering.force or ''}", aim.door.port, aim.door.udp)
            return await self._enter(aim.app, door, targets, began)
        full = any(gate.is_open for each in found if (gate := self._gates.of.get(each.machine.id)) is not None)
        raise ProxyError(Code.HQ01 if full else Code.PR01, known=self._why(found))

    async def _enter(
        self,
        app: AppName,
        door: Door,
        find: Callable[[], list[ServiceTarget]],
        began: float,
        cause: ProxyError | None = None,
        steering: Steering = NOWHERE_SAID,
    ) -> Visit:
        first, came_at = True, self._now()
        if not self._inside.fits(self._routes.owner(app)):
            raise ProxyError(Code.HQ01, known="its organization has most of what this host serves at once")
        while True:
            targets = find()
            found = None if first and self._is_queued(app, door) else self._try_regions(targets, steering)
            if found is not None:
                if not first:
                    self._next(app, door)
                return found
            now = self._now()
            if not self._gates.may_open(targets):
                known = cause.known if cause is not None and not targets else self._why(targets)
                raise ProxyError(Code.PR01, known=known)
            near = [each for each in targets if not each.machine.region]
            waking = self._wake(near, 1 + self.queued(app, door))
            elsewhere = None if waking else self._gates.to_hold(near, now)
            if elsewhere is not None:
                return self._visit(elsewhere, held=True)
            deadline = began + (WAKE_TIMEOUT_S if waking else ROUTE_TIMEOUT_S)
            if deadline - now < _LEAST_WAIT_S:
                raise self._overdue(targets, cause)
            await self._wait(app, door, deadline - now, came_at, again=not first)
            first = False

    def end(self, visit: Visit) -> None:
        """End a visit. To be called once for each."""
        if visit.gate.trial is visit:
            visit.gate.trial = None
        if visit.lasting:
            visit.gate.last(-1)
        visit.gate.leave(visit.target.number, self._now())
        self._inside.leave(visit.owner)
        if self._queues:
            self.changed(visit.target.machine.app)

    def changed(self, app: AppName) -> None:
        """Let waiting requests try, since something about the app's machines is new: the first of each of its queues,
        in the order in which they came. A queue that is never empty would else be let in before all others, on and
        on."""
        queues = self._queues.get(app, {})
        for door in sorted(queues, key=lambda door: queues[door][0][0]):
            self._next(app, door)

    def came(self, machine_id: MachineId) -> None:
        """Note that the worker has said something new of the machine: it may be open now, or gone."""
        began, gate = self._woken_at.get(machine_id), self._gates.of.get(machine_id)
        if gate is None or not gate.waking:
            self._release_wake(machine_id)
        if began is not None and (gate is None or gate.is_open):
            del self._woken_at[machine_id]
            if gate is not None:
                self._counters.figures.woken(gate.route.app, self._now() - began)

    def look_again(self) -> None:
        """To be called now and then: let waiting requests try machines again that were avoided for a while."""
        late = self._now() - WAKE_TIMEOUT_S
        for machine_id in [machine_id for machine_id, (_, since) in self._starting.items() if since < late]:
            self._release_wake(machine_id)  # nobody waits for it any more
        self._doubt_starts()
        for app in list(self._queues):
            self.changed(app)

    def queued(self, app: AppName, door: Door) -> int:
        return len(self._queues.get(app, {}).get(door, ()))

    def _is_queued(self, app: AppName, door: Door) -> bool:
        return bool(self._queues.get(app, {}).get(door))

    def _try_regions(self, targets: Sequence[ServiceTarget], steering: Steering) -> Visit | None:
        """One after the other, up to one in which somebody may be started."""
        regions = tiers(targets, self._routes.region, steering)
        for tier in regions:
            found = self._try(tier)
            if found is not None or tier is regions[-1] or self._may_start(tier):
                return found
        return None

    def _may_start(self, targets: Sequence[ServiceTarget]) -> bool:
        """Somebody of this region is on the way up, or may be asked to be."""
        now, near = self._now(), [each for each in targets if not each.machine.region]
        gates = (self._gates.of.get(each.machine.id) for each in near if each.is_near)
        starts = any(gate.is_coming or gate.can_wake(now) for gate in gates if gate is not None)
        return starts or self._gates.to_hold(near, now) is not None

    def _try(self, targets: Sequence[ServiceTarget]) -> Visit | None:
        now = self._now()
        found = self._gates.choose(targets, now)
        if found is None:
            return None
        visit = self._visit(found, held=bool(found.machine.region))
        if len(targets) > 1 and self._gates.is_trial(found, targets, now):
            visit.trial, visit.gate.trial = True, visit
        if visit.gate.load(found) > 1:  # over the soft limit: another machine is started
            self._wake(targets, 0)
        return visit

    def _visit(self, target: ServiceTarget, *, held: bool = False) -> Visit:
        gate = self._gates.of[target.machine.id]
        gate.enter(target.number)
        owner = self._routes.owner(target.machine.app)
        self._inside.enter(owner)
        return Visit(target, gate, owner, held=held)

    def _wake(self, targets: Sequence[ServiceTarget], waiting: int) -> bool:
        """Whether somebody on this host is on the way up, now or already."""
        now = self._now()
        for gate in self._gates.to_wake(targets, waiting, now):
            if not self._wakes.fits(self._routes.owner(gate.route.app)):
                break  # who waits asks again
            self._counters.add("wakes", app=gate.route.app)
            self._begin_start(gate, rested=False)
        found = (self._gates.of.get(each.machine.id) for each in targets)
        return any(gate.is_coming or gate.may_wake for gate in found if gate is not None and gate.is_near)

    def restore(self, gate: Gate) -> None:
        """Start a machine that rests, though nobody asks for it; not now, where too many are being started."""
        if self._wakes.fits(self._routes.owner(gate.route.app)):
            self._counters.add("restores", app=gate.route.app)
            self._begin_start(gate, rested=True)

    def _release_wake(self, machine_id: MachineId) -> None:
        """It is up, or will not be: the next one may be started."""
        found = self._starting.pop(machine_id, None)
        if found is not None:
            self._wakes.leave(found[0])

    def _begin_start(self, gate: Gate, *, rested: bool) -> None:
        gate.waking = True
        self._release_wake(gate.route.id)
        self._woken_at[gate.route.id] = self._now()
        owner = self._routes.owner(gate.route.app)
        self._starting[gate.route.id] = owner, self._now()
        self._wakes.enter(owner)
        self._spawn(self._start, gate, rested)

    async def _start(self, gate: Gate, rested: bool) -> None:
        refused = await self._waker.wake(gate.route.id, rested=rested)
        if refused:
            self._not_started(gate, refused)
        else:
            self._accepted[gate.route.id] = self._now()

    def _not_started(self, gate: Gate, why: str) -> None:
        self._counters.add("wakes_refused", app=gate.route.app)
        self._woken_at.pop(gate.route.id, None)
        self._release_wake(gate.route.id)
        gate.refused_wake(why, self._now())
        self.changed(gate.route.app)

    def _doubt_starts(self) -> None:
        """Else a start that ended before anybody was told of it would be waited for until the machine changes."""
        for machine_id, since in list(self._accepted.items()):
            gate = self._gates.of.get(machine_id)
            if gate is None or not (gate.waking and gate.sleeps):
                del self._accepted[machine_id]
            elif self._now() - since >= _LEAVES_SLEEP_S:
                del self._accepted[machine_id]
                self._not_started(gate, "its start was accepted, and it sleeps still")

    async def _wait(self, app: AppName, door: Door, seconds: float, came_at: float, *, again: bool) -> None:
        """Until it may try. Who waits again does so at the front."""
        queue = self._queues.setdefault(app, {}).setdefault(door, deque())
        owner = self._routes.owner(app)
        if not again and not (self._held.fits(app) and self._held_of_org.fits(owner)):
            self._drop_empty(app, door)
            raise ProxyError(Code.HQ01)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (queue.appendleft if again else queue.append)((came_at, turn))
        self._held.enter(app)
        self._held_of_org.enter(owner)
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(turn, seconds)
        finally:
            self._held.leave(app)
            self._held_of_org.leave(owner)
            with suppress(ValueError):
                queue.remove((came_at, turn))
            self._drop_empty(app, door)

    def _next(self, app: AppName, door: Door) -> None:
        queue = self._queues.get(app, {}).get(door)
        while queue:
            _, turn = queue.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        self._drop_empty(app, door)

    def _drop_empty(self, app: AppName, door: Door) -> None:
        doors = self._queues.get(app)
        if doors is not None and not doors.get(door, True):
            del doors[door]
            if not doors:
                del self._queues[app]

    def _why(self, targets: Sequence[ServiceTarget]) -> str:
        """What each machine is, for the app's log."""
        said = []
        for target in targets:
            gate = self._gates.of.get(target.machine.id)
            if gate is not None:
                said.append(f"{gate.route.id} {stands(gate, self._now())}")
        return "; ".join(said) or "the app has no machine here"

    def _overdue(self, targets: Sequence[ServiceTarget], cause: ProxyError | None) -> ProxyError:
        known = self._why(targets)
        if cause is not None:
            return ProxyError(Code.PR03, f"{Code.PR03.words}: {cause.told}", known)
        if any(not gate.has_room(each) for each in targets if (gate := self._gates.of.get(each.machine.id))):
            return ProxyError(Code.HQ01, "all machines of the app are at their hard limit", known)
        refused = any(gate.why_not for each in targets if (gate := self._gates.of.get(each.machine.id)))
        return ProxyError(Code.PM01 if refused else Code.PR03, known=known)


def stands(gate: Gate, now: float) -> str:
    """The state of a machine for requests that want in, in words."""
    route = gate.route
    if route.gate is not None and route.region:
        return f"region {route.region}, {gate.total} in flight there, by host {route.gate.node}"
    here = route.gate is None or route.gate.is_beside
    return _stands(gate, now) if here or route.gate is None else f"{_stands(gate, now)}, on host {route.gate.node}"


def _stands(gate: Gate, now: float) -> str:
    route = gate.route
    if route.cordoned:
        return f"{route.state}, cordoned"
    if gate.is_open:
        return f"{route.state}, {gate.total} in flight{', avoided for a moment' if gate.avoided(now) else ''}"
    if route.state is State.STARTED and route.health is not RouteHealth.PASSING:
        return f"started, its checks are {route.health}"
    if gate.why_not:
        return f"{route.state}, could not be started: {gate.why_not}"
    return f"{route.state}{'' if route.autostart else ', not started for requests'}"
