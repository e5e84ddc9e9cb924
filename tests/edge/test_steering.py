"""Where a client wants its request to go."""

import pytest

from hawker.edge.routes import ServiceTarget
from hawker.edge.steering import NOWHERE_SAID, steering_of, tiers
from hawker.feed import GatePlace
from hawker.ids import NodeId
from hawker.machine import State
from tests.edge.edge_kit import OK, PlayedHost, app_server, ask, get, route, says, seen_from_abroad
from tests.ports import free_port


def body(text: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text)


def test_a_request_that_says_nothing_goes_anywhere() -> None:
    assert steering_of([(b"accept", b"*/*")]) is NOWHERE_SAID
    assert NOWHERE_SAID.allows_region("ams")


def test_the_first_of_several_counts_and_is_cut() -> None:
    found = steering_of([(b"fly-force-instance-id", b" one "), (b"fly-force-instance-id", b"two")])
    assert found.force == "one"
    assert len(steering_of([(b"fly-prefer-instance-id", b"x" * 5000)]).prefer or "") == 64


@pytest.mark.parametrize(
    ("said", "allowed"),
    [
        ("ams", True),
        ("iad, AMS", True),
        ("any", True),
        ("iad", False),
        (",", True),
        ("eu", True),
        ("us,EU", True),
        ("apac,na,sa,us,usa", False),
    ],
)
def test_regions_are_a_list_of_names_and_aliases(said: str, allowed: bool) -> None:
    assert steering_of([(b"fly-force-region", said.encode())]).allows_region("ams") is allowed


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("fly-prefer-region: us", ["ewr", "sjc", "ams", "lhr", "attic"]),
        ("fly-prefer-region: attic,na", ["attic", "ewr", "sjc", "ams", "lhr"]),
        ("fly-prefer-region: sjc,usa", ["sjc", "ewr", "ams", "lhr", "attic"]),
        ("fly-prefer-region: eu", ["ams", "lhr", "ewr", "sjc", "attic"]),
        ("fly-prefer-region: any,sjc", ["ams", "lhr", "ewr", "sjc", "attic"]),
        ("fly-prefer-region: apac", ["ams", "lhr", "ewr", "sjc", "attic"]),
    ],
)
def test_regions_of_an_alias_are_asked_the_nearest_first(said: str, asked: list[str]) -> None:
    gate = GatePlace(node=NodeId("b" * 8), host="10.0.0.2", port=4291)
    machines = [route(80, 8080, handlers=("http",))]
    for away_ms, region in ((8, "lhr"), (64, "ewr"), (128, "sjc"), (256, "attic")):
        machines.append(seen_from_abroad(route(80, 8080, handlers=("http",)), gate, region=region, away_ms=away_ms))
    targets = [ServiceTarget(each, 0, each.services[0], (each.services[0].ports or ())[0]) for each in machines]
    name, _, value = said.encode().partition(b": ")
    found = tiers(targets, "ams", steering_of([(name, value)]))
    assert [tier[0].machine.region or "ams" for tier in found] == asked


async def test_one_machine_can_be_forced(host: PlayedHost) -> None:
    async with app_server(says(body(b"one"))) as first, app_server(says(body(b"two"))) as second:
        port = free_port()
        one, two = (route(port, inside, handlers=("http",)) for inside in (first, second))
        await host.publish(one, two)
        for _ in range(4):
            assert b"two" in await ask(port, get("/", f"fly-force-instance-id: {two.id}"))
        answer = await ask(port, get("/", "fly-force-instance-id: nobody"))
        assert b"404" in answer and b"PR02" in answer
        assert b"PR02" in await ask(port, get("/", "fly-force-region: nowhere"))


async def test_a_preferred_machine_that_cannot_is_replaced_and_named(host: PlayedHost) -> None:
    seen: list[bytes] = []
    async with app_server(says(OK, seen)) as inside:
        port = free_port()
        up, down = (
            route(port, inside, handlers=("http",), state=state, autostart=False)
            for state in (State.STARTED, State.STOPPED)
        )
        await host.publish(up, down)
        for wanted in (up, down):
            assert b"200 OK" in await ask(port, get("/", f"fly-prefer-instance-id: {wanted.id}"))
        assert b"fly-preferred-instance-unavailable" not in seen[0].lower()
        assert f"fly-preferred-instance-unavailable: {down.id}".encode() in seen[1]
