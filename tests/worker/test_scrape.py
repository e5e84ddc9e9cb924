from collections.abc import AsyncIterator

import anyio
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from hawker.clock import SystemClock
from hawker.config.machine import Metrics
from hawker.fair.sessions import fleeting_session
from hawker.ids import MachineId, NodeId
from hawker.machine import State
from hawker.record.machine import Network
from hawker.runtime.fake_driver import FakeDriver
from hawker.runtime.fake_host import FakeHost
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.store.memory_store import MemoryStore
from hawker.worker import scrape
from hawker.worker.scrape import HttpFetch, ScrapeFailed, Scraper
from hawker.worker.usage import UsageMeter

pytestmark = pytest.mark.anyio
UP = "hawker_machine_metrics_up"


def _endpoint(
    worker: SimWorker, machine_id: str, port: int = 9091, path: str = "/metrics", scheme: str = "http"
) -> str:
    return f"{scheme}://[{worker.record(machine_id).network.private_ip}]:{port}{path}"


async def _series(worker: SimWorker) -> dict[str, str]:
    """Value by series, each without the labels that all have."""
    lines = (await worker.parts.scraper.page()).splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


async def test_a_machines_series_have_its_app_its_region_its_host_and_its_id(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    machine_id = await worker.started(metrics={"port": 9091})
    stall.fetcher.answers[_endpoint(worker, machine_id)] = b'hits{path="/"} 7\n'
    labels = f'app="stall",host="0123abcd",instance="{machine_id}"'
    series = await _series(worker)
    assert series[f'hits{{{labels},path="/",region="local"}}'] == "7.0"
    assert series[f'{UP}{{{labels},region="local"}}'] == "1.0"


async def test_path_and_scheme_are_the_configs(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(metrics={"port": 8443, "path": "/m?all=1", "https": True})
    stall.fetcher.answers[_endpoint(worker, machine_id, 8443, "/m?all=1", "https")] = b"hits 1\n"
    assert any(name.startswith("hits{") for name in await _series(worker))


async def test_only_started_machines_with_an_endpoint_are_asked(worker: SimWorker) -> None:
    await worker.started()
    stopped = await worker.started(metrics={"port": 1})
    await worker.stop(stopped)
    assert not [name for name in await _series(worker) if not name.startswith("hawker_machine_")]


@pytest.mark.parametrize("answer", [None, b"\xff\xfe", b"<html>", b"a 1\n" * 300_000])
async def test_one_that_is_silent_or_says_nonsense_is_down_and_harms_no_other(
    worker: SimWorker, stall: MemoryWorld, answer: bytes | None
) -> None:
    good, bad = [await worker.started(metrics={"port": 9091}) for _ in range(2)]
    stall.fetcher.answers[_endpoint(worker, good)] = b"hits 1\n"
    if answer is not None:
        stall.fetcher.answers[_endpoint(worker, bad)] = answer
    up = {name: value for name, value in (await _series(worker)).items() if name.startswith(UP)}
    assert sorted((value, good in name) for name, value in up.items()) == [("0.0", False), ("1.0", True)]


async def test_text_of_all_machines_together_is_bounded(
    worker: SimWorker, stall: MemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrape, "ALL_BYTES", 10)
    monkeypatch.setattr(scrape, "LEAST_BYTES", 1)
    machines = [await worker.started(metrics={"port": 9091}) for _ in range(3)]
    for machine_id in machines:
        stall.fetcher.answers[_endpoint(worker, machine_id)] = b"hits 1\n"
    up = [value for name, value in (await _series(worker)).items() if name.startswith(UP)]
    assert sorted(up) == ["0.0", "0.0", "1.0"]


@pytest.fixture
async def fetch() -> AsyncIterator[HttpFetch]:
    async with fleeting_session() as http:
        yield HttpFetch(lambda: http)


async def _answer(request: web.Request) -> web.Response:
    return web.Response(text="a 1\n")


async def _moved(request: web.Request) -> web.Response:
    raise web.HTTPFound("/metrics")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # real sockets: virtual time would pass them by
async def test_an_endpoint_is_asked_within_bounds_and_not_followed_elsewhere(fetch: HttpFetch) -> None:
    ended = anyio.Event()

    async def hang(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await ended.wait()
        return response

    app = web.Application()
    app.router.add_get("/metrics", _answer)
    app.router.add_get("/moved", _moved)
    app.router.add_get("/hang", hang)
    async with TestServer(app) as server:
        url = str(server.make_url("/"))
        assert await fetch(f"{url}metrics", 100, 60) == b"a 1\n"
        for path, limit, complaint in (
            ("metrics", 3, "more than 3 bytes"),
            ("moved", 100, "status 302"),
            ("none", 100, "status 404"),
        ):
            with pytest.raises(ScrapeFailed, match=complaint):
                await fetch(f"{url}{path}", limit, 60)
        with pytest.raises(ScrapeFailed, match="TimeoutError"):
            await fetch(f"{url}hang", 100, 0.05)
        ended.set()
    with pytest.raises(ScrapeFailed):
        await fetch(f"{url}metrics", 100, 60)


async def test_app_with_many_silent_machines_leaves_another_its_turn() -> None:
    """A hundred machines that keep whoever asks waiting, and one of another app after them."""
    asked: list[str] = []

    async def fetch(url: str, limit: int, timeout_s: float) -> bytes:
        asked.append(url)
        if "a:" in url:
            await anyio.sleep_forever()
        return b"hits 1\n"

    heard = scrape._Heard(100)
    store, node = MemoryStore(), NodeId("0123abcd")
    meter = UsageMeter(store, node, FakeDriver(FakeHost(SystemClock())), None)
    scraper = Scraper(store, node, fetch, meter)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(scraper._ask, _exposing("alpha", f"a:{number}"), heard)
            await anyio.wait_all_tasks_blocked()
            await scraper._ask(_exposing("beta", "b:1"), heard)
            tasks.cancel_scope.cancel()
    assert list(heard.pages) == ["b:1"] and len(asked) == 9


def _exposing(app: str, machine_id: str) -> scrape._Exposing:
    network = Network(private_ip=machine_id, network_id=1)
    config = scrape._Config(metrics=Metrics(port=1))
    return scrape._Exposing(
        id=MachineId(machine_id), app=app, region="local", state=State.STARTED, network=network, config=config
    )
