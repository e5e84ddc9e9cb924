"""Never stop what was accepted: three requests, one rest, one stop by a user and one new edge process, in every order
in which their steps can come. The gates are the real ones; messages between edge and worker are steps of their own.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec
import pytest

from hawker.edge.gates import Gate, Gates, LeftInside
from hawker.edge.routes import ServiceTarget
from hawker.feed import MachineRoute
from hawker.ids import InstanceId
from hawker.machine import State
from tests.edge.edge_kit import route

REQUESTS = 3
MACHINE = route(80, 8080, autostop=True)
assert MACHINE.instance is not None
INSTANCE: InstanceId = MACHINE.instance


@dataclass
class Life:
    """One order of steps, played from the beginning. `at` says how far each of them is."""

    gates: type[Gates] = Gates
    at: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = State.STARTED  # as the worker has it
        self.processes = [self.gates(lambda: 0.0, {})]
        self.processes[0].update(MACHINE, 0.0)
        self.inside: dict[str, int] = {}  # by request: the process that let it in
        self.closed = False  # the gate has told the worker that nobody comes in

    def gate(self, process: int = -1) -> Gate:
        return self.processes[process].of[MACHINE.id]

    def target(self) -> ServiceTarget:
        machine = self.gate().route
        service = machine.services[0]
        return ServiceTarget(machine, 0, service, (service.ports or ())[0])

    def steps(self) -> Iterator[str]:
        """Those that can come next."""
        done = self.at
        leaves = done.get("leave", 0)
        for number in range(REQUESTS):
            request = f"request {number}"
            if (done.get(request, 0) == 0 and leaves != 1) or request in self.inside:
                yield request
        rest, stop = done.get("rest", 0), done.get("stop", 0)
        if rest == 0 and self.gate().is_open and not self.gate().total and leaves != 1:
            yield "rest"
        if rest in (1, 2):  # what a process that leaves has asked for is decided before the next one is told anything
            yield "rest"
        if (stop == 0 and leaves != 1) or (stop == 1 and self.closed) or stop == 2:
            yield "stop"
        if (leaves == 0 and stop in (0, 3)) or (leaves == 1 and rest != 1):
            yield "leave"

    def take(self, step: str) -> None:
        turn = self.at[step] = self.at.get(step, 0) + 1
        match step.split()[0]:
            case "request":
                self._request(step)
            case "rest":
                self._rest(turn)
            case "stop":
                self._stop(turn)
            case _:
                self._leave(turn)
        for process in self.processes:
            if process.of[MACHINE.id].total < 0:
                self.wrong.append("fewer than nobody are counted")

    def _request(self, request: str) -> None:
        process = self.inside.pop(request, None)
        if process is not None:
            self.gate(process).leave(0, 1.0)
            self._tell_left()
        elif self.processes[-1].choose([self.target()], 1.0) is not None:
            self.gate().enter(0)
            self.inside[request] = len(self.processes) - 1
            if self.state is not State.STARTED or self.closed:
                self.wrong.append(f"{request} came into a machine that is {self.state}, closed: {self.closed}")

    def _rest(self, turn: int) -> None:
        """The gate asks, the worker decides, the gate hears what came of it."""
        match turn:
            case 1:
                self.gate().close(INSTANCE)
            case 2 if self.state is State.STARTED:
                self.state = State.STOPPING
                if self.inside:
                    self.wrong.append(f"rests with {sorted(self.inside)} in there")
            case 3 if self.state is State.STARTED:
                self.gate().reopen(INSTANCE, 1.0)
            case 3:
                self._hear()

    def _stop(self, turn: int) -> None:
        """The worker says so to the gate, which closes; once the last one with an end has left, it stops."""
        match turn:
            case 1:
                self.gate().close(INSTANCE, self._emptied)
            case 2 if self.state is State.STARTED:
                self.state = State.STOPPING
                waited_for = [each for each, process in self.inside.items() if process == len(self.processes) - 1]
                if waited_for:
                    self.wrong.append(f"stops with {waited_for} in there")
            case 3:
                self._hear()

    def _emptied(self) -> None:
        self.closed = True

    def _hear(self) -> None:
        running = INSTANCE if self.state is State.STARTED else None
        self.gate().update(msgspec.structs.replace(MACHINE, state=self.state, instance=running), 1.0)

    def _leave(self, turn: int) -> None:
        """The process lets nobody in any more; the next one has heard who is left, and begins."""
        if turn == 1:
            self.processes[0].shut()
            return
        following = self.gates(lambda: 0.0, {})
        self.processes.append(following)
        running = INSTANCE if self.state is State.STARTED else None
        following.update(msgspec.structs.replace(MACHINE, state=self.state, instance=running), 1.0)
        self._tell_left()

    def _tell_left(self) -> None:
        if len(self.processes) > 1:
            self.processes[-1].remain("1", {MACHINE.id: self.gate(0).inside}, 1.0)

    @property
    def sight(self) -> str:
        """Two orders that come to the same one go on in the same ways."""
        gates = [
            (gate.in_flight, gate.left, gate.is_open, gate.keeps(INSTANCE))
            for gate in map(self.gate, range(len(self.processes)))
        ]
        return repr((sorted(self.at.items()), sorted(self.inside.items()), self.state, self.closed, gates))


def wrong_in_any_order(gates: type[Gates] = Gates) -> tuple[int, list[str]]:
    """How many sights there are, and the first order in which something is wrong, with what."""
    seen, waiting = set[str](), [list[str]()]
    while waiting:
        steps = waiting.pop()
        life = Life(gates)
        for step in steps:
            life.take(step)
        if life.wrong:
            return len(seen), [*steps, *life.wrong]
        if life.sight not in seen:
            seen.add(life.sight)
            waiting += [[*steps, step] for step in life.steps()]
    return len(seen), []


def test_no_order_of_requests_a_rest_a_stop_and_a_new_process_ends_what_was_let_in() -> None:
    sights, wrong = wrong_in_any_order()
    assert wrong == [] and sights > 1000


class _Open(Gate):
    """It is closed, and lets in all the same."""

    def close(self, instance: InstanceId, emptied: Callable[[], None] | None = None) -> None:
        if emptied is not None:
            emptied()


class _AdmitsWhileClosing(Gates):
    def update(self, route: MachineRoute, now: float) -> None:
        self.of.setdefault(route.id, _Open(route, now))
        super().update(route, now)


class _ForgetsWhoIsLeft(Gates):
    """Of the process before."""

    def remain(self, process: str, left: LeftInside, now: float) -> None: ...


@pytest.mark.parametrize("gates", [_AdmitsWhileClosing, _ForgetsWhoIsLeft])
def test_an_order_is_found_in_which_a_planted_bug_ends_somebody(gates: type[Gates]) -> None:
    _, wrong = wrong_in_any_order(gates)
    assert wrong and ("in there" in wrong[-1] or "came into" in wrong[-1])
