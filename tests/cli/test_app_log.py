"""An app's log at the command line: page by page, over a node that goes away."""

from datetime import UTC, datetime
from typing import Any

import pytest

from hawker.api.caller import Caller
from hawker.api.contract.app_log import AppLogPage, AppLogPageQuery, LogLine
from hawker.cli.app_log import AppLogFollower, LinePrinter, WantedLines
from hawker.errors import NotFound, Unavailable
from hawker.sim.harness.loop import LoopClock
from tests.worker.hourglass import in_virtual_time

anyio_backend = in_virtual_time
pytestmark = pytest.mark.anyio


def line(text: str, **fields: Any) -> LogLine:
    whole: dict[str, Any] = {
        "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "node": "n",
        "region": "mad",
        "position": 1,
        "machine": "m1",
        "stream": 1,
        "level": "info",
        "provider": "app",
        "text": text,
    }
    return LogLine(**{**whole, **fields})


def page(*texts: str, next: str = "n:1", more: bool = False, away: tuple[str, ...] = ()) -> AppLogPage:
    return AppLogPage(lines=tuple(map(line, texts)), next=next, more=more, away=away)


class Node:
    """Answers in turn; at the end the follower is told that the app is gone."""

    def __init__(self, *answers: AppLogPage | Exception) -> None:
        self.answers, self.asked = list(answers), list[AppLogPageQuery]()

    async def call(self, route: object, *, query: AppLogPageQuery, **options: Any) -> AppLogPage:
        self.asked.append(query)
        answer = self.answers.pop(0) if self.answers else NotFound("app not found")
        if isinstance(answer, Exception):
            raise answer
        return answer


async def followed(node: Node, **wanted: Any) -> list[str]:
    found = list[str]()
    caller: Caller = node  # type: ignore[assignment]
    follower = AppLogFollower(caller, "shop", lambda each: found.append(each.text), LoopClock())
    if wanted.get("follow"):
        with pytest.raises(NotFound):
            await follower.print(WantedLines(**wanted))
    else:
        await follower.print(WantedLines(**wanted))
    return found


async def test_lines_that_are_there_are_printed_to_their_end() -> None:
    node = Node(page("a", more=True, next="n:1"), page("b", next="n:2"))
    assert await followed(node, tail=5) == ["a", "b"]
    assert [(each.after, each.tail, each.wait_s) for each in node.asked] == [("", 5, 0.0), ("n:1", None, 0.0)]


async def test_a_follower_goes_on_from_the_same_place_when_the_node_is_back(capsys: pytest.CaptureFixture[str]) -> None:
    node = Node(page("a", next="n:1"), Unavailable("gone"), Unavailable("gone"), page("b", next="n:2"))
    assert await followed(node, follow=True) == ["a", "b"]
    assert [each.after for each in node.asked] == ["", "n:1", "n:1", "n:1", "n:2"]
    assert capsys.readouterr().err.count("waiting for it to come back") == 1


async def test_a_node_that_is_away_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    node = Node(page(away=("node x",)), page("a", away=("node x",)), page("b"), page(away=("node x",)))
    assert await followed(node, follow=True) == ["a", "b"]
    assert capsys.readouterr().err.count("node x does not answer") == 2


async def test_without_following_an_error_is_the_answer() -> None:
    with pytest.raises(Unavailable):
        await followed(Node(Unavailable("gone")))


def test_lines_name_their_machine_and_the_nodes_words_go_to_stderr(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    write = LinePrinter({"m1": "web"})
    write(line("out", container="side"))
    write(line("of one that is gone", machine="m2"))
    write(line("started", stream=0, provider="runner"))
    LinePrinter({}, timestamps=True)(line("at", stream=2))
    said = capsysbinary.readouterr()
    assert said.out == b"web/side | out\nm2  | of one that is gone\n"
    assert said.err == b"web * started\n2026-01-02T03:04:05.000Z m1 | at\n"
