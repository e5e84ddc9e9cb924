from collections.abc import AsyncIterator

import aiohttp
import anyio
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.worker import scrape
from hawker.worker.scrape import HttpFetch, ScrapeFailed

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
    assert not await _series(worker)


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


async def test_what_all_say_together_is_bounded(
    worker: SimWorker, stall: MemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrape, "ALL_BYTES", 10)
    machines = [await worker.started(metrics={"port": 9091}) for _ in range(3)]
    for machine_id in machines:
        stall.fetcher.answers[_endpoint(worker, machine_id)] = b"hits 1\n"
    up = [value for name, value in (await _series(worker)).items() if name.startswith(UP)]
    assert sorted(up) == ["0.0", "0.0", "1.0"]


@pytest.fixture
async def fetch() -> AsyncIterator[HttpFetch]:
    async with aiohttp.ClientSession() as http:
        yield HttpFetch(http)


async def _answer(request: web.Request) -> web.Response:
    return web.Response(text="a 1\n")


async def _moved(request: web.Request) -> web.Response:
    raise web.HTTPFound("/metrics")


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
