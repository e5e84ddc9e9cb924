"""How moves are told; what follows one is in the tests of the commands."""

from typing import Any

import msgspec
import pytest

from hawker.api.contract.move import Move
from hawker.api.in_process import InProcessCaller
from hawker.api.route import Call
from hawker.cli.exits import Failure
from hawker.cli.moves import about, follow, line, moves_table
from hawker.clock import ManualClock
from tests.cli.fake_moves import MOVE
from tests.cli.fake_node import FakeNode

pytestmark = pytest.mark.anyio


def test_the_copy_is_told_with_bytes_rate_and_time_left() -> None:
    assert line(MOVE).endswith("copying 1.0 GiB of 4.0 GiB, 200.0 MiB/s, 15 s left")
    assert line(msgspec.structs.replace(MOVE, state="granted")).endswith("granted at node 4e5f6071")
    assert line(msgspec.structs.replace(MOVE, waits="it waits for its turn")).endswith(": it waits for its turn")
    assert line(msgspec.structs.replace(MOVE, paused=True)).endswith(": paused, 1.0 GiB of 4.0 GiB copied")


def test_a_volume_by_itself_is_told_by_its_own_id() -> None:
    free = msgspec.structs.replace(MOVE, machine=None, away_ms=None, state="preparing", to="")
    assert line(free) == "volume vol_0000000000000001: preparing"
    assert "vol_0000000000000001" in moves_table([free]) and "away" in about(free)


async def test_following_ends_with_the_move_and_raises_when_it_was_aborted() -> None:
    node, said = FakeNode(), list[str]()
    caller = InProcessCaller(node.handlers(), ManualClock(), "tester")
    assert (await follow(caller, MOVE, ManualClock(), said.append)).state == "done"
    assert len(said) == 1
    node.ends = {"state": "aborted", "reason": "no room"}
    with pytest.raises(Failure, match="as before: no room"):
        await follow(caller, MOVE, ManualClock(), said.append)


async def test_follower_looks_soon_at_first_and_seldom_later() -> None:
    clock, looks = ManualClock(0), list[float]()

    class SlowNode(FakeNode):
        async def _get_move(self, call: Call[Any, Any, Any]) -> Move:
            looks.append(round(clock.monotonic(), 2))
            return msgspec.structs.replace(MOVE, state="done" if len(looks) == 6 else "copying")

    await follow(InProcessCaller(SlowNode().handlers(), clock, "tester"), MOVE, clock, list[str]().append)
    assert looks == [0.05, 0.15, 0.4, 0.9, 1.4, 1.9]
