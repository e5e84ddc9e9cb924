"""What is said of a machine's published ports."""

import pytest

from hawker.api.contract.app import AppParams
from hawker.api.contract.published_port import EXPLAIN_ROUTE, LIST_PUBLISHED_PORTS, ExplainQuery
from hawker.errors import Unavailable, Unprocessable
from hawker.feed import PUBLISH, ListenState
from hawker.ids import AppName
from hawker.sim.node.sim_worker import APP, SimWorker, params
from hawker.worker.handlers.published_ports import place_of, published_ports

pytestmark = pytest.mark.anyio
HOSTS = ("0.0.0.0",)
WEB = {"internal_port": 8080, "ports": [{"port": 80}]}


def state(app: str = APP, refused: str = "", *, http: bool = False, tls: bool = False) -> tuple[ListenState, ...]:
    return (ListenState(address="0.0.0.0", port=80, app=AppName(app), http=http, tls=tls, refused=refused),)


async def test_a_port_is_listening_once_the_edge_says_so(worker: SimWorker) -> None:
    record = worker.record(await worker.started(services=[WEB], metadata={PUBLISH: "*"}))
    (found,) = published_ports(record, HOSTS, state())
    assert found.listening and (found.address, found.port, found.internal_port) == ("0.0.0.0", 80, 8080)
    assert "yet" in next(published_ports(record, HOSTS, ())).refused
    assert "another app" in next(published_ports(record, HOSTS, state("other"))).refused
    assert next(published_ports(record, HOSTS, state(refused="in use"))).refused == "in use"
    assert "another app" in next(published_ports(record, HOSTS, state("other", http=True))).refused, "this one is raw"
    assert "--edge-address" in next(published_ports(record, (), ())).refused or not record.config.services


async def test_a_machine_that_publishes_nothing_has_no_ports(worker: SimWorker) -> None:
    machine_id = await worker.started(services=[WEB])
    assert await worker.api.call(LIST_PUBLISHED_PORTS, params=params(machine_id)) == ()


@pytest.mark.parametrize(
    ("handlers", "other", "shared"),
    [
        (("http",), state("other", http=True), True),
        (("tls",), state("other", tls=True), True),
        (("tls", "http"), state("other", tls=True), True),
        (("tls", "http"), state("other", http=True), False),
        (("http",), state("other", http=True, tls=True), False),
        ((), state("other", tls=True), False),
    ],
)
async def test_apps_share_a_port_where_a_client_says_whom_it_means(
    worker: SimWorker, handlers: tuple[str, ...], other: tuple[ListenState, ...], shared: bool
) -> None:
    web = {"internal_port": 8080, "ports": [{"port": 80, "handlers": list(handlers)}]}
    record = worker.record(await worker.started(services=[web], metadata={PUBLISH: "*"}))
    assert next(published_ports(record, HOSTS, other)).listening is shared


@pytest.mark.parametrize(
    ("url", "host", "port", "tls"),
    [
        ("http://Shop.localhost/x", "shop.localhost", 80, False),
        ("https://shop.localhost.", "shop.localhost", 443, True),
        ("tcp://127.0.0.1:5432", "127.0.0.1", 5432, False),
        ("tls://[::1]:1", "::1", 1, True),
    ],
)
def test_a_url_says_where_a_client_goes(url: str, host: str, port: int, tls: bool) -> None:
    found = place_of(url)
    assert (found.host, found.port, found.tls) == (host, port, tls)


@pytest.mark.parametrize(
    "url",
    ["", "shop", "ftp://shop", "tcp://shop", "http://", "http://a:70000", "http://[::1", "http://" + "a" * 300],
)
def test_a_text_that_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(Unprocessable, match="url"):
        place_of(url)


async def test_without_an_edge_nothing_is_explained(worker: SimWorker) -> None:
    await worker.started(services=[WEB])
    with pytest.raises(Unavailable, match="edge"):
        params = AppParams(app_name=APP)
        await worker.api.call(EXPLAIN_ROUTE, params=params, query=ExplainQuery(url="http://shop"))
