"""What is done in a run, as values: operations of clients and faults, drawn from a seed before anything happens, so
that a run can be cut short; and what came of it.
"""

from collections.abc import Awaitable, Callable, Iterable, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Generic, Self, TypeVar

from hawker.clock import Clock
from hawker.proof.violation import Violation
from hawker.sim.harness.trace import TraceLine

V = TypeVar("V", bound=StrEnum)
Op = TypeVar("Op", bound="RunOperation[Any]")
P = TypeVar("P", bound="RunPlan[Any]")

NATURE = "nature"
"""The actor whose operations are faults."""


@dataclass(frozen=True, slots=True)
class RunOperation(Generic[V]):
    """`number` names it in a story. `at` is in virtual seconds. `label` names what it is about, by its order. `amount`
    and `word` say how much and which, as the verb takes them."""

    number: int
    at: float
    actor: str
    verb: V
    label: str = ""
    amount: float = 0.0
    word: str = ""


@dataclass(frozen=True, slots=True)
class RunPlan(Generic[Op]):
    """What a seed stands for. Each simulator adds how its world is."""

    seed: int
    operations: tuple[Op, ...]

    def only(self, numbers: Set[int]) -> Self:
        """This world with fewer operations."""
        return replace(self, operations=tuple(each for each in self.operations if each.number in numbers))

    def of(self, actor: str) -> tuple[Op, ...]:
        return tuple(each for each in self.operations if each.actor == actor)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome(Generic[P]):
    """What came of a plan. `operations` counts the calls of clients that were answered; `ended_at` is in virtual
    seconds."""

    plan: P
    operations: int
    ended_at: float
    digest: str
    lines: tuple[TraceLine, ...]
    found: tuple[Violation, ...]


def numbered(operations: Iterable[Op]) -> tuple[Op, ...]:
    """In the order of their times, numbered from 1."""
    ordered = sorted(operations, key=lambda each: each.at)
    return tuple(replace(each, number=number) for number, each in enumerate(ordered, 1))


async def do_in_turn(
    operations: Iterable[Op], clock: Clock, do: Callable[[Op], Awaitable[None]], began: float = 0.0
) -> None:
    """One actor's operations, each at its time after `began`, or as soon as the one before is done."""
    for operation in operations:
        await clock.sleep(max(0.0, began + operation.at - clock.monotonic()))
        await do(operation)
