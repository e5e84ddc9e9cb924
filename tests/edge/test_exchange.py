"""Requests that machines have replayed: to whom, how often, with what of the body; and what must not happen."""

import asyncio
import gc
import json
import re
import weakref
from typing import Any

import pytest
from msgspec.structs import replace

from hawker.config.machine import HttpOptions, ReplayCache
from hawker.edge import dialing, visits
from hawker.edge.body import KEPT_BYTES
from hawker.edge.exchange import HttpExchange
from hawker.edge.http_connection import HttpConnection
from hawker.edge.replay import MAX_JSON_BYTES
from hawker.feed import GatePlace
from hawker.machine import State
from tests.edge.edge_kit import (
    HOST,
    OK,
    PlayedHost,
    Serve,
    app_server,
    ask,
    get,
    publish_far,
    read_request,
    route,
    says,
)
from tests.edge.test_visits import woken
from tests.ports import free_port
from tests.waiting import eventually


def replays(order: str, *fields: str, seen: list[bytes] | None = None) -> Serve:
    lines = "".join(f"{field}\r\n" for field in (f"fly-replay: {order}", *fields))
    return says(f"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n{lines}\r\nnone".encode(), seen)


def named(name: bytes, seen: list[bytes] | None = None) -> Serve:
    return says(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(name), name), seen)


async def test_a_request_is_replayed_to_another_app_with_its_body_and_where_it_was(host: PlayedHost) -> None:
    router_saw: list[bytes] = []
    bank_saw: list[bytes] = []
    async with (
        app_server(replays("app=bank;state=a=b", seen=router_saw)) as router,
        app_server(named(b"bank", bank_saw)) as bank,
    ):
        port = free_port()
        first = route(port, router, handlers=("http",))
        await host.publish(first)
        host.worker.put(route(port, bank, app="bank", handlers=("http",), publish=""))
        body = b"Content-Length: 5\r\nConnection: close\r\nfly-replay-src: forged\r\n\r\nhello"
        answer = await ask(port, b"POST /x HTTP/1.1\r\nHost: shop\r\n" + body)
    assert answer.endswith(b"bank") and b"fly-replay" not in answer.lower()
    assert router_saw[0].endswith(b"hello") and bank_saw[0].endswith(b"\r\n\r\nhello")
    found = re.search(rb"fly-replay-src: instance=(\w+);region=ams;t=\d{16};state=a=b\r\n", bank_saw[0])
    assert found and found[1].decode() == first.id and bank_saw[0].count(b"fly-replay-src") == 1
    assert b"forged" not in bank_saw[0] and b"POST /x HTTP/1.1\r\nhost: shop\r\n" in bank_saw[0]
    assert host.counted("replays") == 1


async def test_an_exchange_that_has_ended_leaves_nothing_to_the_collector(
    host: PlayedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[weakref.ref[HttpExchange]] = []

    class Watched(HttpExchange):
        def __init__(self, *parts: Any) -> None:
            super().__init__(*parts)
            made.append(weakref.ref(self))

    monkeypatch.setattr(HttpConnection, "carrier", Watched)
    async with app_server(named(b"shop")) as shop:
        port = free_port()
        await host.publish(route(port, shop, handlers=("http",)))
        gc.disable()
        try:
            assert (await ask(port, get("/"))).endswith(b"shop")
            await eventually(lambda: len(made) == 1 and made[0]() is None)
        finally:
            gc.enable()


async def test_an_order_in_json_changes_what_the_target_gets(host: PlayedHost) -> None:
    seen: list[bytes] = []
    order = {
        "app": "bank",
        "transform": {"path": "/new", "delete_headers": ["cookie"], "set_headers": [{"name": "X-U", "value": "7"}]},
    }
    said = json.dumps(order).encode()
    head = b"HTTP/1.1 307 Go\r\nContent-Type: application/vnd.fly.replay+json\r\nContent-Length: %d\r\n\r\n" % len(said)
    async with app_server(says(head + said)) as router, app_server(named(b"bank", seen)) as bank:
        port = free_port()
        await host.publish(route(port, router, handlers=("http",), kind="requests"))
        host.worker.put(route(port, bank, app="bank", handlers=("http",), publish=""))
        assert (await ask(port, get("/old", "Cookie: x"))).endswith(b"bank")
    assert seen[0].startswith(b"GET /new HTTP/1.1\r\n") and b"x-u: 7\r\n" in seen[0] and b"cookie" not in seen[0]


async def test_an_app_of_another_network_is_not_reached_and_looks_as_if_it_were_not_there(host: PlayedHost) -> None:
    seen: list[bytes] = []
    async with app_server(replays("app=bank")) as router, app_server(named(b"bank", seen)) as bank:
        port = free_port()
        await host.publish(route(port, router, handlers=("http",)))
        host.worker.put(route(port, bank, app="bank", handlers=("http",), network=8))
        foreign = await ask(port, get())
        host.worker.put(route(port, router, app="lost", handlers=("http",), network=0))
        missing = await ask(port, get())
    assert b"PA04" in foreign and foreign.startswith(b"HTTP/1.1 502 ") and not seen
    assert re.sub(rb"\w{26}-ams", b"", foreign) == re.sub(rb"\w{26}-ams", b"", missing)


@pytest.mark.parametrize("by_config", [False, True], ids=["by its own word", "by the config"])
async def test_a_replay_to_an_app_of_another_network_is_not_kept(host: PlayedHost, by_config: bool) -> None:
    asked: list[bytes] = []
    seen: list[bytes] = []
    fields = () if by_config else ("fly-replay-cache: /*",)
    rules = (ReplayCache(path_prefix="/", type="cookie", name="sid"),) if by_config else None
    async with (
        app_server(replays("app=bank", *fields, seen=asked)) as router,
        app_server(named(b"bank", seen)) as bank,
    ):
        port = free_port()
        await host.publish(route(port, router, handlers=("http",), options=HttpOptions(replay_cache=rules)))
        host.worker.put(route(port, bank, app="bank", handlers=("http",), publish="", network=8))
        for _ in range(2):
            assert b"PA04" in await ask(port, get("/", "Cookie: sid=7"))
    assert len(asked) == 2 and not seen


async def test_a_replay_that_is_kept_is_forgotten_once_its_app_is_on_another_network(host: PlayedHost) -> None:
    asked: list[bytes] = []
    seen: list[bytes] = []
    async with (
        app_server(replays("app=bank", "fly-replay-cache: /*", seen=asked)) as router,
        app_server(named(b"bank", seen)) as bank,
    ):
        port = free_port()
        await host.publish(route(port, router, handlers=("http",)))
        near = route(port, bank, app="bank", handlers=("http",), publish="")
        host.worker.put(near)
        for _ in range(2):
            assert (await ask(port, get())).endswith(b"bank")
        assert (len(asked), len(seen)) == (1, 2)
        host.worker.put(replace(near, network=8))
        for _ in range(2):
            assert b"PA04" in await ask(port, get())
    assert (len(asked), len(seen)) == (3, 2)


async def test_a_machine_is_named_and_woken(host: PlayedHost) -> None:
    port = free_port()
    async with app_server(named(b"two")) as two:
        asleep = route(port, two, handlers=("http",), state=State.STOPPED, publish="")
        host.worker.on_wake = woken
        async with app_server(replays(f"instance={asleep.id}")) as one:
            await host.publish(route(port, one, handlers=("http",)))
            host.worker.put(asleep)
            assert (await ask(port, get())).endswith(b"two")
    assert host.worker.wakes == [asleep.id]


async def test_a_machine_that_is_none_of_the_app_is_a_malformed_order(host: PlayedHost) -> None:
    async with app_server(replays("instance=ffffffffffffff")) as one:
        port = free_port()
        await host.publish(route(port, one, handlers=("http",)))
        assert b"PA03" in await ask(port, get())
        await eventually(lambda: host.worker.lines)
    assert "ffffffffffffff" in host.worker.lines[0].text


async def test_elsewhere_goes_to_no_machine_that_had_it_and_ends(host: PlayedHost) -> None:
    seen: list[bytes] = []
    async with app_server(replays("elsewhere=true", seen=seen)) as one:
        port = free_port()
        await host.publish(*(route(port, one, handlers=("http",)) for _ in range(3)))
        answer = await ask(port, get())
    assert b"PR01" in answer and len(seen) == 3


async def test_a_request_is_replayed_ten_times_and_no_more(host: PlayedHost) -> None:
    seen: list[bytes] = []
    async with app_server(replays("app=shop", seen=seen)) as one:
        port = free_port()
        await host.publish(route(port, one, handlers=("http",)))
        answer = await ask(port, get(method="POST"))
    assert b"PA02" in answer and len(seen) == 11


async def test_a_body_that_was_too_large_to_keep_is_not_replayed(host: PlayedHost) -> None:
    bank_saw: list[bytes] = []
    async with app_server(replays("app=bank")) as router, app_server(named(b"bank", bank_saw)) as bank:
        port = free_port()
        await host.publish(route(port, router, handlers=("http",)))
        host.worker.put(route(port, bank, app="bank", handlers=("http",), publish=""))
        for size, expected in ((KEPT_BYTES, b"bank"), (KEPT_BYTES + 1, b"PA01")):
            answer = await ask(port, get("/", f"Content-Length: {size}", method="POST") + b"x" * size)
            assert expected in answer
    assert len(bank_saw) == 1 and bank_saw[0].endswith(b"x" * KEPT_BYTES)
    assert host.edge.kept.total == 0


async def test_a_body_that_comes_later_goes_on_to_the_target(host: PlayedHost) -> None:
    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nfly-replay: app=bank\r\n\r\n")

    seen: list[bytes] = []
    async with app_server(early) as router, app_server(named(b"bank", seen)) as bank:
        port = free_port()
        await host.publish(route(port, router, handlers=("http",)))
        host.worker.put(route(port, bank, app="bank", handlers=("http",), publish=""))
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(get("/", "Transfer-Encoding: chunked", method="POST") + b"3\r\nabc\r\n")
        await eventually(lambda: host.counted("replays") == 1)
        writer.write(b"3\r\ndef\r\n0\r\n\r\n")
        assert (await reader.read()).endswith(b"bank")
        writer.close()
    assert seen[0].endswith(b"\r\n\r\n3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n")


async def test_a_websocket_is_replayed_before_it_is_one(host: PlayedHost) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n")
        writer.write(await reader.readline())

    async with app_server(replays("app=bank")) as router, app_server(echo) as bank:
        port = free_port()
        await host.publish(route(port, router, handlers=("http",)))
        host.worker.put(route(port, bank, app="bank", handlers=("http",), publish=""))
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"GET / HTTP/1.1\r\nHost: shop\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        writer.write(b"hello\n")
        assert await reader.readline() == b"hello\n"
        writer.close()


@pytest.mark.parametrize(
    ("order", "reason"), [("app=bank", "retries_exhausted"), ("app=shop;region=nrt", "no_candidate")]
)
async def test_a_replay_that_finds_nobody_goes_back_if_the_app_says_so(
    host: PlayedHost, order: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visits, "WAKE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(visits, "ROUTE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(dialing, "WAKE_TIMEOUT_S", 0.2)
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await read_request(reader))
        back = b"fly-replay-failed" in heads[-1]
        replay = f"fly-replay: {order};fallback=force_self\r\n".encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n%b\r\nback" % (b"" if back else replay))

    async with app_server(serve) as router:
        port = free_port()
        first = route(port, router, handlers=("http",))
        await host.publish(first)
        host.worker.put(route(port, free_port(), app="bank", handlers=("http",), publish=""))
        assert (await ask(port, get())).endswith(b"back")
    assert len(heads) == 2 and f"replay_source={first.id};reason={reason};elapsed_ms=".encode() in heads[1]


async def test_a_replay_has_its_own_time_and_one_that_came_back_is_not_replayed_again(host: PlayedHost) -> None:
    seen: list[bytes] = []
    async with app_server(replays("app=bank;timeout=200ms;fallback=prefer_self", seen=seen)) as router:
        port = free_port()
        await host.publish(route(port, router, handlers=("http",)))
        host.worker.put(route(port, 1, app="bank", handlers=("http",), publish="", state=State.STOPPED))
        host.worker.on_wake = lambda machine: machine  # accepted, and it never comes up
        answer = await ask(port, get())
    assert b"PA02" in answer and len(seen) == 2 and b"reason=timeout" in seen[1]


async def test_a_request_replayed_once_goes_there_at_once_until_it_is_forgotten(host: PlayedHost) -> None:
    router_saw: list[bytes] = []
    bank_saw: list[bytes] = []
    fields = ("fly-replay-cache: shop.localhost/a/*", "fly-replay-cache-allow-bypass: yes")
    async with app_server(replays("app=bank", *fields, seen=router_saw)) as router:
        async with app_server(named(b"bank", bank_saw)) as bank:
            port = free_port()
            await host.publish(route(port, router, handlers=("http",)))
            host.worker.put(route(port, bank, app="bank", handlers=("http",), publish=""))
            for path in ("/a/1", "/a/2"):
                assert (await ask(port, get(path))).endswith(b"bank")
            skipped = await ask(port, get("/a/3", "fly-replay-cache-control: skip"))
            assert skipped.endswith(b"bank")
        statuses = [re.search(rb"fly-replay-cache-status: (\w+)", head) for head in bank_saw]
        assert [found and found[1] for found in statuses] == [b"miss", b"hit", b"bypass"]
        assert [head.split()[1] for head in router_saw] == [b"/a/1", b"/a/3"]
        assert b"fly-replay-src" in bank_saw[0] and b"fly-replay-src" not in bank_saw[1]
        host.worker.put(route(port, free_port(), app="bank", handlers=("http",), publish=""))


async def test_an_entry_whose_target_is_gone_is_dropped_and_the_app_asked(host: PlayedHost) -> None:
    seen: list[bytes] = []
    rules = (ReplayCache(path_prefix="/", type="cookie", name="sid"),)
    async with app_server(named(b"two")) as two:
        port = free_port()
        target = route(port, two, handlers=("http",), publish="")
        async with app_server(replays(f"instance={target.id}", seen=seen)) as one:
            await host.publish(route(port, one, handlers=("http",), options=HttpOptions(replay_cache=rules)))
            host.worker.put(target)
            for _ in range(2):
                assert (await ask(port, get("/", "Cookie: sid=7"))).endswith(b"two")
            assert len(seen) == 1
            host.edge.gone(target.id)
            assert b"PA03" in await ask(port, get("/", "Cookie: sid=7"))
    assert len(seen) == 2


async def test_a_request_that_may_be_done_twice_goes_to_another_machine_when_the_first_breaks_off(
    host: PlayedHost,
) -> None:
    asked: list[bytes] = []

    async def dies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await read_request(reader))

    async with app_server(dies) as one, app_server(named(b"two")) as two:
        port = free_port()
        first = route(port, one, handlers=("http",))
        await host.publish(first, route(port, two, handlers=("http",)))
        prefer = f"fly-prefer-instance-id: {first.id}"
        answer = await ask(port, get("/", prefer, "Content-Length: 5", method="PUT") + b"hello")
        assert answer.endswith(b"two") and len(asked) == 1
        assert b"PU02" in await ask(port, get("/", prefer, method="POST")) and len(asked) == 2
        forced = await ask(port, get("/", f"fly-force-instance-id: {first.id}"))
        assert b"PU02" in forced and len(asked) == 3


async def test_the_answer_of_a_machine_that_is_no_order_is_502(host: PlayedHost) -> None:
    async with app_server(replays("app=a;app=b")) as one:
        port = free_port()
        await host.publish(route(port, one, handlers=("http",)))
        assert b"PA03" in await ask(port, get())
    big = b'{"app":"' + b"a" * (MAX_JSON_BYTES + 1) + b'"}'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.fly.replay+json\r\nContent-Length: %d\r\n\r\n" % len(big)
    async with app_server(says(head + big)) as one:
        port = free_port()
        await host.publish(route(port, one, handlers=("http",)))
        answer = await ask(port, get())
        assert b"PA03" in answer or b"PU02" in answer


async def test_an_address_with_many_requests_delays_another_one_by_few(host: PlayedHost) -> None:
    seen: list[bytes] = []
    async with app_server(says(OK, seen)) as inside:
        port, many = free_port(), 60
        await host.publish(route(port, inside, handlers=("http",), hard=100, soft=100))
        flood = [await asyncio.open_connection(HOST, port, local_addr=("127.0.0.2", 0)) for _ in range(many)]
        reader, writer = await asyncio.open_connection(HOST, port, local_addr=("127.0.0.3", 0))
        for _, sender in flood:
            sender.write(get("/flood"))
        writer.write(get("/mine"))
        assert b"200 OK" in await reader.read()
        await eventually(lambda: len(seen) == many + 1)
        mine = next(number for number, head in enumerate(seen) if b"/mine" in head)
        assert mine < many // 2
        for _, sender in flood:
            sender.close()


async def test_a_replay_reaches_a_machine_of_another_host(host: PlayedHost, far: PlayedHost, gate: GatePlace) -> None:
    seen: list[bytes] = []
    async with app_server(replays("app=bank")) as router, app_server(named(b"bank", seen)) as bank:
        port = free_port()
        await host.publish(route(port, router, handlers=("http",)))
        await publish_far(host, far, gate, route(port, bank, app="bank", handlers=("http",)))
        answer = await ask(port, get("/", "Content-Length: 5", method="POST") + b"hello")
    assert answer.endswith(b"bank") and seen[0].endswith(b"hello") and b"fly-replay-src: " in seen[0]
