"""Who asks decides which names there are; what is known is what was written last."""

from pathlib import Path
from unittest.mock import Mock

import pytest
from dns import edns, message, rcode
from msgspec.structs import replace

from hawker.clock import SystemClock
from hawker.dns.answer import Question, reordered
from hawker.dns.forward import Forwarder
from hawker.dns.resolver import QUESTIONS, AskingNetwork, NameResolver, Names, by_network, host_servers, machine_of
from hawker.ids import MachineId
from hawker.names import FILE, write_names
from tests.dns.known import KNOWN, MINE, ONE, THEIRS, THERE, addresses, named
from tests.dns.test_forward import Hands
from tests.dns.upstream import Upstream, serving

pytestmark = pytest.mark.anyio


def resolver(folder: Path, clock: SystemClock, port: int = 1) -> NameResolver:
    names = Names(folder, clock)
    return NameResolver(names, Forwarder(lambda: ("127.0.0.1",), clock, port), clock)


def ask(asking: NameResolver, name: str, network_id: int) -> message.Message:
    found = asking.at_once(message.make_query(name, "AAAA").to_wire(), AskingNetwork(network_id))
    assert isinstance(found, bytes)
    return message.from_wire(found)


async def test_each_network_is_answered_of_its_own_and_of_what_was_written_last(tmp_path: Path) -> None:
    clock = Hands()
    asking = resolver(tmp_path, clock)
    assert ask(asking, "shop.internal", MINE).rcode() == rcode.SERVFAIL, "nothing is known yet"
    write_names(tmp_path, KNOWN)
    clock.time_s += 1
    assert ONE.ip in addresses(ask(asking, "shop.internal", MINE))
    assert ask(asking, "shop.internal", THEIRS).rcode() == rcode.NXDOMAIN
    write_names(tmp_path, replace(KNOWN, machines=()))
    clock.time_s += 1
    assert addresses(ask(asking, "shop.internal", MINE)) == []
    (tmp_path / FILE).write_bytes(b"damaged")
    clock.time_s += 1
    assert ask(asking, "shop.internal", MINE).rcode() == rcode.NOERROR, "what was known before"


async def test_a_question_that_is_asked_again_has_its_own_id_in_the_answer_and_its_own_networks(tmp_path: Path) -> None:
    write_names(tmp_path, KNOWN)
    asking = resolver(tmp_path, Hands())
    for number in (5, 6):
        found = asking.at_once(message.make_query("shop.internal", "AAAA", id=number).to_wire(), AskingNetwork(MINE))
        assert isinstance(found, bytes) and message.from_wire(found).id == number
    found = asking.at_once(message.make_query("shop.internal", "AAAA", id=7).to_wire(), AskingNetwork(THEIRS))
    assert isinstance(found, bytes) and message.from_wire(found).rcode() == rcode.NXDOMAIN


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("_instances.internal", "TXT"),
        ("none.tier.kv._metadata.shop.internal", "AAAA"),
        ("a\\000B.internal", "AAAA"),
        ("4.3.a.a.d.f.ip6.arpa", "PTR"),
    ],
)
@pytest.mark.parametrize("tcp", [False, True])
async def test_a_question_is_worked_out_once_however_it_is_spelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str, tcp: bool
) -> None:
    write_names(tmp_path, KNOWN)
    asking, fresh = resolver(tmp_path, Hands()), resolver(tmp_path, Hands())
    worked_out = Mock(side_effect=asking._worked_out)
    monkeypatch.setattr(asking, "_worked_out", worked_out)
    for number in range(16):
        spelled = "".join(each.upper() if number >> at % 4 & 1 else each for at, each in enumerate(name))
        cookie: list[edns.Option] = [edns.GenericOption(edns.OptionType.COOKIE, bytes((number,)) * 8)]
        query = message.make_query(spelled, kind, id=number, use_edns=0, payload=1232 + number, options=cookie)
        found = asking.at_once(query.to_wire(), AskingNetwork(MINE), tcp=tcp)
        assert found == fresh._worked_out(query.to_wire(), AskingNetwork(MINE), tcp=tcp)
    assert worked_out.call_count == 1
    plain = message.make_query(name, kind)
    found = asking.at_once(plain.to_wire(), AskingNetwork(MINE), tcp=tcp)
    assert isinstance(found, bytes) and message.from_wire(found).edns == -1, "another form, another answer"


async def test_a_long_answer_over_tcp_is_kept_as_many_short_ones(tmp_path: Path) -> None:
    write_names(tmp_path, replace(KNOWN, machines=tuple(named(number) for number in range(1, 300))))
    asking = resolver(tmp_path, Hands())
    query = message.make_query("_instances.internal", "TXT").to_wire()
    whole = asking.at_once(query, AskingNetwork(MINE), tcp=True)
    assert isinstance(whole, bytes) and asking._count == 1 + len(whole) // 1233 > 10
    ask_for_many(asking, MINE, 1020)
    assert asking._count <= 1024 and asking._count == sum(asking._parts.values())


def test_each_network_gets_its_own_machines() -> None:
    found = by_network(KNOWN)
    assert {key: {each.network_id for each in known.machines} for key, known in found.items()} == {7: {7}, 8: {8}}
    assert sum(len(known.machines) for known in found.values()) == len(KNOWN.machines)


def kept(asking: NameResolver) -> dict[int, int]:
    """How many answers are kept, by network."""
    return {network.network_id: len(answers) for network, answers in asking._said.items()}


def ask_for_many(asking: NameResolver, network_id: int, count: int) -> None:
    for number in range(count):
        ask(asking, f"n{number}.internal", network_id)


async def test_a_network_that_asks_for_many_names_loses_its_own_kept_answers_alone(tmp_path: Path) -> None:
    write_names(tmp_path, KNOWN)
    asking = resolver(tmp_path, Hands())
    ask_for_many(asking, THEIRS, 10)
    ask_for_many(asking, MINE, 1024)
    assert kept(asking) == {THEIRS: 10, MINE: 1024}
    ask(asking, "more.internal", MINE)
    ask_for_many(asking, THEIRS, 10)
    assert kept(asking) == {THEIRS: 10, MINE: 1}, "what is asked again is kept once"


async def test_a_network_with_most_kept_answers_makes_room_where_all_networks_have_too_many(tmp_path: Path) -> None:
    write_names(tmp_path, KNOWN)
    asking = resolver(tmp_path, Hands())
    for number in range(4):
        ask_for_many(asking, 100 + number, 1000)
    ask_for_many(asking, 104, 96)
    ask(asking, "shop.internal", MINE)
    assert kept(asking) == {101: 1000, 102: 1000, 103: 1000, 104: 96, MINE: 1}
    ask(asking, "shop.internal", THEIRS)
    assert sum(kept(asking).values()) == 3098 == asking._count


async def test_an_answer_that_is_given_again_has_another_order_and_one_of_the_nearest_has_not(tmp_path: Path) -> None:
    others = [replace(ONE, id=MachineId(f"{number:014x}"), ip=f"{ONE.ip[:-1]}{number:x}") for number in range(1, 10)]
    write_names(tmp_path, replace(KNOWN, machines=tuple(others)))
    clock = Hands()
    asking = resolver(tmp_path, clock)
    for name, orders in (("shop.internal", 2), ("top9.nearest.of.shop.internal", 1)):
        query, seen = message.make_query(name, "AAAA", use_edns=0), set()
        for _ in range(30):
            found = asking.at_once(query.to_wire(), AskingNetwork(MINE))
            assert isinstance(found, bytes)
            answer = message.from_wire(found)
            assert query.is_response(answer) and answer.edns == 0
            seen.add(tuple(addresses(answer)))
            clock.time_s += 1
        assert {frozenset(each) for each in seen} == {frozenset(each.ip for each in others)}
        assert len(seen) == 1 if orders == 1 else len(seen) > 1
    assert reordered(b"\0" * 5, clock.random) == b"\0" * 5


async def test_nearest_machines_are_answered_in_their_order_each_time_it_is_worked_out(tmp_path: Path) -> None:
    near = [named(number) for number in range(1, 3)]
    others = [named(number, node=THERE, region=region) for number, region in ((3, "ams"), (4, "iad"), (5, "iad"))]
    asking = resolver(tmp_path, clock := Hands())
    for number in range(20):
        write_names(tmp_path, replace(KNOWN, upstream=(f"192.0.2.{number}",), machines=(*others[::-1], *near)))
        clock.time_s += 1
        found = addresses(ask(asking, "top4.nearest.of.shop.internal", MINE))
        assert set(found[:2]) == {each.ip for each in near} and found[2] == others[0].ip and len(found) == 4


async def test_other_names_are_asked_elsewhere_and_none_of_ours_is(
    tmp_path: Path, patience: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_names(tmp_path, KNOWN)
    async with serving(Upstream()) as upstream:
        asking = resolver(tmp_path, Hands(), upstream.port)
        found = asking.at_once(message.make_query("example.com", "AAAA").to_wire(), AskingNetwork(MINE))
        assert isinstance(found, Question)
        assert addresses(message.from_wire(await asking.forwarded(found, MINE, "fdaa::5"))) == ["2001:db8::5"]
        ask(asking, "nobody.internal", MINE)
        assert [str(query.question[0].name) for query in upstream.heard] == ["example.com."]
    monkeypatch.undo()
    other = asking.at_once(message.make_query("other.example", "AAAA").to_wire(), AskingNetwork(MINE))
    assert isinstance(other, Question)
    assert message.from_wire(await asking.forwarded(other, MINE, "fdaa::5")).rcode() == rcode.SERVFAIL


async def test_a_machine_asks_so_often_whatever_address_of_its_own_it_takes(tmp_path: Path) -> None:
    asking = resolver(tmp_path, Hands())
    asked = sum(asking.admits(f"fdaa:0:7::{number & 0xFF:x}") for number in range(int(QUESTIONS.burst) + 50))
    assert asked == QUESTIONS.burst
    assert asking.admits("fdaa:0:7::1:1"), "another machine"
    assert machine_of("fdaa:0:7::2") == machine_of("fdaa:0:7::ffff%eth0") != machine_of("fdaa:0:7::1:2")


def test_servers_of_the_host_are_read_as_they_are_now(tmp_path: Path) -> None:
    file = tmp_path / "resolv.conf"
    assert host_servers(file) == ()
    file.write_text("nameserver 127.0.0.53\nnameserver nonsense\nnameserver fdaa::3\nsearch x\nnameserver 192.0.2.1\n")
    assert host_servers(file) == ("127.0.0.53", "192.0.2.1")
