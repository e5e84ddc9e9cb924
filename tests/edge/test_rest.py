"""Which machines may rest: by load and least number, never one that is in use."""

import random

import msgspec
import pytest

from hawker.config import Service
from hawker.edge.gates import Gate
from hawker.edge.rest import load_class, may_rest, to_restore
from hawker.feed import MachineRoute
from hawker.machine import State
from tests.edge.edge_kit import route

IDLE_S = 60.0


def gate_of(machine: MachineRoute, in_flight: int = 0, busy_at: float = 0.0) -> Gate:
    gate = Gate(machine, 0.0)
    for _ in range(in_flight):
        gate.enter(0)
    gate.busy_at = busy_at
    return gate


def resting(*gates: Gate, now: float = 1000.0) -> set[str]:
    return {wish.gate.route.id for wish in may_rest(gates, now)}


def stopping(
    *, soft: int | None = None, hard: int | None = None, least: int | None = None, autostart: bool = True
) -> MachineRoute:
    return route(80, 1, autostop=True, idle_s=IDLE_S, soft=soft, hard=hard, least=least, autostart=autostart)


def test_a_machine_rests_once_nobody_has_needed_it_for_its_time() -> None:
    gate = gate_of(stopping(), busy_at=100.0)
    assert not resting(gate, now=159.0) and resting(gate, now=160.0)


def test_a_machine_in_use_never_rests() -> None:
    assert not resting(gate_of(stopping(), in_flight=1), now=1e9)


def test_a_service_without_autostop_lets_no_machine_rest() -> None:
    assert not resting(gate_of(route(80, 1, idle_s=IDLE_S)), now=1e9)


@pytest.mark.parametrize("least", [0, 1, 3, 5])
def test_so_many_stay_as_the_config_says(least: int) -> None:
    gates = [gate_of(stopping(least=least)) for _ in range(4)]
    assert len(resting(*gates)) == max(0, 4 - least)


def test_under_load_one_more_stays_than_are_at_their_soft_limit() -> None:
    full = [gate_of(stopping(soft=2), in_flight=2, busy_at=1000.0) for _ in range(2)]
    idle = [gate_of(stopping(soft=2)) for _ in range(3)]
    assert len(resting(*full, *idle)) == 2


def test_the_last_one_stays_where_no_request_could_start_it_again() -> None:
    assert not resting(gate_of(stopping(autostart=False)))
    assert len(resting(*(gate_of(stopping(autostart=False)) for _ in range(2)))) == 1


def test_whoever_was_refused_is_not_asked_for_again_at_once() -> None:
    gate = gate_of(stopping())
    gate.rest_after = 1001.0
    assert not resting(gate, now=1000.0) and resting(gate, now=1001.0)


@pytest.mark.parametrize(("words", "suspends"), [(("suspend",), True), (("suspend", True), False), ((True,), False)])
def test_a_machine_is_suspended_only_if_every_service_says_so(words: tuple[object, ...], suspends: bool) -> None:
    services = tuple(
        msgspec.convert({"internal_port": number, "autostop": word}, Service) for number, word in enumerate(words, 1)
    )
    (wish,) = may_rest([gate_of(msgspec.structs.replace(stopping(), services=services))], 1000.0)
    assert wish.suspend is suspends


def test_load_has_four_classes() -> None:
    found = [load_class(gate_of(stopping(soft=2, hard=4), count), 0, 1000.0) for count in (0, 1, 2, 4)]
    assert found == [0, 1, 2, 3]
    assert load_class(gate_of(stopping(), busy_at=990.0), 0, 1000.0) == 1


def test_resting_one_by_one_never_goes_below_what_is_needed() -> None:
    chance = random.Random(3)
    for _ in range(200):
        least = chance.randrange(4)
        gates = [
            gate_of(stopping(soft=1, least=least), chance.choice((0, 0, 1))) for _ in range(chance.randrange(1, 6))
        ]
        busy = sum(gate.total for gate in gates)
        need = min(len(gates), max(least, busy + 1 if busy else 0))
        while (wish := next(may_rest(gates, 1000.0), None)) is not None:
            gates.remove(wish.gate)
        assert len(gates) >= need and sum(gate.total for gate in gates) == busy


def asleep(machine: MachineRoute, **given: object) -> Gate:
    """It rests, unless `given` says otherwise."""
    fields = {"rested": True, "state": State.STOPPED, "instance": None} | given
    return gate_of(msgspec.structs.replace(machine, **fields))


def restored(*gates: Gate) -> str | None:
    found = to_restore(gates, 1000.0)
    return None if found is None else found.route.id


def test_a_machine_that_rests_is_restored_when_fewer_run_than_are_to() -> None:
    first, second = asleep(stopping(least=1)), asleep(stopping(least=1), state=State.SUSPENDED)
    stopped = asleep(stopping(least=1), rested=False)
    assert restored(second, stopped, first) == first.route.id
    assert restored(stopped, first, gate_of(stopping(least=1))) is None, "as many run"
    assert restored(asleep(stopping()), stopped) is None, "none is to run"


@pytest.mark.parametrize("state", [State.STARTING, State.RESTARTING, State.UPDATING, State.CREATED])
def test_a_machine_on_its_way_is_one_that_runs(state: State) -> None:
    coming = gate_of(msgspec.structs.replace(stopping(least=1), state=state, instance=None))
    assert restored(asleep(stopping(least=1)), coming) is None


@pytest.mark.parametrize(
    "given",
    [{"rested": False}, {"cordoned": True}, {"autostart": False}, {"state": State.STOPPING}, {"state": State.FAILED}],
)
def test_a_machine_is_not_restored_unless_it_rests_and_may_be_started(given: dict[str, object]) -> None:
    assert restored(asleep(stopping(least=1), **given)) is None


def test_a_cordoned_machine_is_none_that_runs() -> None:
    resting_one = asleep(stopping(least=1))
    cordoned = gate_of(msgspec.structs.replace(stopping(least=1), cordoned=True))
    assert restored(resting_one, cordoned) == resting_one.route.id


def test_the_machines_of_another_service_do_not_count() -> None:
    one = asleep(stopping(least=1))
    assert restored(one, gate_of(route(81, 2, autostop=True, least=1))) == one.route.id
