"""Deploys under load that comes through the edge: no request is lost, on one node and between two."""

import http.client
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from anyio.to_thread import run_sync

from hawker.api.contract.app import AppParams
from hawker.api.contract.deploy import CREATE_DEPLOY, GET_DEPLOY, CreateDeployRequest, DeployInfo, DeployParams
from hawker.api.contract.machine import Machine
from hawker.config import PUBLISH
from hawker.feed import EVERYWHERE
from hawker.flytoml.machines import GROUP, PLATFORM
from hawker.machine import GONE
from tests.e2e.running_node import running_node
from tests.e2e.shop import HELLO, Shop
from tests.e2e.test_fleet_join import HOSTS, WITHIN_S
from tests.e2e.two_hosts import met, two_hosts
from tests.e2e.web import ask
from tests.ports import free_port
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.slow]
CLIENTS = 4
_PACE = {"smoke": "1s", "smoke_rest": "0s"}


class Load:
    """Clients that ask again and again, half of them over connections that they keep. `answers` counts by status and
    the release that answered; `lost` says what went wrong."""

    def __init__(self, places: Sequence[tuple[str, int]]) -> None:
        self._places = places
        self._over = threading.Event()
        self._began = time.monotonic()
        self.answers: Counter[int] = Counter()
        self.lost: list[str] = []

    @contextmanager
    def under_way(self) -> Iterator["Load"]:
        clients = [threading.Thread(target=self._ask, args=(number,)) for number in range(CLIENTS * len(self._places))]
        for client in clients:
            client.start()
        try:
            yield self
        finally:
            self._over.set()
            for client in clients:
                client.join()

    def _ask(self, number: int) -> None:
        address, port = self._places[number % len(self._places)]
        keeps = number // len(self._places) % 2 == 0
        connection = http.client.HTTPConnection(address, port, timeout=30)
        while not self._over.is_set():
            try:
                connection.request("GET", "/")
                answer = connection.getresponse()
                answer.read()
                self.answers[answer.status] += 1
                if answer.status != 200:
                    self.lost.append(f"{time.monotonic() - self._began:.2f} {address}: {answer.status}")
                if not keeps or answer.will_close:
                    connection.close()
            except (OSError, http.client.HTTPException) as error:
                self.lost.append(f"{time.monotonic() - self._began:.2f} {address}: {type(error).__name__}: {error}")
                connection.close()
            self._over.wait(0.002)


def definition(port: int, release: int, strategy: str) -> CreateDeployRequest:
    service = {
        "internal_port": 8080,
        "protocol": "tcp",
        "ports": [{"port": port, "handlers": ["http"]}],
        "http_checks": [{"path": "/", "interval": "1s", "timeout": "30s"}],
    }
    words = {"env": {"RELEASE": str(release)}, "services": [service], "hawker": {"deploy": _PACE}}
    return msgspec.convert({"definition": words, "image": HELLO, "strategy": strategy}, CreateDeployRequest)


async def stocked(shop: Shop, port: int, hosts: Sequence[str]) -> None:
    """Two machines of the app at each host of these labels, of its one group, published at the port."""
    for labels in hosts:
        metadata = {**PLATFORM, GROUP: "app", PUBLISH: EVERYWHERE, **({"hawker_labels": labels} if labels else {})}
        service = {"internal_port": 8080, "protocol": "tcp", "ports": [{"port": port, "handlers": ["http"]}]}
        config: dict[str, Any] = {"image": HELLO, "services": [service], "metadata": metadata}
        for _ in range(2):
            await shop.run_somewhere({**config, "guest": {"memory_mb": 64}})


async def deployed(shop: Shop, body: CreateDeployRequest) -> DeployInfo:
    begun = await shop.client.call(CREATE_DEPLOY, params=AppParams(app_name=shop.app), body=body)
    params = DeployParams(app_name=shop.app, version=str(begun.version))

    async def ended() -> DeployInfo | None:
        found = await shop.client.call(GET_DEPLOY, params=params)
        return found if found.ended_at is not None else None

    found = await eventually(ended, 2 * WITHIN_S)
    assert found is not None
    return found


def releases(machines: Sequence[Machine]) -> list[str]:
    return [(each.config.env or {}).get("RELEASE", "") for each in machines if each.config is not None]


async def served(address: str, port: int) -> bool:
    try:
        return (await run_sync(lambda: ask(address, port=port))).status == 200
    except OSError:
        return False


async def rolled_without_a_loss(shop: Shop, places: Sequence[tuple[str, int]], strategies: Sequence[str]) -> None:
    count = len(await shop.machines())
    for address, port in places:
        await eventually(partial(served, address, port), WITHIN_S)
    for number, strategy in enumerate(strategies, 1):
        with Load(places).under_way() as load:
            ended = await deployed(shop, definition(places[0][1], number, strategy))
        assert ended.status == "complete", ended
        lost = load.lost
        assert not lost and load.answers[200] > 100, (strategy, load.answers, len(lost), lost[:5], lost[-1:])
        left = [each for each in await shop.machines() if each.state not in GONE]
        assert releases(left) == [str(number)] * count


async def test_deploys_on_one_node_lose_no_request(tmp_path: Path) -> None:
    port = free_port()
    with running_node(tmp_path / "node", "--ephemeral", "--edge-address", "127.0.0.1") as node:
        async with node.client() as client:
            shop = await Shop(client, "loaded").open()
            await stocked(shop, port, [""])
            await rolled_without_a_loss(shop, [("127.0.0.1", port)], ["rolling", "bluegreen"])
            await shop.close()


@pytest.mark.long(reason="50 s: edges of other hosts are given 10 s to hear, twice; the short form is one node")
async def test_deploys_over_two_nodes_lose_no_request_at_either_edge(tmp_path: Path) -> None:
    port, flags = free_port(), [("--edge-address", address) for address in HOSTS[:2]]
    with two_hosts(tmp_path, flags) as hosts:
        await met(hosts)
        async with hosts[0].node.client() as client:
            shop = await Shop(client, "loaded").open()
            await stocked(shop, port, ["host=0", "host=1"])
            places = [(address, port) for address in HOSTS[:2]]
            await rolled_without_a_loss(shop, places, ["rolling", "bluegreen"])
            await shop.close()
