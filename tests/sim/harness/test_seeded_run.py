"""A run of a small world that breaks at one operation."""

from enum import StrEnum
from typing import Any

from anyio.abc import TaskGroup

from hawker.containment import contained
from hawker.proof.violation import Invariant, Violation
from hawker.sim.harness.plan import Chance, RunOperation, RunOutcome, RunPlan
from hawker.sim.harness.seeded_run import SeededGame, SeededRun, drawn
from hawker.sim.harness.trace import MOST_FOUND


class Verb(StrEnum):
    TURN = "turn"
    BREAK = "break"


class Plan(RunPlan[RunOperation[Verb]], frozen=True):
    pass


class Outcome(RunOutcome[Plan], frozen=True, kw_only=True):
    pass


class Run(SeededRun[Plan, Outcome]):
    who = "wheel"

    def __init__(self, plan: Plan, kit: str) -> None:
        super().__init__(plan)
        self.kit, self.turned = kit, 0

    async def _run(self, tasks: TaskGroup) -> None:
        await self._do_all(self._do)
        if self.kit == "raises":
            raise ValueError("it fell off")
        if self.kit == "contains":
            with contained("a turn"):
                raise ValueError("it fell off")

    async def _do(self, operation: RunOperation[Verb]) -> None:
        self._say(operation.verb)
        self.turned += 1
        if operation.verb is Verb.BREAK and self.kit == "brittle":
            self._note(Violation(Invariant.KEPT, str(number), "is broken") for number in range(MOST_FOUND + 5))

    def _outcome(self, told: dict[str, Any]) -> Outcome:
        return Outcome(**told, operations=self.turned)


GAME: SeededGame[str, Plan, Outcome] = SeededGame(sound="sound", run=Run)


def one(chance: Chance, verb: Verb, at: float) -> tuple[list[RunOperation[Verb]], float]:
    after = RunOperation(0, at + 5.0, "world", Verb.TURN)
    return [after, RunOperation(0, at, "world", verb)], at + chance.one_of((1.0, 2.0))


def plan(seed: int = 1) -> Plan:
    return Plan(seed=seed, operations=drawn(seed, 20.0, {Verb.TURN: 3.0, Verb.BREAK: 1.0}, one))


def test_operations_of_one_seed_are_the_same_and_in_the_order_of_their_times() -> None:
    made = plan()
    assert made == plan() != plan(2)
    assert [each.number for each in made.operations] == list(range(1, len(made.operations) + 1))
    assert [each.at for each in made.operations] == sorted(each.at for each in made.operations)
    assert max(each.at for each in made.operations if each.verb is Verb.BREAK) < 20.0


def test_a_sound_run_does_everything_at_its_time() -> None:
    outcome = GAME.play(plan())
    assert outcome.operations == len(plan().operations) and outcome.found == ()
    assert [line.at for line in outcome.lines] == [each.at for each in plan().operations]
    assert outcome.digest == GAME.play(plan()).digest


def test_a_finding_ends_the_operations_and_so_many_are_kept() -> None:
    outcome = GAME.play(plan(), "brittle")
    assert len(outcome.found) == MOST_FOUND and outcome.operations < len(plan().operations)
    assert [line.kind.value for line in outcome.lines].count("found") == MOST_FOUND
    shortest = GAME.shrink(outcome, "brittle", 50)
    assert [each.verb for each in shortest.plan.operations] == [Verb.BREAK]


def test_an_error_that_nobody_catches_is_a_finding() -> None:
    outcome = GAME.play(plan(), "raises")
    assert outcome.found == (Violation(Invariant.ANSWERS, "wheel", "ValueError: it fell off"),)


def test_an_error_that_the_product_contains_is_a_finding() -> None:
    (found,) = GAME.play(plan(), "contains").found
    assert found == Violation(Invariant.ANSWERS, "wheel", "contained: ValueError: it fell off")
    assert GAME.play(plan()).found == ()
