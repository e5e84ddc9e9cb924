"""The gates: who is in each machine of this host, and who may come in. The only place where that is decided.

Pure, with `now` (seconds of a monotonic clock) as an argument; one thread calls it. Invariants: a service never has
more in flight than its `hard_limit`; nobody comes into an instance that is closed; an instance is closed for a rest
only while nobody is in it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any, TypeAlias

from hawker.edge.routes import ServiceTarget
from hawker.feed import GatePlace, MachineRoute, RouteHealth
from hawker.ids import InstanceId, MachineId
from hawker.machine import State

LeftInside: TypeAlias = Mapping[MachineId, Mapping[int, int]]
"""For each machine, how many visits are in each of its services that came in through an edge process that leaves."""
SOFT_LIMIT = 20
"""The soft limit of a service whose config gives none."""
_AVOID_S, _LONGEST_AVOID_S = 1.0, 10.0
_COMPARED = 8
_HOP_WEIGHT = 2
_WAKE_AGAIN_S, _REST_AGAIN_S = 1.0, 30.0
_BEGINS_S = 60.0
_STARTED, _PASSING = State.STARTED, RouteHealth.PASSING  # a member costs more to find in its enum than all of `is_open`
_ASLEEP = frozenset({State.STOPPED, State.SUSPENDED})
_ON_ITS_WAY = frozenset({State.STARTING, State.RESTARTING, State.UPDATING, State.CREATING, State.CREATED})
_GOING = frozenset({State.STOPPING, State.SUSPENDING})


def soft_limit(target: ServiceTarget) -> int:
    given = target.service.concurrency
    return (given.soft_limit if given else None) or (given.hard_limit if given else None) or SOFT_LIMIT


def hard_limit(target: ServiceTarget) -> float:
    given = target.service.concurrency
    return (given.hard_limit if given else None) or inf


class Gate:
    """The gate of one machine. `total` is how many visits all of its services have in flight."""

    def __init__(self, route: MachineRoute, now: float) -> None:
        self.route = route
        self.in_flight: dict[int, int] = {}
        self.total = 0
        self.lasting = 0  # of the total, what has no end of its own: raw connections, upgraded ones
        self.left: dict[int, int] = {}  # of `in_flight`, who came in through an edge process before this one
        self.proven: set[int] = set()  # services that took a connection of this instance
        self.busy_at = now  # when somebody was in there last
        self.opened_at = now  # when this instance started, or was first heard of
        self.waking = False
        self.rest_after = -inf  # a rest that was refused is not asked for again before
        self.doubted: InstanceId | None = None  # whether it is to rest the worker was asked, and has not answered
        self.full_until = -inf  # another process of the host has the gate, and had no room
        self.why_not = ""  # of the last wake that was refused
        self._wake_after = -inf
        self._closed: InstanceId | None = None
        self._avoided_until, self._avoid_s = -inf, _AVOID_S
        self._failed_until = -inf  # what fails before had begun before it was avoided
        self.is_doubted = False  # of another host: it was not reached, and has let nobody in since
        self.trial: object | None = None  # who tries whether it is there again
        self._emptied: list[Callable[[], None]] = []

    def update(self, route: MachineRoute, now: float) -> None:
        """Take what the worker says of the machine now."""
        if route.instance != self.route.instance or route.state is not State.STARTED:
            self.proven.clear()
        if route.state is State.STARTED and self.route.state is not State.STARTED:
            self.busy_at = self.opened_at = now
            self._avoided_until, self._avoid_s, self._failed_until = -inf, _AVOID_S, -inf
            self.is_doubted, self.trial = False, None
            if self._closed == route.instance:  # it was suspended, and goes on
                self._closed = None
        if route.state is State.STARTED or (self.waking and route.state in _ASLEEP and self.route.state not in _ASLEEP):
            self.waking = False  # it has come up; or it came down again, and may be asked anew
        self.route = route

    @property
    def is_near(self) -> bool:
        """Whether the machine is on this host and its gate in this process, which decides here. A gate of another host,
        or of another process of this host, is only what we believe of it."""
        return self.route.gate is None

    @property
    def is_beside(self) -> bool:
        """Whether another process of this host has the machine's gate, and counts its visits."""
        return self.route.gate is not None and self.route.gate.is_beside

    @property
    def is_open(self) -> bool:
        """Whether requests are let in, limits apart."""
        route = self.route
        if route.state is not _STARTED or route.health is not _PASSING or route.cordoned:
            return False
        return route.gate is not None or (route.instance is not None and route.instance != self._closed)

    @property
    def is_empty(self) -> bool:
        """Whether no visit is in the machine, as this gate counts."""
        return not self.total

    def keeps(self, instance: InstanceId | None) -> bool:
        """Whether visits that came into this instance are still served there."""
        route = self.route
        return route.state is State.STARTED and route.instance == instance and instance != self._closed

    @property
    def is_coming(self) -> bool:
        """Whether the gate will be open by itself: the machine starts, or its checks have not answered yet."""
        route = self.route
        if route.cordoned:
            return False
        unasked = route.state is State.STARTED and route.health is RouteHealth.UNASKED
        return self.waking or route.state in _ON_ITS_WAY or unasked

    @property
    def may_wake(self) -> bool:
        """Whether the machine sleeps, or is about to, and may be started for a request."""
        route = self.route
        asleep = route.state in _ASLEEP or route.state in _GOING or self._is_closed
        return asleep and route.autostart and not route.cordoned

    def can_wake(self, now: float) -> bool:
        """Whether to ask for the machine's start now: no start was asked for, and no refusal is a moment old."""
        return self.may_wake and not self.waking and now >= self._wake_after

    @property
    def _is_closed(self) -> bool:
        return self.is_near and self.route.state is State.STARTED and self._closed == self.route.instance

    @property
    def sleeps(self) -> bool:
        """Whether the machine can be asked to start now; a machine on its way to sleep can only later."""
        return self.route.state in _ASLEEP

    def avoided(self, now: float) -> bool:
        return now < self._avoided_until

    def is_beginning(self, number: int, now: float) -> bool:
        """Whether the machine has started, and its service may need a while before it listens."""
        return self.is_near and self.is_open and number not in self.proven and now < self.opened_at + _BEGINS_S

    def enter(self, number: int) -> None:
        assert self.is_open or not self.is_near, "nobody comes into a machine that is not open"
        self.in_flight[number] = self.in_flight.get(number, 0) + 1
        self.total += 1

    def leave(self, number: int, now: float) -> None:
        self.in_flight[number] -= 1
        self.total -= 1
        self.busy_at = now
        self._tell_emptied()

    @property
    def inside(self) -> dict[int, int]:
        """The number of visits that came in through this process and are in the machine, by service."""
        found = {number: count - self.left.get(number, 0) for number, count in self.in_flight.items()}
        return {number: count for number, count in found.items() if count}

    def remain(self, number: int, count: int, now: float) -> None:
        """Count so many more visits, or fewer, that are in a process that leaves. No stop waits for their end: they
        last longer than any stop."""
        self.left[number] = self.left.get(number, 0) + count
        self.in_flight[number] = self.in_flight.get(number, 0) + count
        self.total += count
        self.lasting += count
        self.busy_at = now

    def last(self, count: int) -> None:
        """Count so many more visits in the machine, or fewer, that have no end of their own."""
        self.lasting += count
        self._tell_emptied()

    def _tell_emptied(self) -> None:
        if self._emptied and self.total <= self.lasting:
            waiting, self._emptied = self._emptied, []
            for call in waiting:
                call()

    def close(self, instance: InstanceId, emptied: Callable[[], None] | None = None) -> None:
        """Let nobody into this instance from now on. `emptied` is called when all visits in the machine that have an
        end have ended."""
        self._closed = instance
        if emptied is not None:
            self._emptied.append(emptied)
            self._tell_emptied()

    def reopen(self, instance: InstanceId, now: float) -> None:
        """Open the gate again after a rest that the worker refused."""
        self.rest_after = now + _REST_AGAIN_S
        if self._closed == instance:
            self._closed = None

    def settle(self, now: float) -> None:
        """Note that the worker has said how everything is: a rest that it had agreed to before would be part of that,
        so one in doubt was refused."""
        doubted, self.doubted = self.doubted, None
        if doubted is not None and self.route.state is State.STARTED:
            self.reopen(doubted, now)

    def refused_wake(self, why: str, now: float) -> None:
        self.waking, self.why_not, self._wake_after = False, why, now + _WAKE_AGAIN_S

    def answered(self, number: int) -> None:
        """Note that the service has taken a connection."""
        self.proven.add(number)
        self.is_doubted, self.trial = False, None
        self._avoid_s = _AVOID_S

    def failed(self, number: int, now: float) -> None:
        """Note that the service has taken no connection: it is asked again later, each time later. Many failures at
        once count as one."""
        self.proven.discard(number)
        self.is_doubted, self.trial = not self.is_near, None
        if now >= self._failed_until:
            self._avoided_until = self._failed_until = now + self._avoid_s
            self._avoid_s = min(_LONGEST_AVOID_S, 2 * self._avoid_s)

    def avoid(self, until: float) -> None:
        """Avoid a gate of another host that did not let a request in, until it can be asked again."""
        self._avoided_until = max(self._avoided_until, until)

    def lose(self, until: float) -> None:
        """Avoid a gate whose host is not heard of. After that time one request tries, before others follow."""
        self.is_doubted = True
        self.avoid(until)

    def is_proven(self, number: int) -> bool:
        """Whether the service has taken a connection; for another host, whether nothing is known against it."""
        return number in self.proven if self.is_near else not self.is_doubted

    def is_tried(self, number: int) -> bool:
        """Whether a request is finding out now whether the service takes a connection."""
        return self.in_flight.get(number, 0) > 0 if self.is_near else self.trial is not None

    def load(self, target: ServiceTarget) -> float:
        return self.in_flight.get(target.number, 0) / soft_limit(target)

    def has_room(self, target: ServiceTarget) -> bool:
        return self.in_flight.get(target.number, 0) < hard_limit(target)


class _GateOf(dict[MachineId, Gate]):
    """By machine. Of one on another host, of which there may be 100,000, the gate is made when it is asked for; those
    that were not are none of the values."""

    def __init__(self, machines: Mapping[MachineId, MachineRoute], made: Callable[[MachineRoute], Gate]) -> None:
        self._machines = machines
        self._made = made

    def __missing__(self, machine_id: MachineId) -> Gate:
        gate = self[machine_id] = self._made(self._machines[machine_id])
        return gate

    def get(self, machine_id: MachineId, default: Any = None) -> Any:
        try:
            return self[machine_id]
        except KeyError:
            return default

    def made(self, machine_id: MachineId) -> Gate | None:
        """It, if anybody has asked for it."""
        return super().get(machine_id)

    def __contains__(self, machine_id: object) -> bool:
        return machine_id in self._machines or super().__contains__(machine_id)


class Gates:
    """The gates of all machines. `random` is uniform in [0, 1). `machines` are all, as the routes have them: a copy
    would take as much again."""

    def __init__(self, random: Callable[[], float], machines: Mapping[MachineId, MachineRoute]) -> None:
        self._random = random
        self._machines = machines
        self.of = _GateOf(machines, self._made)
        self._left: dict[str, LeftInside] = {}  # in each process that leaves
        self._shut = False

    def update(self, route: MachineRoute, now: float) -> None:
        """Take what the worker says of a machine now, also for the first time."""
        gate = self.of.made(route.id)
        if gate is not None:
            gate.update(route, now)
        elif route.gate is None or route.gate.is_beside:
            self.of[route.id] = self._made(route, now)

    def _made(self, route: MachineRoute, now: float = 0.0) -> Gate:
        """When it is made says nothing of a machine of another host."""
        gate = Gate(route, now)
        for left in self._left.values():
            for number, count in left.get(route.id, {}).items():
                gate.remain(number, count, now)
        return gate

    def settle(self, machine_id: MachineId, now: float) -> None:
        """Note for this machine that the worker has said how everything is."""
        gate = self.of.made(machine_id)
        if gate is not None:
            gate.settle(now)

    def remain(self, process: str, left: LeftInside, now: float) -> None:
        """Count the visits in machines that came in through a process that leaves: `left` is all of them, none once the
        process has ended."""
        before = self._left.pop(process, {})
        if left:
            self._left[process] = left
        for machine_id in before.keys() | left.keys():
            was, there = before.get(machine_id, {}), left.get(machine_id, {})
            for number in was.keys() | there.keys():
                more = there.get(number, 0) - was.get(number, 0)
                if more and machine_id in self.of:
                    self.of[machine_id].remain(number, more, now)

    @property
    def have_inside(self) -> bool:
        """Whether any visit that came in through this process is in a machine."""
        return any(gate.inside for gate in self.of.values())

    def shut(self) -> None:
        """Let nobody in any more, through any gate: another process does that now."""
        self._shut = True

    def forget(self, machine_id: MachineId) -> None:
        """Forget the gate of a machine that is among `machines` no more. Visits that are in there leave a gate that
        nobody enters any more."""
        gate = self.of.pop(machine_id, None)
        if gate is not None and gate.route.instance is not None:
            gate.close(gate.route.instance)

    def avoid_host(self, place: GatePlace, until: float) -> None:
        """Avoid all gates of a host that is not heard of."""
        for machine in self._machines.values():
            if machine.gate == place:
                self.of.get(machine.id)
        for gate in self.of.values():
            if gate.route.gate == place:
                gate.lose(until)

    def choose(self, targets: Iterable[ServiceTarget], now: float) -> ServiceTarget | None:
        """The least loaded of the machines that have room, equal ones by lot; of many machines, of some drawn by lot.
        Where a machine has taken connections before, one that has not is tried by one request at a time, and so is one
        whose host was lost. Machines that are avoided are left out. A machine on another host counts as twice as
        loaded, and of equal ones comes last. Of the hosts of another region one is asked until its soft limit."""
        roomy = [each for each in targets if self._takes(each, now)]
        proven = [each for each in roomy if self._is_proven(each)] if len(roomy) > 1 else roomy
        if len(proven) == len(roomy) or not proven:
            found = roomy
        else:
            idle = [each for each in roomy if not self.of[each.machine.id].is_tried(each.number)]
            found = [*proven, *(each for each in idle if not self._is_proven(each))]
        if len(found) > 2 * _COMPARED:
            found = [found[int(self._random() * len(found))] for _ in range(_COMPARED)]
        return min(found, key=self._order, default=None)

    def is_trial(self, target: ServiceTarget, targets: Iterable[ServiceTarget], now: float) -> bool:
        """Whether the target has taken no connection yet, and another one that has does have room: nobody waits until
        the target listens then."""
        return not self._is_proven(target) and any(self._is_proven(each) and self._takes(each, now) for each in targets)

    def _is_proven(self, target: ServiceTarget) -> bool:
        return self.of[target.machine.id].is_proven(target.number)

    def _order(self, target: ServiceTarget) -> tuple[float, bool, float]:
        load = self.of[target.machine.id].load(target)
        if target.machine.region and load < 1:  # its hosts choose for all of it: of two each would wake its own choice
            return -load, True, self._random()
        return (load, False, self._random()) if target.is_here else (_HOP_WEIGHT * load, True, self._random())

    def to_hold(self, targets: Iterable[ServiceTarget], now: float) -> ServiceTarget | None:
        """A machine of another host that is not up and can be asked for all the same: its gate holds the request, and
        starts it. A machine that is asked for already is taken first, until its soft limit; so not all are started at
        once. Else a machine of this host's other processes, if there is one, and the one that its gate's process starts
        first: requests that wait there wait for the same machine."""
        found = []
        for target in () if self._shut else targets:
            gate = self.of.get(target.machine.id)
            if gate is None or target.is_near or not gate.has_room(target):
                continue
            if now < gate.full_until:  # who waits does so where those do that came to that process
                found.append(((True, True, True, True, gate.load(target), True, target.machine.id), target))
            elif gate.avoided(now):
                continue
            elif gate.may_wake or gate.is_coming:
                load = gate.load(target)
                tried = gate.is_doubted and load > 0
                order = not target.is_here, not gate.is_coming, -load, gate.route.state is not State.SUSPENDED
                found.append(((tried, load >= 1, *order, target.machine.id), target))
        return min(found, key=lambda each: each[0], default=(None, None))[1]

    def to_wake(self, targets: Sequence[ServiceTarget], waiting: int, now: float) -> list[Gate]:
        """The machines to start, so that `waiting` more requests and those over the soft limits find a place: as many
        machines as that takes, and none while as many are on their way. Suspended ones first, then by id."""
        over, coming, asleep = waiting, 0, []
        for target in targets:
            gate = self.of.get(target.machine.id)
            if gate is None or not gate.is_near:
                continue
            if gate.is_open and (not gate.avoided(now) or gate.is_beginning(target.number, now)):
                over += gate.in_flight.get(target.number, 0) - soft_limit(target)
            elif gate.is_coming:
                coming += soft_limit(target)
            elif gate.can_wake(now):
                asleep.append((gate.route.state is not State.SUSPENDED, gate.route.id, target))
        chosen = []
        for _, machine_id, target in sorted(asleep, key=lambda each: each[:2]):
            if over <= coming:
                break
            coming += soft_limit(target)
            chosen.append(self.of[machine_id])
        return [gate for gate in chosen if gate.sleeps]

    def may_open(self, targets: Iterable[ServiceTarget]) -> bool:
        """Whether waiting can help at all: a machine is full, is coming, or can be started."""
        found = (self.of.get(each.machine.id) for each in (() if self._shut else targets))
        return any(gate.is_open or gate.is_coming or gate.may_wake for gate in found if gate is not None)

    def _takes(self, target: ServiceTarget, now: float) -> bool:
        gate = None if self._shut else self.of.get(target.machine.id)
        return gate is not None and gate.is_open and not gate.avoided(now) and gate.has_room(target)
