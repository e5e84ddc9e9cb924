import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hawker.machine import Policy
from hawker.runtime.driver import Exit
from hawker.worker.containers.plan import Condition, Need, Plan, Rules, SeenContainer, Start, plan

HELD, RUNS = SeenContainer(), SeenContainer(run=1)
WEB, DB, MIGRATE = Rules("web"), Rules("db"), Rules("migrate", policy=Policy.NO)


def ended(code: int = 0, *, at: float = 100.0, **fields: Any) -> SeenContainer:
    return replace(SeenContainer(run=1, exit=Exit(exit_code=code, exited_at=at)), **fields)


def after(condition: Condition, rules: Rules = WEB, on: int = 0) -> Rules:
    return replace(rules, needs=(Need(on, condition),))


def test_a_container_that_needs_nothing_is_started_at_once() -> None:
    assert plan([DB, WEB], [HELD, HELD]) == Plan(starts=(Start(0, 1), Start(1, 1)))


def test_nothing_is_done_while_all_run() -> None:
    assert plan([DB, WEB], [RUNS, RUNS]) == Plan()


@pytest.mark.parametrize(
    ("condition", "seen", "met"),
    [
        (Condition.STARTED, HELD, False),
        (Condition.STARTED, RUNS, True),
        (Condition.STARTED, ended(1), True),
        (Condition.HEALTHY, RUNS, False),
        (Condition.HEALTHY, replace(RUNS, healthy=True), True),
        (Condition.HEALTHY, ended(1, healthy=True), False),
        (Condition.EXITED_SUCCESSFULLY, RUNS, False),
        (Condition.EXITED_SUCCESSFULLY, ended(1), False),
        (Condition.EXITED_SUCCESSFULLY, ended(0), True),
    ],
)
def test_a_container_waits_for_what_it_needs(condition: Condition, seen: SeenContainer, met: bool) -> None:
    assert (Start(1, 1) in plan([DB, after(condition)], [seen, HELD]).starts) == met


def test_all_needs_must_be_met() -> None:
    rules = [DB, MIGRATE, replace(WEB, needs=(Need(0, Condition.HEALTHY), Need(1, Condition.EXITED_SUCCESSFULLY)))]
    assert plan(rules, [replace(RUNS, healthy=True), RUNS, HELD]).starts == ()
    assert plan(rules, [replace(RUNS, healthy=True), ended(0), HELD]).starts == (Start(2, 1),)


def test_needs_are_not_asked_again_once_it_ran() -> None:
    rules = [DB, replace(after(Condition.HEALTHY), policy=Policy.ALWAYS)]
    assert plan(rules, [ended(1, ended_s=0), ended(1, ended_s=9)]).starts == (Start(1, 2, 1),)


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [
        (Policy.NO, 1, False),
        (Policy.ON_FAILURE, 0, False),
        (Policy.ON_FAILURE, 1, True),
        (Policy.ALWAYS, 0, True),
        (Policy.ALWAYS, 1, True),
    ],
)
def test_the_policy_says_what_follows_an_exit(policy: Policy, code: int, again: bool) -> None:
    seen = [ended(code, ended_s=60), RUNS]
    assert plan([replace(WEB, policy=policy), DB], seen).starts == ((Start(0, 2, 1),) if again else ())


def test_a_restart_waits_longer_each_time() -> None:
    assert plan([WEB, DB], [ended(1), RUNS]).again_in_s == 0.5
    assert plan([WEB, DB], [ended(1, retries=3, ended_s=1), RUNS]).again_in_s == 3.0
    assert plan([WEB, DB], [ended(1, retries=3, ended_s=4), RUNS]) == Plan(starts=(Start(0, 2, 4),))


def test_retries_are_used_up() -> None:
    rules = replace(WEB, max_retries=2)
    assert plan([rules], [ended(1, retries=2, ended_s=99)]) == Plan(conclude=0)


def test_a_run_of_five_minutes_begins_a_new_count() -> None:
    rules = replace(WEB, max_retries=2)
    assert plan([rules], [ended(1, retries=2, ran_s=300, ended_s=99)]).starts == (Start(0, 2, 1),)


def test_a_failing_check_that_stops_ends_only_what_runs() -> None:
    assert plan([WEB, DB], [replace(RUNS, ailing=True), RUNS]).stops == (0,)
    assert plan([WEB, DB], [ended(1, ailing=True), RUNS]).stops == ()


def test_a_need_that_cannot_be_met_blocks_and_says_why() -> None:
    rules = [MIGRATE, after(Condition.EXITED_SUCCESSFULLY), replace(DB, needs=(Need(1, Condition.STARTED),))]
    (web, db) = plan(rules, [ended(3), HELD, HELD]).blocked
    assert web.why == "container web is never started: migrate ended with code 3, not exited successfully"
    assert db.why == "container db is never started: it waits for web, which is never started"


def test_a_need_that_may_still_be_met_blocks_nothing() -> None:
    rules = [replace(MIGRATE, policy=Policy.ON_FAILURE), after(Condition.EXITED_SUCCESSFULLY)]
    assert plan(rules, [ended(3), HELD]) == Plan(again_in_s=0.5)


def test_the_machine_goes_on_beside_a_blocked_container() -> None:
    rules = [MIGRATE, after(Condition.EXITED_SUCCESSFULLY), DB]
    assert plan(rules, [ended(1), HELD, RUNS]).conclude is None
    assert plan(rules, [ended(1), HELD, ended(0)]).conclude == 0


def test_the_machine_ends_as_the_first_that_failed() -> None:
    rules = [replace(each, policy=Policy.NO) for each in (WEB, DB, MIGRATE)]
    assert plan(rules, [ended(0, at=3), ended(2, at=2), ended(1, at=1)]).conclude == 2


def test_the_machine_ends_as_the_last_when_none_failed() -> None:
    assert plan([WEB, DB, MIGRATE], [ended(at=1), ended(at=3), ended(at=2)]).conclude == 1


# Any machine, played until nothing is left to do.


@st.composite
def machines(draw: st.DrawFn) -> list[Rules]:
    """Each needs only earlier ones, so the needs are acyclic."""
    made: list[Rules] = []
    for index in range(draw(st.integers(1, 5))):
        on = draw(st.lists(st.integers(0, index - 1), unique=True)) if index else []
        needs = tuple(Need(each, draw(st.sampled_from(Condition))) for each in on)
        policy = draw(st.sampled_from((Policy.NO, Policy.ON_FAILURE)))
        made.append(Rules(f"c{index}", needs, policy, max_retries=draw(st.integers(0, 3))))
    return made


@given(rules=machines(), data=st.data())
def test_every_machine_comes_to_its_end_and_no_run_begins_twice(rules: list[Rules], data: st.DataObject) -> None:
    seen = [SeenContainer()] * len(rules)
    found = plan(rules, seen)
    for turn in range(200):
        if found.conclude is not None:
            break
        for start in found.starts:
            before = seen[start.container]
            assert start.run == before.run + 1
            assert before.run == 0 or before.exit is not None
            seen[start.container] = SeenContainer(run=start.run, retries=start.retries)
        running = [index for index, each in enumerate(seen) if each.run and each.exit is None]
        assert running or math.isfinite(found.again_in_s), "it stands still"
        for index in running:
            if turn > 20 or data.draw(st.booleans()):
                exit = Exit(exit_code=data.draw(st.integers(0, 1)), exited_at=float(turn))
                seen[index] = replace(seen[index], exit=exit)
            else:
                seen[index] = replace(seen[index], healthy=True)
        seen = [replace(each, ended_s=each.ended_s + 10.0) if each.exit else each for each in seen]
        found = plan(rules, seen)
    assert found.conclude is not None, "it never ends"
    assert all(each.exit is not None or each.run == 0 for each in seen)
    last = seen[found.conclude].exit
    assert last is not None
    assert bool(last.exit_code) == any(each.exit is not None and each.exit.exit_code for each in seen)
