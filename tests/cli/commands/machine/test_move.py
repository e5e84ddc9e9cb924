from datetime import UTC, datetime, timedelta

import msgspec

from hawker.cli.exits import ExitStatus
from tests.cli.conftest import Hawker
from tests.cli.fake_moves import MOVE
from tests.cli.fake_node import FakeNode, machine

FIRST = "3d8f0000000001"


def test_a_move_is_ordered_and_followed_to_its_end(hawker: Hawker, node: FakeNode) -> None:
    node.add("shop", machine(FIRST))
    said = hawker("machine", "move", FIRST, "--to", "0badc", "--limit", "50")
    assert said.status == ExitStatus.OK and "state" in said.out and "done" in said.out
    body = node.call("move_machine").body
    assert (body.to, body.mode, body.limit_mib_per_s) == ("0badcafe", "auto", 50)
    assert "copying 1.0 GiB of 4.0 GiB, 200.0 MiB/s, 15 s left" in said.err


def test_a_move_that_was_aborted_says_why_and_where_the_machine_is(hawker: Hawker, node: FakeNode) -> None:
    node.add("shop", machine(FIRST))
    node.ends = {"state": "aborted", "reason": "no room"}
    said = hawker("machine", "move", FIRST)
    assert said.status == ExitStatus.FAILED
    assert "is at node 0a1b2c3d as before: no room" in said.err


def test_a_detached_move_is_not_followed(hawker: Hawker, node: FakeNode) -> None:
    node.add("shop", machine(FIRST))
    said = hawker("machine", "move", FIRST, "--detach", "--output", "json")
    assert said.status == ExitStatus.OK and '"copying"' in said.out and "get_move" not in node.calls


def test_a_scheduled_move_is_ordered_and_not_followed(hawker: Hawker, node: FakeNode) -> None:
    node.add("shop", machine(FIRST))
    said = hawker("machine", "move", FIRST, "--at", "2026-12-01T02:00")
    assert said.status == ExitStatus.OK and "get_move" not in node.calls
    assert "scheduled" in said.out and "2026-12-01 02:00 UTC" in said.out
    assert node.call("move_machine").body.at.isoformat() == "2026-12-01T02:00:00+00:00"
    said = hawker("machine", "move", FIRST, "--window", "sun 02:00-04:00")
    assert said.status == ExitStatus.OK and "sun 02:00-04:00" in said.out


def test_a_time_of_a_day_is_the_next_one(hawker: Hawker, node: FakeNode) -> None:
    node.add("shop", machine(FIRST))
    before = datetime.now(UTC)
    assert hawker("machine", "move", FIRST, "--at", "02:00").status == ExitStatus.OK
    assert before < node.call("move_machine").body.at <= datetime.now(UTC) + timedelta(days=1)
    said = hawker("machine", "move", FIRST, "--at", "tomorrow")
    assert said.status == ExitStatus.USAGE and "2026-12-01T02:00Z" in said.err


def test_a_move_that_accepts_losses_says_what_was_lost(hawker: Hawker, node: FakeNode) -> None:
    node.add("shop", machine(FIRST))
    node.ends = {"state": "done", "lost": ((4096, 4096), (65536, 8192))}
    said = hawker("machine", "move", FIRST, "--accept-loss")
    assert node.call("move_machine").body.accept_loss
    assert "12.0 KiB in 2 places: see `hawker volumes show vol_0000000000000001`" in said.out


def test_a_machine_is_taken_back_from_a_lost_node_by_its_newest_move(hawker: Hawker, node: FakeNode) -> None:
    gone = [msgspec.structs.replace(MOVE, id=each, state="done") for each in ("01MOVE", "00MOVE")]
    node.moves = (*gone, msgspec.structs.replace(MOVE, id="02MOVE", state="aborted"))
    node.ends = {"state": "aborted", "reclaimed": 3, "reason": "node 4e5f6071 is lost"}
    said = hawker("machine", "move", FIRST, "--reclaim", "--accept-loss")
    call = node.call("reclaim_move")
    assert said.status == ExitStatus.OK and "node 4e5f6071 is lost" in said.out
    assert (call.params.move_id, call.body.accept_loss, call.body.now) == ("01MOVE", True, None)
    said = hawker("machine", "move", "3d8f0000000009", "--reclaim")
    assert said.status == ExitStatus.FAILED and "has moved 3d8f0000000009 away" in said.err


def test_a_reclaim_says_which_options_it_does_not_take(hawker: Hawker, node: FakeNode) -> None:
    said = hawker("machine", "move", FIRST, "--reclaim", "--to-node", "0badc")  # as volumes say it
    assert said.status == ExitStatus.USAGE and "--to: not with --reclaim" in said.err
    said = hawker("machine", "move", FIRST, "--now")
    assert said.status == ExitStatus.USAGE and "--now is for --reclaim" in said.err
    assert "reclaim_move" not in node.calls
