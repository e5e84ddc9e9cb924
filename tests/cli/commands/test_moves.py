import msgspec

from hawker.cli.exits import ExitStatus
from tests.cli.conftest import Hawker
from tests.cli.fake_moves import MOVE
from tests.cli.fake_node import FakeNode


def test_moves_are_listed_by_app_and_state(hawker: Hawker, node: FakeNode) -> None:
    assert hawker("moves", "list").out == "no moves\n"
    node.moves = (MOVE,)
    node.calls.clear()
    row = hawker("moves", "list", "-a", "shop", "--state", "copying").out.splitlines()[1].split()
    assert row[:6] == ["01MOVE", "shop", "3d8f0000000001", "0a1b2c3d", "4e5f6071", "copying"]
    query = node.call("list_moves").query
    assert (query.app, query.state) == ("shop", "copying")


def test_a_move_is_shown_and_an_unknown_one_is_not_found(hawker: Hawker) -> None:
    assert "5.2 s" in hawker("moves", "show", "01MOVE").out
    assert hawker("moves", "show", "nothing").status == ExitStatus.NOT_FOUND


def test_a_state_or_node_that_there_is_not_is_refused(hawker: Hawker, node: FakeNode) -> None:
    assert hawker("moves", "list", "--state", "copied").status == ExitStatus.USAGE
    assert hawker("moves", "list", "--node", "nosuch").status == ExitStatus.NOT_FOUND
    assert "list_moves" not in node.calls
    hawker("moves", "list", "--node", "0badc")
    hawker("moves", "list", "--node", "00000000")
    assert [call.query.node for call in node.calls["list_moves"]] == ["0badcafe", "00000000"]


def test_a_move_that_is_done_is_not_cancelled(hawker: Hawker, node: FakeNode) -> None:
    node.moves = (msgspec.structs.replace(MOVE, state="done"),)
    said = hawker("moves", "cancel", "01MOVE")
    assert said.status == ExitStatus.FAILED and "it is at node 4e5f6071, move it back instead" in said.err


def test_a_cancelled_move_says_so(hawker: Hawker, node: FakeNode) -> None:
    said = hawker("moves", "cancel", "01MOVE")
    assert "cancelled by the user" in said.out and node.call("cancel_move").params.move_id == "01MOVE"


def test_a_move_is_paused_resumed_and_limited(hawker: Hawker, node: FakeNode) -> None:
    assert "copying, paused" in hawker("moves", "pause", "01MOVE").out
    assert "paused" not in hawker("moves", "resume", "01MOVE").out
    hawker("moves", "limit", "01MOVE", "20")
    assert node.call("limit_move").body.limit_mib_per_s == 20
    assert hawker("moves", "limit", "01MOVE", "-1").status == ExitStatus.USAGE
