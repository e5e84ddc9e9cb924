"""Against real sockets, so in real time."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import anyio
import pytest
from anyio.abc import Listener, SocketAttribute, SocketStream

from hawker.fair.sessions import fleeting_session
from hawker.worker.health import NetworkProber, Probe, ProbeResult

pytestmark = pytest.mark.anyio
Serve = Callable[[bytes], Awaitable[int]]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def prober() -> AsyncIterator[NetworkProber]:
    async with fleeting_session() as http:
        yield NetworkProber(lambda: http)


@pytest.fixture
def asked() -> list[bytes]:
    """The requests that came."""
    return []


@pytest.fixture
async def serve(asked: list[bytes]) -> AsyncIterator[Serve]:
    """Starts a server that answers everyone with the same bytes; with none, it only accepts. Gives the port."""
    async with AsyncExitStack() as ports, anyio.create_task_group() as tasks:

        async def begin(answer: bytes) -> int:
            async def handle(stream: SocketStream) -> None:
                async with stream:
                    with suppress(anyio.EndOfStream):
                        asked.append(await stream.receive())
                    if answer:
                        await stream.send(answer)
                    else:
                        await anyio.sleep_forever()

            listener = await _only_ipv6(ports)
            tasks.start_soon(listener.serve, handle)
            return int(listener.extra(SocketAttribute.local_port))

        yield begin
        tasks.cancel_scope.cancel()


async def _only_ipv6(ports: AsyncExitStack) -> Listener[SocketStream]:
    """IPv4 refuses at its port: the port is taken, and nobody listens. A server of another test would answer there."""
    while True:
        taken = ports.enter_context(socket.socket())
        taken.bind(("127.0.0.1", 0))
        with suppress(OSError):  # somebody has it in IPv6
            return await anyio.create_tcp_listener(local_host="::1", local_port=taken.getsockname()[1])


def _probe(port: int, machine: str, timeout_s: float, app: str = "alpha") -> Probe:
    return Probe(host="::1", port=port, timeout_s=timeout_s, path="/", app=app, machine=machine)


def _answer(status: str, body: str = "", extra: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\n{extra}content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()


async def test_a_port_that_accepts_passes(prober: NetworkProber, serve: Serve) -> None:
    finding = await prober(Probe(host="::1", port=await serve(b""), timeout_s=60))
    assert finding.passing


async def test_a_machine_is_asked_over_ipv4_first_and_over_ipv6_where_that_is_refused(
    prober: NetworkProber, serve: Serve
) -> None:
    for path in (None, "/"):
        answer = _answer("200 OK", "six")
        six = await serve(answer)
        assert (await prober(Probe(host="::1", ipv4="127.0.0.1", port=six, timeout_s=60, path=path))).passing
        async with four(_answer("503 Service Unavailable", "four")) as (port, asked):
            finding = await prober(Probe(host="::1", ipv4="127.0.0.1", port=port, timeout_s=60, path=path))
        assert finding.passing is (path is None) and asked, "whoever takes the connection has the word"


@asynccontextmanager
async def four(answer: bytes) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that listens on IPv4 only, as many do."""
    asked: list[bytes] = []

    async def handle(stream: SocketStream) -> None:
        async with stream:
            asked.append(b"")
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                await stream.receive()
                await stream.send(answer)

    async with anyio.create_task_group() as tasks:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        tasks.start_soon(listener.serve, handle)
        yield int(listener.extra(SocketAttribute.local_port)), asked
        tasks.cancel_scope.cancel()


async def test_a_port_that_refuses_does_not_pass(prober: NetworkProber) -> None:
    for path in (None, "/"):
        finding = await prober(Probe(host="::1", port=1, timeout_s=60, path=path))
        assert not finding.passing and finding.output


async def test_a_good_answer_passes_with_its_body(prober: NetworkProber, serve: Serve, asked: list[bytes]) -> None:
    port = await serve(_answer("200 OK", "fine"))
    headers = (("x-check", "a"), ("x-check", "b"))
    finding = await prober(Probe(host="::1", port=port, timeout_s=60, path="/up?x=1", method="POST", headers=headers))
    assert (finding.passing, finding.output) == (True, "fine")
    assert asked[-1].startswith(b"POST /up?x=1 ") and b"x-check: a" in asked[-1] and b"x-check: b" in asked[-1]


@pytest.mark.parametrize("status", ["404 Not Found", "500 Oops", "302 Found"])
async def test_any_other_answer_does_not_pass(prober: NetworkProber, serve: Serve, status: str) -> None:
    port = await serve(_answer(status, "no", "location: /elsewhere\r\n"))
    finding = await prober(Probe(host="::1", port=port, timeout_s=60, path="/"))
    assert (finding.passing, finding.output) == (False, f"status {status[:3]}: no")


async def test_an_answer_that_is_no_http_does_not_pass(prober: NetworkProber, serve: Serve) -> None:
    finding = await prober(Probe(host="::1", port=await serve(b"hello\r\n\r\n"), timeout_s=60, path="/"))
    assert not finding.passing


async def test_silence_does_not_pass(prober: NetworkProber, serve: Serve) -> None:
    finding = await prober(Probe(host="::1", port=await serve(b""), timeout_s=0.05, path="/"))
    assert (finding.passing, finding.output) == (False, "no answer within 0.05 s")


async def test_a_long_answer_is_cut(prober: NetworkProber, serve: Serve) -> None:
    finding = await prober(Probe(host="::1", port=await serve(_answer("200 OK", "x" * 9999)), timeout_s=60, path="/"))
    assert finding.passing and len(finding.output) <= 2048


BAD = ProbeResult(False, "refused")


async def test_machine_that_never_answers_makes_only_itself_wait(prober: NetworkProber, serve: Serve) -> None:
    """Two machines with 64 checks each, at a port that accepts and never answers, and another app's machine."""
    silent, good = await serve(b""), await serve(_answer("200 OK", "well"))
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            for machine in ("a1", "a2"):
                for _ in range(64):
                    tasks.start_soon(prober, _probe(silent, app="alpha", machine=machine, timeout_s=300.0))
            await anyio.wait_all_tasks_blocked()
            for _ in range(3):
                found = await prober(_probe(good, app="beta", machine="b1", timeout_s=60.0))
                assert found == ProbeResult(True, "well")
            tasks.cancel_scope.cancel()


async def test_deadline_of_a_probe_begins_when_it_is_its_turn(prober: NetworkProber, serve: Serve) -> None:
    silent, good = await serve(b""), await serve(_answer("200 OK", "well"))
    found: list[ProbeResult] = []

    async def ask(port: int, timeout_s: float) -> None:
        found.append(await prober(_probe(port, machine="m", timeout_s=timeout_s)))

    async with anyio.create_task_group() as tasks:
        for _ in range(4):  # as many as a machine has at once
            tasks.start_soon(ask, silent, 11.0)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(ask, good, 10.0)
    assert sorted(each.passing for each in found) == [False] * 4 + [True]
