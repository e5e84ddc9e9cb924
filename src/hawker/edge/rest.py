"""Which machines nobody needs any more. Pure, with `now` as an argument; the worker has the last word.

Of the machines of a service that let it stop them, as many stay as its load and `min_machines_running` need: one more
than those at their soft limit while any is busy. Whoever is in a machine is never cut off by this. And which of them
is to run again, where too few do.
"""

from collections.abc import Iterable, Iterator

from hawker.config import Service
from hawker.edge.gates import SOFT_LIMIT, Gate
from hawker.feed import MachineRoute
from hawker.machine import State
from hawker.value_object import ValueObject

SHORT_S = 5.0
"""Seconds that fewer machines run than are to before another one is started: a client that restarts a machine stops it
first."""
CALM_S = 30.0
"""Seconds after its last request from which on a machine counts as idle."""


class RestWish(ValueObject, frozen=True):
    """A machine that may rest. `suspend`: to be suspended rather than stopped, since every service that lets it stop
    says so."""

    gate: Gate
    suspend: bool


def may_rest(gates: Iterable[Gate], now: float) -> Iterator[RestWish]:
    """The machines of one app on this host that may rest, one by one: each of them alone, so the caller asks for one
    and looks again."""
    there = [gate for gate in gates if gate.is_open]
    for gate in there:
        stops = [each for each in gate.route.services if each.autostop]
        idle = gate.is_empty and now - gate.busy_at >= gate.route.idle_s
        if stops and idle and now >= gate.rest_after and all(_spared(gate, each, there, now) for each in stops):
            yield RestWish(gate, suspend=all(each.autostop == "suspend" for each in stops))


def _spared(gate: Gate, service: Service, there: list[Gate], now: float) -> bool:
    """Whether the others are enough for this service."""
    classes = {
        each.route.id: load_class(each, number, now) for each in there for number in _numbers(each.route, service)
    }
    order = sorted(classes, key=lambda machine_id: (-classes[machine_id], machine_id))
    busy, over = any(classes.values()), sum(found >= 2 for found in classes.values())
    need = max(service.min_machines_running or 0, over + 1 if busy else 0, 0 if gate.route.autostart else 1)
    return order.index(gate.route.id) >= need


def to_restore(gates: Iterable[Gate], now: float) -> Gate | None:
    """The machine that is to run again, of the machines of one app on this host that rest: somebody has stopped another
    one, and fewer are up, or on their way, than a service's `min_machines_running`. A machine that somebody stopped
    stays so."""
    there = sorted(gates, key=lambda gate: gate.route.id)
    for gate in there:
        if gate.sleeps and gate.route.rested and gate.can_wake(now):
            stops = [each for each in gate.route.services if each.autostop]
            if any(_running(each, there) < (each.min_machines_running or 0) for each in stops):
                return gate
    return None


def _running(service: Service, there: Iterable[Gate]) -> int:
    """One whose checks fail counts: to start another one is for requests."""
    up = (gate for gate in there if gate.is_coming or (gate.route.state is State.STARTED and not gate.route.cordoned))
    return sum(any(True for _ in _numbers(gate.route, service)) for gate in up)


def _numbers(route: MachineRoute, service: Service) -> Iterator[int]:
    """The same service in another machine, whose config may be of another version."""
    for number, other in enumerate(route.services):
        if other.internal_port == service.internal_port and (other.protocol or "tcp") == (service.protocol or "tcp"):
            yield number
            return


def load_class(gate: Gate, number: int, now: float) -> int:
    """The load of one service of a machine: 0 idle, 1 busy, 2 at its soft limit, 3 at its hard limit."""
    flying, limits = gate.in_flight.get(number, 0), gate.route.services[number].concurrency
    hard, soft = (limits.hard_limit, limits.soft_limit) if limits else (None, None)
    if hard and flying >= hard:
        return 3
    if flying >= (soft or hard or SOFT_LIMIT):
        return 2
    return 1 if flying or now - gate.busy_at < min(CALM_S, gate.route.idle_s) else 0
