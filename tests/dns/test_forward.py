"""Names of the world: asked once, kept as long as they say, given on while no server answers."""

from dataclasses import dataclass
from unittest.mock import Mock

import anyio
import pytest
from dns import flags, message, rcode, rrset

from hawker.clock import SystemClock
from hawker.dns import forward
from hawker.dns.answer import Question
from hawker.dns.forward import Forwarder
from hawker.errors import OverShare
from hawker.fair.occupancy import Occupancy
from hawker.fair.table import DNS_FORWARDS, DNS_FORWARDS_OF_NETWORK
from hawker.fair.turns import Share
from tests.dns.known import addresses, asked
from tests.dns.upstream import Upstream, serving, with_address
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
LOCAL = "127.0.0.1"


@dataclass
class Hands(SystemClock):
    """A clock whose time a test moves."""

    time_s: float = 1000.0

    def monotonic(self) -> float:
        return self.time_s


def forwarder(upstream: Upstream, clock: Hands | None = None, *servers: str) -> Forwarder:
    return Forwarder(lambda: servers or (LOCAL,), clock or Hands(), upstream.port)


async def ask_by(
    asking: Forwarder, question: Question, network_id: int, machine: str, *, tcp: bool
) -> message.Message | None:
    """The answer as whoever asked reads it."""
    found = await asking.ask(question, network_id, machine, tcp=tcp)
    return None if found is None else message.from_wire(found)


@pytest.mark.usefixtures("patience")
async def test_an_answer_is_passed_on_with_the_askers_id_and_kept_for_its_life() -> None:
    clock = Hands()
    async with serving(Upstream()) as upstream:
        asking = forwarder(upstream, clock)
        for number in (1, 2):
            reply = await ask_by(asking, asked("example.com", id=number), 1, "m", tcp=False)
            assert reply is not None and reply.id == number and addresses(reply) == ["2001:db8::5"]
        assert len(upstream.heard) == 1
        clock.time_s += 20
        reply = await ask_by(asking, asked("EXAMPLE.com"), 1, "m", tcp=False)
        assert reply is not None and reply.answer[0].ttl == 40 and len(upstream.heard) == 1
        clock.time_s += 41
        await ask_by(asking, asked("example.com"), 1, "m", tcp=False)
    assert len(upstream.heard) == 2


@pytest.mark.usefixtures("patience")
async def test_a_kept_answer_is_given_again_without_a_look_at_its_records(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_many(query: message.Message) -> message.Message:
        reply = message.make_response(query)
        name, many = query.question[0].name, [f"192.0.2.{number}" for number in range(250)]
        reply.answer.append(rrset.from_text(name, 60, "IN", "A", *many))
        return reply

    async with serving(Upstream(with_many)) as upstream:
        asking = forwarder(upstream)
        assert await asking.ask(asked("example.com", "A"), 1, "m", tcp=True) is not None
    question, again = asked("EXAMPLE.com", "A", use_edns=0, payload=4096), Mock(side_effect=AssertionError)
    for module, name in ((message, "from_wire"), (message.Message, "to_wire"), (forward, "read_answer")):
        monkeypatch.setattr(module, name, again)
    whole, cut = asking.kept(question, tcp=True), asking.kept(question, tcp=False)
    monkeypatch.undo()
    assert whole is not None and len(message.from_wire(whole).answer[0]) == 250
    assert cut is not None and len(cut) < 50 and message.from_wire(cut).flags & flags.TC


@pytest.mark.usefixtures("patience")
async def test_a_network_that_asks_for_many_names_loses_its_own_kept_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward, "KEPT", 8)
    clock = Hands()
    async with serving(Upstream()) as upstream:
        asking = forwarder(upstream, clock)
        for name in ("a.example", "b.example"):
            await ask_by(asking, asked(name), 2, "modest", tcp=False)
        for number in range(30):
            await ask_by(asking, asked(f"n{number}.example"), 1, "greedy", tcp=False)
    assert all(asking.kept(asked(name), tcp=False) for name in ("a.example", "b.example"))
    mine = [number for number in range(30) if asking.kept(asked(f"n{number}.example"), tcp=False)]
    assert mine == list(range(24, 30)) and len(asking._kept) == 8 == sum(map(len, asking._put.values()))


@pytest.mark.usefixtures("patience")
async def test_nothing_that_a_client_put_beside_its_question_goes_to_others() -> None:
    async with serving(Upstream()) as upstream:
        await ask_by(forwarder(upstream), asked("example.com", use_edns=0, payload=4096, id=99), 1, "m", tcp=False)
    (heard,) = upstream.heard
    assert heard.id != 99 and not heard.options and heard.flags & flags.RD


async def test_an_expired_answer_is_given_while_no_server_answers() -> None:
    clock = Hands()
    async with serving(Upstream()) as upstream:
        asking = forwarder(upstream, clock)
        await ask_by(asking, asked("example.com"), 1, "m", tcp=False)
        upstream.reply = lambda query: None
        clock.time_s += 600
        reply = await ask_by(asking, asked("example.com"), 1, "m", tcp=False)
        assert reply is not None and addresses(reply) == ["2001:db8::5"]
        clock.time_s += 3600
        assert await ask_by(asking, asked("example.com"), 1, "m", tcp=False) is None


@pytest.mark.usefixtures("patience")
async def test_a_name_that_is_not_there_is_kept_for_a_short_time() -> None:
    def deny(query: message.Message) -> message.Message:
        reply = message.make_response(query)
        reply.set_rcode(rcode.NXDOMAIN)
        return reply

    clock = Hands()
    async with serving(Upstream(deny)) as upstream:
        asking = forwarder(upstream, clock)
        for _ in range(3):
            reply = await ask_by(asking, asked("nowhere.example"), 1, "m", tcp=False)
            assert reply is not None and reply.rcode() == rcode.NXDOMAIN
        assert len(upstream.heard) == 1


async def test_an_answer_to_another_question_or_of_garbage_is_none() -> None:
    def other(query: message.Message) -> message.Message:
        reply = with_address(message.make_query("evil.example", "AAAA"))
        reply.id = query.id
        return reply

    for reply in (other, lambda query: b"\xff" * 40):
        async with serving(Upstream(reply)) as upstream:
            assert await ask_by(forwarder(upstream), asked("example.com"), 1, "m", tcp=False) is None


async def test_a_server_that_fails_is_followed_by_the_next() -> None:
    async with serving(Upstream()) as upstream:
        reply = await ask_by(forwarder(upstream, None, "127.0.0.9", LOCAL), asked("example.com"), 1, "m", tcp=False)
    assert reply is not None and addresses(reply) == ["2001:db8::5"]
    assert await ask_by(Forwarder(tuple, Hands()), asked("example.com"), 1, "m", tcp=False) is None


async def test_over_tcp_the_whole_answer_is_asked_for() -> None:
    async with serving(Upstream()) as upstream:
        reply = await ask_by(forwarder(upstream), asked("example.com"), 1, "m", tcp=True)
        assert reply is not None and addresses(reply) and not upstream.sources, "nothing came over UDP"


@pytest.mark.usefixtures("patience")
async def test_one_machine_has_so_many_questions_under_way_and_others_have_theirs() -> None:
    async with serving(Upstream(lambda query: None)) as upstream, anyio.create_task_group() as tasks:
        asking = forwarder(upstream)

        async def ask(number: int) -> None:
            await ask_by(asking, asked(f"n{number}.example"), 1, "greedy", tcp=False)

        for number in range(DNS_FORWARDS.each):
            tasks.start_soon(ask, number)
        await eventually(lambda: len(upstream.heard) >= DNS_FORWARDS.each)
        with pytest.raises(OverShare):
            await ask_by(asking, asked("more.example"), 1, "greedy", tcp=False)
        upstream.reply = with_address
        assert await ask_by(asking, asked("mine.example"), 1, "modest", tcp=False) is not None
        tasks.cancel_scope.cancel()


async def test_one_private_network_has_so_many_and_others_have_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(Upstream(lambda query: None)) as upstream, anyio.create_task_group() as tasks:
        asking, refused = forwarder(upstream), 0
        share = Share(name="questions", total=8, each=6, reserve=2, key="private network", over="refused")
        monkeypatch.setattr(asking, "_of_network", Occupancy(share))

        async def ask(number: int) -> None:
            nonlocal refused
            try:
                await ask_by(asking, asked(f"n{number}.example"), 1, f"machine{number}", tcp=False)
            except OverShare:
                refused += 1

        for number in range(9):
            tasks.start_soon(ask, number)
        await eventually(lambda: refused == 3)
        upstream.reply = with_address
        assert await ask_by(asking, asked("mine.example"), 2, "modest", tcp=False) is not None
        tasks.cancel_scope.cancel()


def test_a_network_s_share_is_more_than_one_machines_and_less_than_all() -> None:
    assert DNS_FORWARDS.each < DNS_FORWARDS_OF_NETWORK.each < DNS_FORWARDS.total
