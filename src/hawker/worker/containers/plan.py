"""What is to be done next with a machine's containers, from what is seen of each. Pure: no clock, no host.

A container is held until what it depends on is so; that is asked before its first run only. The machine has ended when
no container runs and none is to be started: its exit is that of the container that failed first, else of the last.
"""

import math
from collections.abc import Iterator, Sequence
from enum import Enum, StrEnum
from typing import assert_never

from hawker.machine import Policy, Restart, after_exit
from hawker.runtime.driver import Exit
from hawker.value_object import ValueObject


class Condition(StrEnum):
    """The state that a container needs another one to be in."""

    STARTED = "started"
    HEALTHY = "healthy"
    EXITED_SUCCESSFULLY = "exited_successfully"


class Need(ValueObject, frozen=True):
    """`on` is the other container's place in the list."""

    on: int
    condition: Condition


class Rules(ValueObject, frozen=True):
    """The rules of the config for one container."""

    name: str
    """The container's; it is named by it in messages."""
    needs: tuple[Need, ...] = ()
    policy: Policy = Policy.ON_FAILURE
    max_retries: int = 10
    """Starts again after failures in a row, 0 or more; counts under `on-failure` only."""


class SeenContainer(ValueObject, frozen=True):
    """One container as the host has it. `run` is the number of its latest run, 0 before the first; it runs unless
    `exit` is there. `retries` are the automatic restarts in a row that led to this run, `ran_s` is how long it ran and
    `ended_s` how long ago it ended. `ailing`: a check that is to stop it says so."""

    run: int = 0
    exit: Exit | None = None
    ran_s: float = 0.0
    ended_s: float = 0.0
    retries: int = 0
    healthy: bool = False
    """All of its healthchecks pass now: what waits for that may begin."""
    ailing: bool = False


class Start(ValueObject, frozen=True):
    """Begin run number `run` of a container, as the `retries`-th try in a row."""

    container: int
    """The container's place in the machine's list, from 0."""
    run: int
    retries: int = 0


class Blocked(ValueObject, frozen=True):
    """A container that can never be started, and why, as a sentence."""

    container: int
    """The container's place in the machine's list, from 0."""
    why: str
    """The reason, for people; the machine's events have it."""


class Plan(ValueObject, frozen=True):
    """`again_in_s` is when to ask again if nothing changes meanwhile; `conclude` names the container whose exit is the
    machine's."""

    starts: tuple[Start, ...] = ()
    stops: tuple[int, ...] = ()
    """Places of containers that run and are to be stopped, because a check says so."""
    blocked: tuple[Blocked, ...] = ()
    conclude: int | None = None
    again_in_s: float = math.inf


class _Stage(Enum):
    HELD = "held"
    RUNS = "runs"
    RESTS = "rests"  # until it is started again
    OVER = "over"


def plan(rules: Sequence[Rules], seen: Sequence[SeenContainer]) -> Plan:
    """`rules` and `seen` are of the same containers, in the same order."""
    nexts = [_next(rule, each) for rule, each in zip(rules, seen, strict=True)]
    stages = [_stage(each, next) for each, next in zip(seen, nexts, strict=True)]
    blocked = _blocked(rules, seen, stages)
    starts = [Start(index, 1) for index in _released(rules, seen, stages)]
    again_in_s = math.inf
    for index, next in enumerate(nexts):
        if next is not None and next.delay_s is not None:
            wait_s = next.delay_s - seen[index].ended_s
            if wait_s > 0:
                again_in_s = min(again_in_s, wait_s)
            else:
                starts.append(Start(index, seen[index].run + 1, next.count))
    ended = all(stage is _Stage.OVER or index in blocked for index, stage in enumerate(stages))
    return Plan(
        starts=tuple(starts),
        stops=tuple(index for index, each in enumerate(seen) if stages[index] is _Stage.RUNS and each.ailing),
        blocked=tuple(Blocked(index, why) for index, why in blocked.items()),
        conclude=_last_word(seen) if ended else None,
        again_in_s=again_in_s,
    )


def _next(rule: Rules, seen: SeenContainer) -> Restart | None:
    """What follows its exit, as for a machine; None unless it has ended."""
    if seen.exit is None:
        return None
    code = seen.exit.exit_code
    return after_exit(rule.policy, rule.max_retries, exit_code=code, ran_s=seen.ran_s, count=seen.retries)


def _stage(seen: SeenContainer, next: Restart | None) -> _Stage:
    if seen.run == 0:
        return _Stage.HELD
    if next is None:
        return _Stage.RUNS
    return _Stage.OVER if next.delay_s is None else _Stage.RESTS


def _released(rules: Sequence[Rules], seen: Sequence[SeenContainer], stages: Sequence[_Stage]) -> Iterator[int]:
    for index, rule in enumerate(rules):
        if stages[index] is _Stage.HELD and all(_holds(need, seen[need.on]) for need in rule.needs):
            yield index


def _holds(need: Need, seen: SeenContainer) -> bool:
    match need.condition:
        case Condition.STARTED:
            return seen.run > 0
        case Condition.HEALTHY:
            return seen.run > 0 and seen.exit is None and seen.healthy
        case Condition.EXITED_SUCCESSFULLY:
            return seen.exit is not None and seen.exit.exit_code == 0
        case _:
            assert_never(need.condition)


def _blocked(rules: Sequence[Rules], seen: Sequence[SeenContainer], stages: Sequence[_Stage]) -> dict[int, str]:
    """Held ones with a need that can no longer be met, and those that wait for them in turn."""
    found: dict[int, str] = {}
    while True:
        more = {
            index: why
            for index, rule in enumerate(rules)
            if stages[index] is _Stage.HELD and index not in found
            for why in [_hopeless(rules, seen, stages, found, rule)]
            if why is not None
        }
        if not more:
            return dict(sorted(found.items()))
        found |= more


def _hopeless(
    rules: Sequence[Rules],
    seen: Sequence[SeenContainer],
    stages: Sequence[_Stage],
    blocked: dict[int, str],
    rule: Rules,
) -> str | None:
    for need in rule.needs:
        other = rules[need.on].name
        if need.on in blocked:
            return f"container {rule.name} is never started: it waits for {other}, which is never started"
        if stages[need.on] is _Stage.OVER and not _holds(need, seen[need.on]):
            exit = seen[need.on].exit
            assert exit is not None
            wanted = need.condition.value.replace("_", " ")
            return f"container {rule.name} is never started: {other} ended with code {exit.exit_code}, not {wanted}"
    return None


def _last_word(seen: Sequence[SeenContainer]) -> int | None:
    """None when nothing ever ran, which acyclic needs exclude."""
    ended = [(each.exit.exited_at, index) for index, each in enumerate(seen) if each.exit is not None]
    failed = [(at, index) for at, index in ended if (exit := seen[index].exit) is not None and exit.exit_code != 0]
    if failed:
        return min(failed)[1]
    return max(ended)[1] if ended else None
