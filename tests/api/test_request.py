from ipaddress import ip_network

import anyio.lowlevel
import pytest

from hawker.api.codec import Message
from hawker.api.contract.machine import CREATE_MACHINE, GET_MACHINE, LIST_MACHINES
from hawker.api.contract.machine_operation import CREATE_LEASE
from hawker.api.grant import Everything
from hawker.api.request import CallReader, Incoming, Pace, body_chunks, incoming, read_body
from hawker.errors import BadRequest, DeadlineExceeded, TooLarge, Unavailable
from hawker.fair.table import BODIES
from hawker.fair.threads import at_work
from hawker.fair.turns import Turns
from tests.api.serving import hang

pytestmark = pytest.mark.anyio


def _request(*messages: Message, headers: dict[bytes, bytes] | None = None, query: bytes = b"") -> Incoming:
    left = list(messages)

    async def receive() -> Message:
        return left.pop(0) if left else await hang()

    scope = {"query_string": query, "headers": list((headers or {}).items())}
    return incoming(scope, {"app_name": "a", "machine_id": "m"}, receive, "01H")


ALICE = Everything("alice")


def _part(data: bytes, more: bool = False) -> Message:
    return {"type": "http.request", "body": data, "more_body": more}


async def test_a_call_has_all_that_came_with_the_request() -> None:
    headers = {b"fly-machine-lease-nonce": b"n", b"idempotency-key": b"k", b"hawker-version": b"0123abcd:1:2"}
    request = _request(_part(b'{"description":"d"}'), headers=headers, query=b"ttl=30")
    call = await CallReader(CREATE_LEASE, 100).with_body(request, ALICE)
    assert (call.params.app_name, call.params.machine_id, call.caller, call.request_id) == ("a", "m", "alice", "01H")
    assert call.version == "0123abcd:1:2"
    assert (call.nonce, call.idempotency_key, call.query.ttl, call.body.description) == ("n", "k", 30, "d")


async def test_a_route_without_a_body_does_not_read_one() -> None:
    call = await CallReader(GET_MACHINE, 100).with_body(_request(), ALICE)
    assert call.body is None and call.nonce is None


async def test_a_body_in_parts_is_joined() -> None:
    assert await read_body(_request(_part(b"ab", True), _part(b"", True), _part(b"c")), 3) == b"abc"


async def test_a_body_announced_too_large_is_not_read() -> None:
    with pytest.raises(TooLarge, match="larger than 10 bytes"):
        await read_body(_request(headers={b"content-length": b"11"}), 10)


async def test_a_body_that_grows_too_large_is_not_read_to_its_end() -> None:
    with pytest.raises(TooLarge):
        await read_body(_request(_part(b"x" * 6, True), _part(b"x" * 5, True)), 10)


async def test_a_client_that_goes_away_ends_the_body() -> None:
    with pytest.raises(Unavailable, match="went away"):
        await read_body(_request(_part(b"x", True), {"type": "http.disconnect"}), 10)


async def test_a_client_that_sends_nothing_more_is_given_up() -> None:
    with pytest.raises(DeadlineExceeded, match="comes too slowly"):
        async for _ in body_chunks(_request(_part(b"x", True)), Pace(0.01, 60, 1)):
            pass


async def test_a_large_body_is_read_in_a_thread_and_the_event_loop_goes_on() -> None:
    wide = b'{"config":{"processes":[' + b",".join([b'{"cmd":["x"]}'] * 10_000) + b"]}}"
    reader = CallReader(CREATE_MACHINE, 1 << 20, Turns(BODIES))
    looks: list[bool] = []

    async def look() -> None:
        while not looks or not looks[-1]:
            looks.append(at_work())
            await anyio.lowlevel.checkpoint()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look)
            call = await reader.with_body(_request(_part(wide)), ALICE)
    assert looks[-1] and len(call.body.config.processes or ()) == 10_000


async def test_a_query_string_without_end_is_refused() -> None:
    request = _request(query=b"a=" + b"x" * 70_000)
    with pytest.raises(BadRequest, match="query string is longer"):
        CallReader(LIST_MACHINES, 0).with_data(request, ALICE, b"")


async def test_a_body_that_drips_is_given_up_though_something_always_comes() -> None:
    async def receive() -> Message:
        await anyio.lowlevel.checkpoint()
        return _part(b"x", True)

    request = incoming({"query_string": b"", "headers": []}, {}, receive, "01H")
    with pytest.raises(DeadlineExceeded, match="comes too slowly"):
        async for _ in body_chunks(request, Pace(pause_s=60, grace_s=0.1, floor=1 << 30)):
            pass


def test_pace_has_a_pause_and_a_floor() -> None:
    pace = Pace(pause_s=5, grace_s=10, floor=100)
    assert pace.until(began=0, now=3, received=0) == 8
    assert pace.until(began=0, now=50, received=4100) == 51


PROXIES = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))


@pytest.mark.parametrize(
    ("peer", "told", "source"),
    [
        ("203.0.113.9", b"10.20.1.1", "203.0.113.9"),  # not by a proxy of ours: its own invention
        ("127.0.0.1", b"10.20.1.1", "127.0.0.1"),
        ("10.0.0.1", b"198.51.100.7", "198.51.100.7"),
        ("::ffff:10.0.0.1", b"198.51.100.7", "198.51.100.7"),
        ("10.0.0.1", b"10.20.1.1, 198.51.100.7, 10.0.0.2", "198.51.100.7"),
        ("fd00::1", b"2001:db8::7", "2001:db8::7"),
        ("10.0.0.1", b"nonsense", "nonsense"),
        ("10.0.0.1", b"", "10.0.0.1"),
    ],
)
def test_source_is_the_peer_unless_a_proxy_that_is_listed_says_another(peer: str, told: bytes, source: str) -> None:
    scope = {"query_string": b"", "headers": [(b"x-forwarded-for", told)], "client": (peer, 1)}
    assert incoming(scope, {}, hang, "01H", PROXIES).source == source
    assert incoming(scope, {}, hang, "01H").source == peer
