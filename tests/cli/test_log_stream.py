from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.api.caller import Caller
from hawker.api.contract.app_log import AppLogPage, AppLogPageQuery, LogLine
from hawker.api.contract.machine import MachineParams
from hawker.api.contract.node import LogChunk
from hawker.api.failure import ConnectionLost
from hawker.api.in_process import InProcessCaller
from hawker.cli.log_stream import (
    AppLogFollower,
    Follower,
    LinePrinter,
    Prefix,
    WantedLines,
    WantedOutput,
    moment_of,
    print_merged,
)
from hawker.clock import ManualClock
from hawker.errors import NotFound, Unavailable
from hawker.machine import State
from hawker.sim.harness.loop import LoopClock
from tests.cli.fake_node import AT, FakeNode, chunk, machine
from tests.worker.hourglass import in_virtual_time


def of(container: str, data: bytes, stream: int = 1) -> LogChunk:
    return msgspec.structs.replace(chunk(0, data, stream=stream), container=container)


def told(*chunks: LogChunk) -> bytes:
    prefix = Prefix()
    return b"".join(prefix.told(each) for each in chunks)


def test_each_line_says_whose_it_is() -> None:
    assert told(of("web", b"a\nb\n"), of("db", b"c\n")) == b"web | a\nweb | b\ndb | c\n"


def test_a_line_in_pieces_is_one_line() -> None:
    assert told(of("web", b"hal"), of("web", b"lo\n"), of("web", b"a\n")) == b"web | hallo\nweb | a\n"


def test_a_line_that_another_breaks_into_is_ended_first() -> None:
    assert told(of("web", b"hal"), of("db", b"c\n"), of("web", b"lo\n")) == b"web | hal\ndb | c\nweb | lo\n"


def test_streams_are_apart() -> None:
    assert told(of("web", b"out"), of("web", b"err", stream=2)) == b"web | outweb | err"


def test_a_machine_without_containers_is_not_touched() -> None:
    assert told(of("", b"a\nb"), of("", b"c")) == b"a\nbc"


@given(st.lists(st.tuples(st.sampled_from(["web", "db"]), st.binary(max_size=20))))
def test_nothing_is_lost(pieces: list[tuple[str, bytes]]) -> None:
    shown = told(*(of(name, data) for name, data in pieces))
    for name in ("web", "db"):
        shown = shown.replace(f"{name} | ".encode(), b"")
    assert shown.replace(b"\n", b"") == b"".join(data for _, data in pieces).replace(b"\n", b"")


def test_lines_may_begin_with_their_time_and_machine() -> None:
    prefix = Prefix(timestamps=True)
    shown = prefix.told(of("", b"a\nb"), "web") + prefix.told(of("db", b"c\n"), "web")
    at = b"2026-01-02T03:04:05.000Z "
    assert shown == at + b"web | a\n" + at + b"web | b\n" + at + b"web/db | c\n"
    assert moment_of(AT).encode() == at


def test_a_machine_alone_may_have_times_only() -> None:
    prefix = Prefix(timestamps=True)
    at = b"2026-01-02T03:04:05.000Z "
    assert prefix.told(of("", b"hal")) + prefix.told(of("", b"lo\nb\n")) == at + b"hallo\n" + at + b"b\n"


pytestmark = pytest.mark.anyio

PARAMS = MachineParams(app_name="shop", machine_id="3d8f0000000001")
CHUNKS = (chunk(0, b"out\n"), chunk(1, b"\xff\n", stream=2), chunk(2, b"last\n"))


def node_with(state: State, *events: object) -> FakeNode:
    node = FakeNode()
    node.add("shop", machine(state=state, events=events))
    node.chunks = CHUNKS
    return node


def caller(node: FakeNode) -> InProcessCaller:
    return InProcessCaller(node.handlers(), ManualClock(), "tester")


async def test_output_goes_as_it_was_to_the_streams_it_came_from(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    await Follower(caller(node_with(State.STOPPED)), PARAMS).print(follow=False)
    assert capfdbinary.readouterr() == (b"out\nlast\n", b"\xff\n")


async def test_the_rest_is_what_was_not_printed_yet() -> None:
    seen: list[LogChunk] = []
    follower = Follower(caller(node_with(State.STOPPED)), PARAMS, seen.append)
    await follower.print(follow=True)
    assert follower.ended.is_set()
    await follower.print_rest()
    assert seen == list(CHUNKS)


async def test_the_rest_of_what_is_gone_is_nothing() -> None:
    node = node_with(State.DESTROYED)
    node.failures["machine_logs"] = NotFound("machine not found")
    await Follower(caller(node), PARAMS).print_rest()


class Broken:
    """A node that goes away while it is followed, and comes back."""

    def __init__(self, *breaks: list[LogChunk] | Exception) -> None:
        self.script, self.queries = list(breaks), list[Any]()

    def stream(self, route: object, *, params: object, query: Any) -> "Broken":
        self.queries.append(query)
        return self

    async def __aenter__(self) -> AsyncIterator[LogChunk]:
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        return self._chunks(step)

    async def __aexit__(self, *_: object) -> None:
        return None

    async def _chunks(self, chunks: list[LogChunk]) -> AsyncIterator[LogChunk]:
        for each in chunks:
            yield each
        if self.script:
            raise ConnectionLost("TransferEncodingError")


async def test_following_goes_on_where_a_lost_node_broke_off(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    first = msgspec.structs.replace(chunk(4, b"one\n"), instance="I1")
    node = Broken([first], Unavailable("no node"), [msgspec.structs.replace(chunk(5, b"two\n"), instance="I1")])
    await Follower(node, PARAMS, clock=ManualClock()).follow(WantedOutput(follow=True, tail=3))  # type: ignore[arg-type]
    out, err = capfdbinary.readouterr()
    assert out == b"one\ntwo\n" and err.count(b"waiting for it to come back") == 1
    asked = [(query.after, query.instance, query.tail) for query in node.queries]
    assert asked == [(None, None, 3), (4, "I1", None), (4, "I1", None)]


async def test_a_node_that_stays_away_is_given_up() -> None:
    node = Broken(*[Unavailable("no node")] * 500)
    with pytest.raises(Unavailable):
        await Follower(node, PARAMS, clock=ManualClock()).follow(WantedOutput(follow=True))  # type: ignore[arg-type]


async def test_machines_are_printed_in_the_order_of_time() -> None:
    def at(second: int, data: bytes) -> LogChunk:
        return msgspec.structs.replace(chunk(second, data), at=AT + timedelta(seconds=second))

    seen: list[bytes] = []
    nodes = [Broken([at(0, b"a"), at(3, b"d")]), Broken([at(1, b"b"), at(2, b"c")]), Broken([])]
    followers = [Follower(node, PARAMS, lambda each: seen.append(each.data)) for node in nodes]  # type: ignore[arg-type]
    await print_merged(followers, WantedOutput())
    assert b"".join(seen) == b"abcd"


anyio_backend = in_virtual_time


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
