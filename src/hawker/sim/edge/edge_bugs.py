"""The planted bugs of edges: each is what an edge of this kind gets wrong, and the simulator must find every one."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from itertools import count

from msgspec.structs import replace

from hawker.edge.dialing import Joined
from hawker.edge.exchange import HttpExchange, _Leg
from hawker.edge.gates import Gate, Gates
from hawker.edge.head import RequestHead
from hawker.edge.hop_frames import HopQuestion
from hawker.edge.hops import HopDialer
from hawker.edge.http_connection import HttpConnection, HttpConnections
from hawker.edge.machine_connection import MachineConnection
from hawker.edge.proxy_protocol import ProxiedConnections
from hawker.edge.refusal import ProxyError
from hawker.edge.rest import RestWish, may_rest
from hawker.edge.routes import Door, Routes, ServiceTarget, _served
from hawker.edge.shard import EdgeShard
from hawker.edge.steering import Aim
from hawker.edge.visits import Visit, Visits
from hawker.edge.writing import Origin
from hawker.feed import MachineRoute
from hawker.fleet.far_routes import FarRoutes
from hawker.ids import AppName, InstanceId, MachineId
from hawker.machine import State
from hawker.names import is_private_address
from hawker.proof.violation import Invariant as I
from hawker.sim.edge.datagram_bugs import DATAGRAM_PLANTS
from hawker.sim.edge.played_host import EdgeKit
from hawker.sim.harness.planted_bug import PlantedBug


def _with_gate(made: type[Gate]) -> EdgeKit:
    class Planted(Gates):
        def update(self, route: MachineRoute, now: float) -> None:
            self.of.setdefault(route.id, made(route, now))
            super().update(route, now)

    return EdgeKit(gates=Planted)


class _NeverCloses(Gate):
    """Whoever comes while a machine is being closed is let in."""

    def close(self, instance: InstanceId, emptied: Callable[[], None] | None = None) -> None:
        if emptied is not None:
            emptied()


class _HasRoom(Gate):
    def has_room(self, target: ServiceTarget) -> bool:
        return True


class _WakesOnce(Gate):
    """A machine that came up for a request sleeps for good the next time."""

    _came = False

    def update(self, route: MachineRoute, now: float) -> None:
        self._came = self._came or (self.waking and route.state is State.STARTED)
        super().update(route, now)

    @property
    def may_wake(self) -> bool:
        return super().may_wake and not self._came


class _TriesAgain(Gate):
    """What another host's gate has refused is asked for again at once."""

    def avoid(self, until: float) -> None:
        """It may have changed."""


class _StaysClosed(Gate):
    """Whoever was about to rest, and may not, takes nobody any more."""

    def reopen(self, instance: InstanceId, now: float) -> None:
        closed = self._closed
        super().reopen(instance, now)
        self._closed = closed


class _AsTold(Gate):
    """Who is in there is read where hosts tell each other of it, which is some seconds late."""

    def __init__(self, route: MachineRoute, now: float) -> None:
        super().__init__(route, now)
        self._told: tuple[dict[int, int], int, float] = {}, 0, now
        self._told_at = now

    def seen(self, now: float) -> Gate:
        if now - self._told_at >= _TOLD_EVERY_S:
            self._told, self._told_at = (dict(self.in_flight), self.total, self.busy_at), now
        seen = copy(self)
        seen.in_flight, seen.total, seen.busy_at = self._told
        return seen

    @property
    def is_empty(self) -> bool:
        return not self._told[1]


_TOLD_EVERY_S = 5.0


def _rests_by_what_is_told(gates: Iterable[Gate], now: float) -> Iterator[RestWish]:
    there = {gate.route.id: gate for gate in gates}
    seen = (gate.seen(now) for gate in there.values() if isinstance(gate, _AsTold))
    yield from (replace(wish, gate=there[wish.gate.route.id]) for wish in may_rest(seen, now))


class _KnowsAll(Gate):
    """Finds the machines of other hosts, too."""

    all: Mapping[MachineId, Gate] = {}


class _AllKnown(Gates):
    def update(self, route: MachineRoute, now: float) -> None:
        gate = self.of.setdefault(route.id, _KnowsAll(route, now))
        assert isinstance(gate, _KnowsAll), "no other is made"
        gate.all = self.of
        super().update(route, now)


def _rests_by_all_hosts(gates: Iterable[Gate], now: float) -> Iterator[RestWish]:
    """As many as are to run may do so anywhere."""
    there = list(gates)
    everywhere = there[0].all if there and isinstance(there[0], _KnowsAll) else {}
    others = [gate for gate in everywhere.values() if not gate.is_near and gate.route.app == there[0].route.app]
    yield from (wish for wish in may_rest([*there, *others], now) if wish.gate.is_near)


class _FindsByName(Routes):
    """An app is found by its name, whether it has an address or not."""

    def _places(self, target: ServiceTarget) -> Iterator[str]:
        yield from super()._places(target)
        if target.serves_http:
            yield from self._addresses


class _NamesInside(Routes):
    """At a private address any app is found by its name."""

    def _found_at(self, machine: MachineRoute) -> dict[Door, ServiceTarget]:
        private, served = filter(is_private_address, self._owner_of), list(_served(machine))
        found = {Door(address, number): target for address in private for target, number in served}
        return found | super()._found_at(machine)


class _ForgetsCounts(Visits):
    """A request is not counted while it is in its machine."""

    def end(self, visit: Visit) -> None:
        """It was taken out when it came."""
        self.changed(visit.target.machine.app)

    def _try(self, targets: Sequence[ServiceTarget]) -> Visit | None:
        visit = super()._try(targets)
        if visit is not None:
            visit.gate.leave(visit.target.number, self._now())
        return visit


class _WaitsForEver(Visits):
    """Nobody's time is ever over."""

    async def begin(self, aim: Aim, began: float, cause: ProxyError | None = None) -> Visit:
        return await super().begin(aim, began + 1e6, cause)


class _LosesPlaces(Visits):
    """Who left a machine of another host is counted there still."""

    def end(self, visit: Visit) -> None:
        if visit.target.is_near:
            super().end(visit)


class _WaitsForTheLost(HopDialer):
    """A host that says nothing is waited for."""

    def sweep(self) -> None:
        self._busy.clear()
        super().sweep()


class _AsksAnew(HopDialer):
    """Who is asked again by a new connection may take all of the time that the request had."""

    def _again(self, question: HopQuestion, until: float) -> HopQuestion:
        return question


class _WakesAll(Gates):
    def to_wake(self, targets: Sequence[ServiceTarget], waiting: int, now: float) -> list[Gate]:
        found = [self.of[each.machine.id] for each in targets]
        return [gate for gate in found if gate.is_near and gate.can_wake(now) and gate.sleeps]


def _rests_whom_load_does_not_need(gates: Iterable[Gate], now: float) -> Iterator[RestWish]:
    """As many as are to run may rest, too."""
    for gate in gates:
        idle = gate.is_open and not gate.total and now - gate.busy_at >= gate.route.idle_s
        if idle and any(service.autostop for service in gate.route.services):
            yield RestWish(gate, suspend=False)


def _never_restores(gates: Iterable[Gate], now: float) -> Gate | None:
    """What rests is started for requests only, however few run."""
    return None


class _WakesAtOnce(Visits):
    """Nobody counts how many are on their way up."""

    def _begin_start(self, gate: Gate, *, rested: bool) -> None:
        super()._begin_start(gate, rested=rested)
        self._release_wake(gate.route.id)


class _HandsOn(Visits):
    """Who comes from another region is led on as one's own, also to a third region, or back."""

    async def admit_from_afar(self, aim: Aim, spoken: str, began: float) -> Visit:
        doors = (door for door in sorted(self._routes.doors) if door.port == aim.door.port)
        return await self.begin(replace(aim, door=next(doors, aim.door)), began)


class _BelievesStarts(Visits):
    """A machine whose start was accepted comes up."""

    def _doubt_starts(self) -> None:
        self._accepted.clear()


class _FallsBack(Visits):
    """Where nobody of the region that was asked for is known, anybody will do."""

    def found(self, aim: Aim) -> list[ServiceTarget]:
        return super().found(aim) or super().found(replace(aim, steering=replace(aim.steering, regions=())))


def _never_rests(gates: Iterable[Gate], now: float) -> Iterator[RestWish]:
    yield from ()


class _RepeatsAll(HttpExchange):
    """What no answer came to is sent to another machine, whatever its method."""

    def _elsewhere(self, leg: _Leg, joined: Joined[MachineConnection]) -> _Leg | None:
        method, self._head = self._head.method, _as_get(self._head)
        try:
            return super()._elsewhere(leg, joined)
        finally:
            self._head = _as_get(self._head, method)


class _RepeatsAfar(_RepeatsAll):
    """Only what was sent to another region."""

    def _elsewhere(self, leg: _Leg, joined: Joined[MachineConnection]) -> _Leg | None:
        if joined.visit.target.machine.region:
            return super()._elsewhere(leg, joined)
        return HttpExchange._elsewhere(self, leg, joined)


def _as_get(head: RequestHead, method: bytes = b"GET") -> RequestHead:
    return replace(head, method=method)


class _ReplaysAnywhere(HttpExchange):
    def _may_reach(self, source: ServiceTarget, app: AppName) -> bool:
        return True


def _with_exchange(made: type[HttpExchange]) -> EdgeKit:
    class Connection(HttpConnection):
        carrier = made

    class Connections(HttpConnections):
        connection = Connection

    return EdgeKit(http=Connections)


class _KeepsSources(HttpConnection):
    """A client says which machine has replayed its request."""

    def _begin(self, head: RequestHead, origin: Origin, lines: bytes) -> HttpExchange:
        said = next((value for name, value in head.fields if name == b"fly-replay-src"), b"")
        return super()._begin(head, origin, lines + b"fly-replay-src: %b\r\n" % said)


class _BelievesClients(HttpConnection):
    """What a client says of itself goes on to the machine."""

    def _begin(self, head: RequestHead, origin: Origin, lines: bytes) -> HttpExchange:
        said = next((value for name, value in head.fields if name == b"fly-client-ip"), b"")
        return super()._begin(head, origin, b"fly-client-ip: %b\r\n" % said + lines.partition(b"\r\n")[2])


class _Believing(HttpConnections):
    connection = _BelievesClients


class _Keeping(HttpConnections):
    connection = _KeepsSources


class _HoldsByOwnChoice(Gates):
    """Who waits for a machine whose gate is elsewhere asks for any that sleeps, not for whom its process starts."""

    def to_hold(self, targets: Iterable[ServiceTarget], now: float) -> ServiceTarget | None:
        there = list(targets)
        asleep = [each for each in there if not each.is_near and self.of[each.machine.id].may_wake]
        return min(asleep, key=lambda each: each.machine.id, default=None) or super().to_hold(there, now)


class _AsksNoNetwork(ProxiedConnections):
    """A private address is anybody's who comes to it."""

    def accept(self, door: Door) -> asyncio.Protocol:
        return self.accept_known(door)


class _HasAll(EdgeShard, frozen=True):
    """Each process of a host has a gate for every machine there."""

    def has(self, app: AppName) -> bool:
        return True


class _ForgetsRegions(FarRoutes):
    """What other regions serve is told when it is read, and not the times between."""

    async def serve(self) -> None:
        for turn in count():
            abroad = [] if turn % _READ_EVERY else await self.read_regions()
            self._tell([*await self.read(), *abroad], await self.addresses())
            await self._clock.sleep(1.0)


_READ_EVERY = 5


def _plant(name: str, what: str, parts: EdgeKit, *breaks: I) -> PlantedBug[EdgeKit]:
    return PlantedBug(name=name, what=what, kit=parts, breaks=frozenset(breaks))


PLANTS: tuple[PlantedBug[EdgeKit], ...] = (
    _plant(
        "admits-while-closing", "a gate lets requests into a machine that it closed", _with_gate(_NeverCloses), I.UNCUT
    ),
    _plant("no-hard-limit", "a gate lets in more than a machine's hard limit", _with_gate(_HasRoom), I.HARD_LIMIT),
    _plant("wakes-once", "a machine that sleeps for the second time is not woken", _with_gate(_WakesOnce), I.SERVED),
    _plant(
        "refusal-forgotten",
        "a machine that another host's gate refused is tried again for ever",
        _with_gate(_TriesAgain),
        I.ANSWERED,
    ),
    _plant(
        "counts-forgotten",
        "a request is not counted while it is in its machine",
        EdgeKit(visits=_ForgetsCounts),
        I.HARD_LIMIT,
        I.UNCUT,
    ),
    _plant(
        "holds-for-ever",
        "a request that no machine takes is held without an end",
        EdgeKit(visits=_WaitsForEver),
        I.ANSWERED,
    ),
    _plant(
        "places-lost",
        "a request of another host's machine is counted after its end",
        EdgeKit(visits=_LosesPlaces),
        I.LEFT_EMPTY,
    ),
    _plant("waits-for-the-lost", "a host that is lost is waited for", EdgeKit(hops=_WaitsForTheLost), I.ANSWERED),
    _plant("asks-anew", "a hop that is asked for again is held as long once more", EdgeKit(hops=_AsksAnew), I.ANSWERED),
    _plant("wakes-all", "a request wakes every machine that sleeps", EdgeKit(gates=_WakesAll), I.WOKEN),
    _plant(
        "least-ignored", "machines that are to run rest, too", EdgeKit(rests=_rests_whom_load_does_not_need), I.RESTED
    ),
    _plant(
        "never-restores",
        "fewer machines run than are to, and none that rests is started",
        EdgeKit(restores=_never_restores),
        I.RESTED,
    ),
    _plant(
        "wakes-at-once",
        "a host starts as many machines at once as requests ask for",
        EdgeKit(visits=_WakesAtOnce),
        I.WAKES_BOUND,
    ),
    _plant(
        "load-as-told",
        "whether a machine is idle is read where hosts tell each other of it",
        EdgeKit(gates=_with_gate(_AsTold).gates, rests=_rests_by_what_is_told),
        I.UNCUT,
    ),
    _plant(
        "least-anywhere",
        "machines that run on other hosts count for how many are to run on this one",
        EdgeKit(gates=_AllKnown, rests=_rests_by_all_hosts),
        I.RESTED,
    ),
    _plant("found-by-name", "an app without an address is found by its name", EdgeKit(routes=_FindsByName), I.OWN_APP),
    _plant(
        "found-inside",
        "an app is found by its name at another one's private address",
        EdgeKit(routes=_NamesInside),
        I.OWN_APP,
    ),
    _plant(
        "network-unasked",
        "whoever reaches a private address is served, from any network",
        EdgeKit(proxied=_AsksNoNetwork),
        I.OWN_APP,
    ),
    _plant(
        "never-returns",
        "a machine whose rest was refused takes nobody any more",
        _with_gate(_StaysClosed),
        I.RESTED,
        I.SERVED,
    ),
    _plant("never-rests", "no machine ever rests", EdgeKit(rests=_never_rests), I.RESTED),
    _plant("repeats-all", "a POST is sent again to another machine", _with_exchange(_RepeatsAll), I.SENT_ONCE),
    _plant(
        "start-believed",
        "a start that was accepted and came to nothing is waited for",
        EdgeKit(visits=_BelievesStarts),
        I.SERVED,
        I.ANSWERED,
    ),
    _plant(
        "region-falls-back",
        "a request that is forced to a region is led to another one where nobody of that one is known",
        EdgeKit(visits=_FallsBack),
        I.OWN_REGION,
    ),
    _plant(
        "goes-round",
        "a host that another region has asked asks other regions in its turn",
        EdgeKit(visits=_HandsOn),
        I.NOT_ROUND,
    ),
    _plant(
        "repeats-afar",
        "a POST that was sent to another region is sent again",
        _with_exchange(_RepeatsAfar),
        I.SENT_ONCE,
    ),
    _plant(
        "replays-anywhere",
        "a machine has requests replayed to another network's app",
        _with_exchange(_ReplaysAnywhere),
        I.OWN_APP,
    ),
    _plant(
        "source-kept",
        "a client says which machine has replayed its request",
        EdgeKit(http=_Keeping),
        I.UNFORGED,
    ),
    _plant(
        "two-gates",
        "each of a host's two edge processes has a gate of its own for one machine",
        EdgeKit(shard=_HasAll()),
        I.HARD_LIMIT,
        I.UNCUT,
    ),
    _plant(
        "own-choice",
        "each of a host's two edge processes has another machine started for one burst",
        EdgeKit(gates=_HoldsByOwnChoice),
        I.WOKEN,
    ),
    _plant(
        "regions-forgotten",
        "what other regions serve is told when it is read, and not the times between",
        EdgeKit(far=_ForgetsRegions),
        I.SERVED,
    ),
    _plant("client-believed", "a client says what its address is", EdgeKit(http=_Believing), I.UNFORGED),
    *DATAGRAM_PLANTS,
)
