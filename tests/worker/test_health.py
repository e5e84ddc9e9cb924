"""Against real sockets, so in real time."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import aiohttp
import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from hawker.ids import MachineId
from hawker.machine import State
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.worker.health import NetworkProber, Probe, ProbeResult

pytestmark = pytest.mark.anyio
Serve = Callable[[bytes], Awaitable[int]]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def prober() -> AsyncIterator[NetworkProber]:
    async with aiohttp.ClientSession() as http:
        yield NetworkProber(http)


@pytest.fixture
def asked() -> list[bytes]:
    """The requests that came."""
    return []


@pytest.fixture
async def serve(asked: list[bytes]) -> AsyncIterator[Serve]:
    """Starts a server that answers everyone with the same bytes; with none, it only accepts. Gives the port."""
    async with anyio.create_task_group() as tasks:

        async def begin(answer: bytes) -> int:
            async def handle(stream: SocketStream) -> None:
                async with stream:
                    with suppress(anyio.EndOfStream):
                        asked.append(await stream.receive())
                    if answer:
                        await stream.send(answer)
                    else:
                        await anyio.sleep_forever()

            listener = await anyio.create_tcp_listener(local_host="::1")
            tasks.start_soon(listener.serve, handle)
            return int(listener.extra(SocketAttribute.local_port))

        yield begin
        tasks.cancel_scope.cancel()


def _answer(status: str, body: str = "", extra: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\n{extra}content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()


async def test_a_port_that_accepts_passes(prober: NetworkProber, serve: Serve) -> None:
    finding = await prober(Probe(host="::1", port=await serve(b""), timeout_s=60))
    assert finding.passing


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


async def test_what_is_no_http_does_not_pass(prober: NetworkProber, serve: Serve) -> None:
    finding = await prober(Probe(host="::1", port=await serve(b"hello\r\n\r\n"), timeout_s=60, path="/"))
    assert not finding.passing


async def test_silence_does_not_pass(prober: NetworkProber, serve: Serve) -> None:
    finding = await prober(Probe(host="::1", port=await serve(b""), timeout_s=0.05, path="/"))
    assert (finding.passing, finding.output) == (False, "no answer within 0.05 s")


async def test_a_long_answer_is_cut(prober: NetworkProber, serve: Serve) -> None:
    finding = await prober(Probe(host="::1", port=await serve(_answer("200 OK", "x" * 9999)), timeout_s=60, path="/"))
    assert finding.passing and len(finding.output) <= 2048


BAD = ProbeResult(False, "refused")


def _check(**more: object) -> dict[str, dict[str, object]]:
    return {"web": {"type": "http", "port": 8080, "interval": "10s", "timeout": "2s", "grace_period": "30s", **more}}


async def _status(worker: SimWorker, machine_id: str) -> tuple[str, str]:
    (check,) = (await worker.get(machine_id)).checks
    return check.status, check.output


async def test_a_check_is_a_warning_until_it_was_asked(worker: SimWorker) -> None:
    machine = await worker.create(checks=_check())
    assert [(check.name, check.status) for check in machine.checks] == [("web", "warning")]


async def test_a_passing_check_is_published(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(checks=_check(path="/up", headers=[{"name": "Host", "values": ["a"]}]))
    await stall.clock.sleep(0.1)
    assert await _status(worker, machine_id) == ("passing", "Success")
    (probe,) = stall.prober.asked
    assert (probe.port, probe.path, probe.headers, probe.timeout_s) == (8080, "/up", (("Host", "a"),), 2)
    assert probe.host == worker.record(machine_id).network.private_ip


async def test_a_check_that_fails_in_its_grace_period_stays_a_warning(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.prober.answers[8080] = BAD
    machine_id = await worker.started(checks=_check())
    await stall.clock.sleep(29)
    assert (await _status(worker, machine_id))[0] == "warning"
    await stall.clock.sleep(12)
    assert await _status(worker, machine_id) == ("critical", "refused")


async def test_in_its_grace_period_a_check_is_asked_often(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.prober.answers[8080] = BAD
    machine_id = await worker.started(checks=_check())
    await stall.clock.sleep(5)
    stall.prober.answers.clear()
    await stall.clock.sleep(1.1)
    assert (await _status(worker, machine_id))[0] == "passing"


async def test_a_failing_check_never_stops_or_restarts_the_machine(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.prober.answers[8080] = BAD
    machine_id = await worker.started(checks=_check())
    before = worker.record(machine_id)
    await stall.clock.sleep(3600)
    assert worker.record(machine_id) == before


async def test_a_change_of_status_wakes_who_waits_for_the_machine(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.prober.answers[8080] = BAD
    machine_id = await worker.started(checks=_check())
    woken: list[MachineId] = []
    worker.parts.changes.listen(woken.append)
    await stall.clock.sleep(100)
    assert woken == [MachineId(machine_id)], "once, for the change to critical"


async def test_checks_end_with_the_instance_and_begin_afresh_with_the_next(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    machine_id = await worker.started(checks=_check())
    await stall.clock.sleep(1)
    await worker.stop(machine_id)
    await worker.reaches(machine_id, State.STOPPED)
    asked = len(stall.prober.asked)
    await stall.clock.sleep(100)
    assert len(stall.prober.asked) == asked
    assert (await _status(worker, machine_id))[0] == "warning"
    await worker.start(machine_id)
    await worker.reaches(machine_id, State.STARTED)
    await stall.clock.sleep(1)
    assert (await _status(worker, machine_id))[0] == "passing"


async def test_checks_are_taken_up_by_the_next_daemon(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started(checks=_check(type="tcp"))
    stall.prober.asked.clear()
    async with stall.open() as worker:
        await stall.clock.sleep(1)
        assert (await _status(worker, machine_id))[0] == "passing"
    assert stall.prober.asked[0].path is None
