from typing import Any

import pytest

from hawker.proof.invariants import wrong_containers
from hawker.runtime.driver import Exit, ProcessPhase, ProcessState
from hawker.sim.node.sim_worker import config_of
from tests.worker.machines import machine

INIT = {"name": "init", "restart": {"policy": "no"}}
WEB = {"name": "web", "depends_on": [{"name": "init", "condition": "exited_successfully"}]}
RUNS = ProcessState(name="web", state=ProcessPhase.RUNNING, run=1)
HELD = ProcessState(name="web")


def init(run: int = 1, code: int | None = 0) -> ProcessState:
    exit = None if code is None else Exit(exit_code=code, exited_at=1.0)
    state = ProcessPhase.EXITED if exit else ProcessPhase.RUNNING if run else ProcessPhase.HELD
    return ProcessState(name="init", state=state, run=run, last_exit=exit)


def wrong(*states: ProcessState, containers: Any = (WEB, INIT)) -> list[str]:
    return list(wrong_containers(machine(config=config_of(containers=list(containers))), states))


def test_containers_in_their_order_are_right() -> None:
    assert wrong(RUNS, init()) == []
    assert wrong(HELD, init(code=None)) == []


@pytest.mark.parametrize("before", [init(code=None), init(code=1), init(run=0, code=None)])
def test_container_that_did_not_wait_is_found(before: ProcessState) -> None:
    assert "container web was started before init was exited_successfully" in wrong(RUNS, before)


def test_container_that_ran_again_against_its_policy_is_found() -> None:
    assert wrong(RUNS, init(run=2)) == ["container init had 2 runs, and is never to be started again"]


def test_a_machine_that_is_done_and_started_is_found() -> None:
    assert wrong(HELD, init(code=1)) == ["is started, and none of its containers runs"]


def test_running_containers_are_those_of_the_config() -> None:
    assert "has the containers" in wrong(RUNS)[0]
