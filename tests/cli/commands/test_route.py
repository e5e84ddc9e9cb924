from typing import Any

from hawker.api.contract.port import CandidateState, ListenerState, RouteExplanation
from hawker.cli.commands.route import explanation
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode


def candidate(machine: str, **given: Any) -> CandidateState:
    values = {"state": "started", "stands": "started, 2 in flight", "internal_port": 80, "in_flight": 2}
    return CandidateState(**{**values, "machine": machine, "soft_limit": 20, "chosen": False, **given})


def test_an_explanation_is_asked_for_and_printed(hawker: Hawker, node: FakeNode) -> None:
    done = hawker("route", "explain", "-a", "shop", "https://shop.example.com")
    assert node.call("explain_route").query.url == "https://shop.example.com"
    assert "no app of this host publishes the port" in done.out


def test_options_say_what_a_request_says(hawker: Hawker, node: FakeNode) -> None:
    fields = ("-H", "Fly-Prefer-Region: ams,iad", "-H", "x-user:1")
    options = ("-X", "POST", *fields, "--from", "203.0.113.7", "--replay", "region=ams")
    hawker("route", "explain", "-a", "shop", "https://shop.example.com/x", *options)
    query = node.call("explain_route").query
    assert (query.method, query.source, query.replay) == ("POST", "203.0.113.7", "region=ams")
    assert query.header == {"Fly-Prefer-Region": "ams,iad", "x-user": "1"}
    refused = hawker("route", "explain", "-a", "shop", "https://shop.example.com", "-H", "x-user")
    assert refused.status == 2 and "NAME: VALUE" in refused.err


def test_a_table_marks_who_is_chosen_and_says_how_the_others_stand() -> None:
    listener = ListenerState(
        address="127.0.0.1",
        port=443,
        speaks="https",
        certificate="*.example.com",
        outcome="goes to machine m1",
        notes=("PUT: goes to a second machine",),
        candidates=(candidate("m1", chosen=True, hard_limit=25), candidate("m2", stands="stopped")),
    )
    answer = RouteExplanation(
        url="https://a.example.com", app="shop", listeners=(listener,), node="0000beef", region="ams"
    )
    where, first, second, note, head, one, two = explanation(answer).splitlines()
    assert where == "asked in region ams, at node 0000beef"
    assert first == "127.0.0.1 port 443 speaks https, certificate *.example.com" and second == "goes to machine m1"
    assert note == "- PUT: goes to a second machine"
    assert "IN/SOFT/HARD" in head
    assert one.split()[:4] == ["->", "m1", "80", "2/20/25"] and "stopped" in two and "->" not in two
