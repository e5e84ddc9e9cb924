"""Connections to ports of machines, as the node of the machine answers them."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import anyio
import msgspec
import pytest
from anyio.abc import ByteStream

from hawker.api.contract.app import AppParams
from hawker.api.contract.machine import MachineParams
from hawker.api.contract.port import (
    EXPLAIN_ROUTE,
    LIST_EDGE_ADDRESSES,
    LIST_PUBLISHED_PORTS,
    MACHINE_PORT,
    ExplainQuery,
    PortData,
    PortEnd,
    PortOpened,
    PortRequest,
    PortTaken,
)
from hawker.api.handlers import Handlers, SocketChannel
from hawker.api.in_process import InProcessCaller
from hawker.config import PUBLISH
from hawker.errors import NotFound, OverShare, Unavailable, Unprocessable, WrongState
from hawker.fair.table import PORT_CONNECTIONS
from hawker.feed import (
    EdgeReport,
    ListenState,
)
from hawker.handlers.machines import MachineFinder
from hawker.handlers.ports import (
    MachinePortHandlers,
    PublishedPortHandlers,
    edge_addresses,
    place_of,
    published_ports,
    request_of,
)
from hawker.ids import AppName
from hawker.record.node import NODE
from hawker.route_question import AskedRequest, ExplainedDoor
from hawker.sim.node.sim_worker import APP, SimWorker, params
from hawker.worker.edge_line import EdgeLine

pytestmark = pytest.mark.anyio


class Echo(ByteStream):
    """What is sent comes back, and the end, too."""

    def __init__(self) -> None:
        self._send, self._receive = anyio.create_memory_object_stream[bytes](10)
        self.closed = False

    async def send(self, item: bytes) -> None:
        await self._send.send(item)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self._receive.receive()

    async def send_eof(self) -> None:
        await self._send.aclose()

    async def aclose(self) -> None:
        self.closed = True
        await self._send.aclose()
        await self._receive.aclose()


class Ports:
    """The machines' ports: `open` ones take connections; all that was dialled is in `dialled`."""

    def __init__(self, *addresses: str) -> None:
        self.open = set(addresses)
        self.dialled: list[tuple[str, int]] = []
        self.streams: list[Echo] = []

    async def dial(self, host: str, port: int) -> ByteStream:
        self.dialled.append((host, port))
        if host not in self.open:
            raise ConnectionRefusedError("refused")
        self.streams.append(Echo())
        return self.streams[-1]


@asynccontextmanager
async def to_port(
    worker: SimWorker, ports: Ports, machine_id: str, port: int = 5432
) -> AsyncIterator[SocketChannel[Any, Any]]:
    async with answering(worker, ports).socket(
        MACHINE_PORT, PortRequest(port=port), params=params(machine_id)
    ) as channel:
        yield channel


def answering(worker: SimWorker, ports: Ports) -> InProcessCaller:
    deps = worker.parts.deps
    handlers, machines = Handlers(), MachineFinder(deps.store, deps.table, worker.parts.apps)
    handlers.add(MachinePortHandlers(machines, deps.driver, ports.dial))
    return InProcessCaller(handlers, deps.clock, "alice")


async def test_a_port_is_dialled_at_the_machines_own_address_and_bytes_go_both_ways(worker: SimWorker) -> None:
    machine_id = await worker.started()
    private_ip = worker.record(machine_id).network.private_ip
    ports = Ports(private_ip)
    async with to_port(worker, ports, machine_id) as channel:
        assert await channel.receive() == PortOpened(address=private_ip)
        await channel.send(PortData(data=b"hello"))
        got = [await channel.receive(), await channel.receive()]
        assert PortData(data=b"hello") in got and PortTaken(count=5) in got
        await channel.send(PortEnd())
        assert await channel.receive() == PortEnd()
    assert ports.dialled[-1] == (private_ip, 5432) and ports.streams[0].closed


async def test_a_closed_port_says_where_a_program_has_to_listen(worker: SimWorker) -> None:
    machine_id = await worker.started()
    async with to_port(worker, Ports(), machine_id) as channel:
        with pytest.raises(Unavailable, match=r"no connection on port 5432.*0\.0\.0\.0 or ::"):
            await channel.receive()


async def test_a_connection_to_a_stopped_machine_says_its_state(worker: SimWorker) -> None:
    machine_id = await worker.stopped()
    async with to_port(worker, Ports(), machine_id) as channel:
        with pytest.raises(WrongState, match="is stopped"):
            await channel.receive()


async def test_a_connection_to_no_machine_is_not_found(worker: SimWorker) -> None:
    caller = answering(worker, Ports())
    wanted = MachineParams(app_name="stall", machine_id="00000000000000")
    async with caller.socket(MACHINE_PORT, PortRequest(port=1), params=wanted) as channel:
        with pytest.raises(NotFound):
            await channel.receive()


async def test_connections_of_one_app_are_bounded_and_one_that_ends_makes_room(worker: SimWorker) -> None:
    machine_id = await worker.started()
    ports = Ports(worker.record(machine_id).network.private_ip)
    caller = answering(worker, ports)

    async def opened(stack: AsyncExitStack) -> None:
        channel = await stack.enter_async_context(
            caller.socket(MACHINE_PORT, PortRequest(port=1), params=params(machine_id))
        )
        assert isinstance(await channel.receive(), PortOpened)

    async with AsyncExitStack() as stack:
        for _ in range(PORT_CONNECTIONS.each):
            await opened(stack)
        with pytest.raises(OverShare):
            await opened(stack)
    assert all(each.closed for each in ports.streams)
    async with AsyncExitStack() as stack:
        await opened(stack)


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


async def test_a_port_of_udp_is_another_one_than_that_of_tcp(worker: SimWorker) -> None:
    services = [WEB | {"protocol": protocol} for protocol in ("tcp", "udp")]
    record = worker.record(await worker.started(services=services, metadata={PUBLISH: "*"}))
    datagrams = tuple(msgspec.structs.replace(each, udp=True) for each in state())
    found = {each.protocol: each.listening for each in published_ports(record, HOSTS, datagrams)}
    assert found == {"tcp": False, "udp": True}
    other = tuple(msgspec.structs.replace(each, udp=True) for each in state("other"))
    assert "another app" in list(published_ports(record, HOSTS, other))[1].refused


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
        ("udp://[::1]:53", "::1", 53, False),
    ],
)
def test_a_url_says_where_a_client_goes(url: str, host: str, port: int, tls: bool) -> None:
    found = place_of(url)
    assert (found.host, found.port, found.tls, found.udp) == (host, port, tls, url.startswith("udp"))


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


async def test_an_explanation_says_which_edge_was_asked(worker: SimWorker) -> None:
    asked: list[AskedRequest] = []

    async def explain(
        app: str, host: str, port: int, *, tls: bool, udp: bool, request: AskedRequest
    ) -> tuple[ExplainedDoor, ...]:
        asked.append(request)
        return (ExplainedDoor(address="::1", port=port, speaks="http", outcome="goes on", notes=("PUT: again",)),)

    parts = worker.parts
    line = SimpleNamespace(explain=explain)
    machines = MachineFinder(parts.deps.store, parts.deps.table, parts.apps)
    handlers = Handlers()
    PublishedPortHandlers(parts.node, parts.deps.store, parts.apps, machines, cast(EdgeLine, line), ()).bind(handlers)
    api = InProcessCaller(handlers, parts.deps.clock, "ann")
    query = ExplainQuery(url="http://shop/a?b=c", method="PUT", header={"fly-prefer-region": "ams,iad"})
    said = await api.call(EXPLAIN_ROUTE, params=AppParams(app_name=APP), query=query)
    assert (said.node, said.region) == (parts.node.id, parts.node.region)
    assert [each.notes for each in said.listeners] == [("PUT: again",)]
    assert asked == [AskedRequest(method="PUT", target="/a?b=c", fields=(("fly-prefer-region", "ams,iad"),))]


@pytest.mark.parametrize(
    ("said", "match"),
    [
        ({"header": {"a b": "c"}}, "header: 'a b'"),
        ({"header": {"a": "b\r\nc: d"}}, "header: 'a'"),
        ({"method": "GET\n"}, "header: 'method'"),
        ({"replay": "a\0"}, "header: 'replay'"),
        ({"source": "here"}, "source: 'here'"),
    ],
)
def test_words_that_no_client_could_say_are_refused(said: dict[str, Any], match: str) -> None:
    with pytest.raises(Unprocessable, match=match):
        request_of(ExplainQuery(url="http://shop", **said))


def owned(ip: str, port: int = 80, refused: str = "") -> ListenState:
    return ListenState(address=ip, port=port, app=AppName(APP), owned=True, refused=refused)


def test_an_address_that_an_app_has_alone_is_up_while_the_edge_listens_there() -> None:
    states = (
        owned("2001:db8::7"),
        owned("203.0.113.20", refused="Cannot assign requested address"),
        owned("203.0.113.7", 22, refused="in use by another program of this host"),
        owned("203.0.113.7"),
        owned("203.0.113.7", 443, refused="in use by another program of this host"),
        owned("fdaa:0:18:5d1d:1f17:3d8f:1c2:2"),
        *state(),
    )
    found = edge_addresses(states, leaving=False)
    assert [(each.ip, each.up, each.why) for each in found] == [
        ("203.0.113.7", True, ""),
        ("203.0.113.20", False, "Cannot assign requested address"),
        ("2001:db8::7", True, ""),
    ], "neither a private one nor what machines publish at an address of the host"


async def test_an_address_is_down_while_its_node_drains(worker: SimWorker) -> None:
    async def report() -> EdgeReport:
        return EdgeReport(call=1, bound=(owned("203.0.113.7"),))

    parts, store = worker.parts, worker.parts.deps.store
    machines, line = MachineFinder(store, parts.deps.table, parts.apps), SimpleNamespace(report=report, is_up=True)
    handlers = Handlers()
    PublishedPortHandlers(parts.node, store, parts.apps, machines, cast(EdgeLine, line), ()).bind(handlers)
    api = InProcessCaller(handlers, parts.deps.clock, "ann")
    (found,) = await api.call(LIST_EDGE_ADDRESSES)
    assert (found.app, found.up) == (APP, True)
    leaving = msgspec.structs.replace(parts.node, draining=True)
    await store.write(lambda tx: tx.put(NODE, "self", leaving))
    (found,) = await api.call(LIST_EDGE_ADDRESSES)
    assert (found.up, found.why) == (False, "the node is draining")


async def test_an_address_is_neither_up_nor_down_where_the_edge_is_not_there(worker: SimWorker) -> None:
    with pytest.raises(WrongState, match="edge"):
        await worker.api.call(LIST_EDGE_ADDRESSES)
