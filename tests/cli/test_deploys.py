"""What a person reads of a deploy, and how it is followed."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from hawker.api.contract.deploy import DeployInfo
from hawker.api.failure import lost, overdue, unreachable
from hawker.api.in_process import InProcessCaller
from hawker.api.route import Call
from hawker.cli.deploys import Progress, described, followed, slot_line, sum_of, word_of
from hawker.clock import ManualClock
from hawker.errors import HawkerError
from tests.cli.fake_node import FakeNode
from tests.cli.fake_releases import deploy_info, slot


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ("waiting", "waiting"),
        ("changing", "updating"),
        ("proving", "proving itself"),
        ("done", "updated"),
        ("returning", "being taken back"),
        ("returned", "taken back"),
        ("left", "not taken back"),
        ("failed", "failed"),
    ],
)
def test_each_state_of_a_slot_has_its_word(state: str, word: str) -> None:
    assert word_of(slot(1, state)) == word
    assert slot_line(slot(1, state, "why")) == f"web  m1  ord  {word}: why"


def test_the_sum_counts_what_is_of_the_release_and_what_is_not() -> None:
    slots = [slot(number, state) for number, state in enumerate(("done", "skipped", "proving", "failed", "waiting"))]
    assert sum_of(deploy_info(1, "paused", *slots)) == "2/5 of release 4, 1 under way, 1 away, 1 failed, paused"


def test_a_deploy_without_machines_is_its_head() -> None:
    assert "GROUP" not in described(deploy_info(1, "complete"))


def test_time_left_is_told_once_it_says_something() -> None:
    done = [slot(number, "done") for number in (1, 2)]
    late = msgspec.structs.replace(done[1], at=deploy_info(1, "running").began_at + timedelta(seconds=20))
    waiting = [slot(number, "waiting") for number in (3, 4, 5)]
    assert "about 30 s left" in sum_of(deploy_info(1, "running", done[0], late, *waiting))
    for status, slots in (("running", (late, *waiting)), ("paused", (*done, *waiting)), ("running", (done[0], late))):
        assert "left" not in sum_of(deploy_info(1, status, *slots))


URL = "http://127.0.0.1:4280"


class Restarted(FakeNode):
    """A node whose daemon is killed while somebody waits, and is up again a moment later."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: Iterator[HawkerError] = iter(
            (lost(URL, ConnectionResetError("it was closed")), unreachable(URL), overdue(URL))
        )

    async def _get_deploy(self, call: Call[Any, Any, Any]) -> DeployInfo:
        error = next(self.errors, None)
        if error is not None:
            raise error
        return await super()._get_deploy(call)


@pytest.mark.anyio
async def test_a_deploy_is_followed_over_a_restart_of_the_node_which_is_said_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    caller, said = InProcessCaller(Restarted().handlers(), ManualClock(), "tester"), list[str]()
    found = await followed(caller, deploy_info(1, "running"), Progress(said.append), ManualClock())
    assert found.status == "complete"
    assert capsys.readouterr().err == f"waiting for the node: the connection to {URL} was lost: it was closed\n"
