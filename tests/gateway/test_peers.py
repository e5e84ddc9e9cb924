"""The way to other nodes over HTTP, as it is: tokens, names, connections, what is lost."""

import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from hawker.api.audit import Auditor
from hawker.api.call_metadata import CallMetadata
from hawker.api.client import Client
from hawker.api.contract.catalog import QUERY_CATALOG
from hawker.api.contract.cluster import (
    ADD_KEY,
    ADMIT_HOST,
    CREATE_INVITE,
    JOIN_CLUSTER,
    LIST_KEYS,
    REMOVE_KEY,
    USE_KEY,
)
from hawker.api.contract.exec import MACHINE_LOGS, MACHINE_TERMINAL, Exited, Input, LogsQuery, TerminalRequest
from hawker.api.contract.image import IMPORT_IMAGE, PULL_IMAGE
from hawker.api.contract.machine import GET_MACHINE, MachineParams
from hawker.api.contract.machine_operation import STOP_MACHINE
from hawker.api.contract.node import BACK_UP, HEALTH
from hawker.api.contract.token import AUTHENTICATE_TOKEN, CREATE_DEPLOY_TOKEN, REVOKE_TOKEN
from hawker.api.directory import Node
from hawker.api.handlers import Handlers
from hawker.api.listener import listening
from hawker.api.route import AnyRoute, Call, Stream, Unary
from hawker.api.routes import PEER_ROUTES, ROUTES, asked_by_nodes
from hawker.api.server import Server, share_of
from hawker.audit.audit_log import AuditLog, lines, read_line
from hawker.auth.audit_trail import AuditTrail
from hawker.auth.caveat import Apps, Holder
from hawker.auth.macaroon import key_of, mint, narrow, to_text
from hawker.auth.node_certificate import NodePapers
from hawker.auth.peer_key import PeerTokens
from hawker.auth.tokens import Tokens
from hawker.clock import SystemClock
from hawker.errors import Fault, Forbidden, NotFound, Unauthorized, Unavailable, WrongState
from hawker.fair.turns import NODE
from hawker.gateway.fan_out import FanOut, Reach
from hawker.gateway.forwarding import Forwarding
from hawker.gateway.owners import HomeElection, Owners
from hawker.gateway.peers import BesidePeers, HttpPeers
from hawker.http.message import OriginTls
from hawker.http.mutual_tls import MutualTls, name_of
from hawker.ids import AppName, NodeId
from hawker.log import Secret
from tests.api.samples import sample
from tests.api.serving import Fake, served
from tests.ports import free_port

pytestmark = pytest.mark.anyio

KEY, ROOT = bytes(32), Secret("hwk_root")
FAR = NodeId("0000000f")
PAPERS = MutualTls(NodePapers(FAR, lambda: (KEY,)))
HERE = NodeId("00000001")
PARAMS = MachineParams(app_name="a/b", machine_id="0" * 14)
ANY: tuple[AnyRoute, ...] = (*ROUTES, *PEER_ROUTES)


@dataclass(slots=True)
class Map:
    """A directory of one far node that has everything."""

    urls: dict[NodeId, str] = field(default_factory=dict)
    region: str = "mad"

    def nodes(self) -> list[Node]:
        return [Node(id=FAR, region="ams", labels={})]

    def node(self, node_id: NodeId) -> Node | None:
        return self.nodes()[0] if node_id == FAR else None

    def owner_of_machine(self, machine_id: str, app: AppName | None = None) -> NodeId | None:
        return FAR

    def owner_of_volume(self, volume_id: str) -> NodeId | None:
        return FAR

    def nodes_of_app(self, app: AppName) -> list[NodeId]:
        return [FAR]

    def home_of_app(self, app: AppName) -> NodeId | None:
        return FAR

    async def caught_up(self, token: str, *, timeout_s: float) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Far:
    """A far node's API between nodes, whose handlers are `fake`'s; `map` leads there."""

    fake: Fake
    map: Map
    peers: HttpPeers
    tokens: PeerTokens


@asynccontextmanager
async def far_node(
    fake: Fake,
    *,
    key: bytes = KEY,
    ca: bytes = KEY,
    me: NodeId = FAR,
    handlers: Handlers | None = None,
    auditor: Auditor | None = None,
) -> AsyncIterator[Far]:
    async def written() -> str:
        return f"{FAR}:1:7"

    tokens = PeerTokens(lambda: (key,), ROOT)
    answers = handlers or fake.handlers(ANY)
    server = Server(answers, tokens, SystemClock(), routes=ANY, written=written, between_nodes=True, auditor=auditor)
    async with listening(server, "127.0.0.1", 0, MutualTls(NodePapers(FAR, lambda: (ca,)))) as url:
        assert url.startswith("https://")
        there = Map({FAR: url})
        peers = HttpPeers(there.urls.get, PeerTokens(lambda: (KEY,)).own, me=me, tls=PAPERS)
        try:
            yield Far(fake, there, peers, tokens)
        finally:
            await peers.close()


def passing_handlers(far: Far) -> Handlers:
    """A broker that passes everything to the far node, and what nodes may not ask of each other with the root token."""
    reach = Reach(far.map, far.peers)
    asking = FanOut(reach)
    owners = Owners(far.map, asking, SystemClock())
    homes = HomeElection(owners, asking, lambda node: False)
    passing = Forwarding(owners, reach, HERE, homes)
    own = Forwarding(owners, Reach(far.map, far.peers.own(ROOT)), FAR, homes)

    async def choose(call: Call[Any, Any, Any]) -> NodeId:
        return FAR

    handlers = Handlers()
    for route in ROUTES:
        (passing if asked_by_nodes(route) else own).bind(handlers, route, choose)
    return handlers


async def data() -> AsyncIterator[bytes]:
    yield b"abc"
    yield b"def"


async def test_every_kind_of_call_goes_through_with_all_that_came_along() -> None:
    fake = Fake()
    async with far_node(fake) as far, served(passing_handlers(far)) as front:
        metadata = CallMetadata()
        await front.client.call(GET_MACHINE, params=PARAMS, nonce="n", idempotency_key="k")
        await front.client.call(STOP_MACHINE, params=PARAMS, body=sample(STOP_MACHINE.body), metadata=metadata)
        async with front.client.stream(MACHINE_LOGS, params=PARAMS, query=LogsQuery(tail=3)) as lines:
            assert [line async for line in lines] == [sample(MACHINE_LOGS.response)] * 2
        await front.client.upload(IMPORT_IMAGE, data())
        request = TerminalRequest(command=("cat",))
        async with front.client.socket(MACHINE_TERMINAL, request, params=PARAMS) as channel:
            await channel.send(Input(data=b"x"))
            assert await channel.receive() == sample(MACHINE_TERMINAL.response)
    got, stopped, logs, _, terminal = fake.calls
    assert (got.params, got.nonce, got.idempotency_key) == (PARAMS, "n", "k")
    assert stopped.body == sample(STOP_MACHINE.body) and metadata.version == f"{FAR}:1:7"
    assert (logs.query, terminal.body) == (LogsQuery(tail=3), request)
    assert fake.heard == [b"abcdef", Input(data=b"x")]
    assert {call.caller for call in fake.calls} == {"alice"}


async def test_the_other_sides_errors_are_its_own_words() -> None:
    fake = Fake(error=WrongState("not now"))
    async with far_node(fake) as far, served(passing_handlers(far)) as front:
        with pytest.raises(WrongState, match="not now"):
            await front.client.call(STOP_MACHINE, params=PARAMS)
        with pytest.raises(WrongState, match="not now"):
            async with front.client.stream(MACHINE_LOGS, params=PARAMS):
                pass
        with pytest.raises(WrongState, match="not now"):
            async with front.client.socket(MACHINE_TERMINAL, TerminalRequest(command=("cat",)), params=PARAMS) as there:
                await there.receive()
        fake.error = NotFound("nothing here")
        with pytest.raises(NotFound, match="nothing here"):
            await front.client.upload(IMPORT_IMAGE, data())


async def test_a_conversation_ends_with_either_end() -> None:
    fake = Fake()
    handlers = fake.handlers([route for route in ANY if route is not MACHINE_TERMINAL])
    ended = anyio.Event()

    async def talk(call: Any, channel: Any) -> None:
        message = await channel.receive()
        if message is None:
            ended.set()
            return
        await channel.send(Exited(exit_code=3, signal=0))

    handlers.socket(MACHINE_TERMINAL, talk)
    request = TerminalRequest(command=("cat",))
    async with far_node(fake, handlers=handlers) as far, served(passing_handlers(far)) as front:
        async with front.client.socket(MACHINE_TERMINAL, request, params=PARAMS) as channel:
            await channel.send(Input(data=b"x"))
            assert await channel.receive() == Exited(exit_code=3, signal=0)
            assert await channel.receive() is None
        async with front.client.socket(MACHINE_TERMINAL, request, params=PARAMS):
            pass
        with anyio.fail_after(30):
            await ended.wait()


async def test_a_node_that_is_away_is_named_whatever_the_call() -> None:
    async with far_node(Fake()) as far, served(passing_handlers(far)) as front:
        far.map.urls[FAR] = f"http://127.0.0.1:{free_port()}"
        calls = [
            front.client.call(GET_MACHINE, params=PARAMS),
            front.client.call(STOP_MACHINE, params=PARAMS),
            front.client.upload(IMPORT_IMAGE, data()),
        ]
        for call in calls:
            with pytest.raises(Unavailable, match=f"node {FAR} in region ams cannot be reached: nothing was done"):
                await call
        with pytest.raises(Unavailable, match=FAR):
            async with front.client.stream(MACHINE_LOGS, params=PARAMS):
                pass


async def test_a_connection_that_breaks_off_is_a_fault_after_a_write_only() -> None:
    async def slam(stream: Any) -> None:
        async with stream:
            await stream.receive()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with far_node(Fake()) as far, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, slam)
        far.map.urls[FAR] = f"http://127.0.0.1:{port}"
        async with served(passing_handlers(far)) as front:
            with pytest.raises(Fault, match="may have taken effect"):
                await front.client.call(STOP_MACHINE, params=PARAMS)
            with pytest.raises(Unavailable, match="was lost"):
                await front.client.call(GET_MACHINE, params=PARAMS)
        tasks.cancel_scope.cancel()
    await listener.aclose()


async def test_a_node_of_another_key_does_nothing_and_the_client_is_not_blamed() -> None:
    fake = Fake()
    async with far_node(fake, key=bytes([9] * 32)) as far, served(passing_handlers(far)) as front:
        with pytest.raises(Unavailable, match="key of the cluster: nothing was done"):
            await front.client.call(STOP_MACHINE, params=PARAMS)
    assert not fake.calls


async def test_a_stranger_in_a_nodes_place_is_told_nothing() -> None:
    """One of another cluster, another node of this one, and one without TLS."""
    fake = Fake()
    for far in (far_node(fake, ca=bytes([9] * 32)), far_node(fake)):
        async with far as there:
            other = NodeId("cccccccc")
            there.map.urls[other] = there.map.urls[FAR]
            with pytest.raises(Unavailable, match="certificate"):
                await there.peers.caller(other, behalf="ann").call(GET_MACHINE, params=PARAMS)
            with pytest.raises(Unavailable, match="certificate"):
                async with there.peers.caller(other, behalf="ann").stream(MACHINE_LOGS, params=PARAMS):
                    pass
    assert not fake.calls


async def test_a_caller_without_a_certificate_is_not_heard() -> None:
    fake = Fake()
    async with far_node(fake) as far:
        url, token = far.map.urls[FAR], far.peers._token()
        blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
        foreign = MutualTls(NodePapers(FAR, lambda: (bytes([9] * 32),))).client()
        foreign.check_hostname, foreign.verify_mode = False, ssl.CERT_NONE
        for context in (blind, foreign):
            async with Client(url, token, tls=OriginTls(lambda: context, name_of(FAR))) as stranger:  # noqa: B023
                with pytest.raises((Unavailable, Fault)):
                    await stranger.call(GET_MACHINE, params=PARAMS)
        async with Client(url.replace("https", "http"), token) as plain:
            with pytest.raises((Unavailable, Fault)):
                await plain.call(GET_MACHINE, params=PARAMS)
    assert not fake.calls


async def test_a_node_calls_in_its_own_name_only() -> None:
    async with far_node(Fake(), me=HERE) as far:
        with pytest.raises(Forbidden, match="that of node"):
            await far.peers.caller(FAR, behalf="ann").call(GET_MACHINE, params=PARAMS)
        with pytest.raises(Forbidden, match="that of node"):
            async with far.peers.caller(FAR, behalf="ann").socket(
                MACHINE_TERMINAL, sample(MACHINE_TERMINAL.body), params=PARAMS
            ):
                pass
    assert not far.fake.calls


async def test_a_node_that_moved_is_called_at_its_new_address() -> None:
    one, two = Fake(), Fake()
    async with far_node(one) as far, far_node(two) as other:
        await far.peers.caller(FAR, behalf="ann").call(GET_MACHINE, params=PARAMS)
        far.map.urls[FAR] = other.map.urls[FAR]
        await far.peers.caller(FAR, behalf="bob \r\n ü").call(GET_MACHINE, params=PARAMS)
    assert [call.caller for call in one.calls] == ["ann"]
    assert [call.caller for call in two.calls] == ["bob \r\n ü"]


async def test_whoever_knows_a_node_says_where_it_is() -> None:
    one = Fake()
    async with far_node(one) as far:
        url = far.map.urls.pop(FAR)
        far.peers.ask_also({FAR: url}.get)
        await far.peers.caller(FAR, behalf="ann").call(GET_MACHINE, params=PARAMS)
    assert [call.caller for call in one.calls] == ["ann"]


async def test_a_node_that_nobody_knows_cannot_be_called() -> None:
    with pytest.raises(Unavailable, match="not known where"):
        HttpPeers(lambda node: None, PeerTokens(lambda: (KEY,)).own, me=HERE).caller(FAR, behalf="ann")


async def test_clients_are_kept_for_the_nodes_that_were_called_last() -> None:
    peers = HttpPeers(lambda node: f"http://{node}", PeerTokens(lambda: (KEY,)).own, me=HERE, most_nodes=2)
    for name in "abca":
        peers.caller(NodeId(name), behalf="ann")
    assert [way.node for way in peers._clients] == ["c", "a"]
    await peers.close()


async def test_the_worker_beside_is_called_without_http() -> None:
    fake = Fake()
    others = HttpPeers(lambda node: None, PeerTokens(lambda: (KEY,)).own, me=HERE)

    async def written() -> str:
        return "there"

    metadata, peers = CallMetadata(), BesidePeers(HERE, fake.handlers(ANY), SystemClock(), others, written)
    await peers.caller(HERE, behalf="ann").call(STOP_MACHINE, params=PARAMS, metadata=metadata)
    assert fake.calls[0].caller == "ann" and metadata.version == "there"
    with pytest.raises(Unavailable):
        peers.caller(FAR, behalf="ann")


_TABOO = (JOIN_CLUSTER, CREATE_INVITE, ADD_KEY, USE_KEY, REMOVE_KEY, LIST_KEYS, CREATE_DEPLOY_TOKEN, REVOKE_TOKEN)


@pytest.mark.parametrize("route", _TABOO, ids=lambda route: route.name)
async def test_the_token_between_nodes_buys_no_key_and_no_token(route: Unary[Any, Any, Any, Any]) -> None:
    async with far_node(Fake()) as far:
        fields = route.params.__struct_fields__
        params = route.params(**dict.fromkeys(fields, "1"))
        with pytest.raises(Forbidden, match="nodes may not ask this of each other: it takes the root token"):
            await far.peers.caller(FAR, behalf="root").call(route, params=params, body=sample(route.body))
        assert not far.fake.calls
        await far.peers.own(ROOT).caller(FAR, behalf="root").call(route, params=params, body=sample(route.body))
        assert far.fake.calls[0].grant.root


async def test_the_token_between_nodes_copies_no_store_and_no_image() -> None:
    async with far_node(Fake()) as far:
        streams: tuple[Stream[Any, Any, Any, Any], ...] = (BACK_UP, QUERY_CATALOG, PULL_IMAGE)
        for route in streams:
            with pytest.raises(Forbidden):
                async with far.peers.caller(FAR, behalf="root").stream(route, body=sample(route.body)):
                    pass


async def test_nothing_is_answered_without_a_token_between_nodes() -> None:
    async with (
        far_node(Fake()) as far,
        Client(far.map.urls[FAR], tls=OriginTls(PAPERS.client, name_of(FAR))) as stranger,
    ):
        open_to_all: tuple[Unary[Any, Any, Any, Any], ...] = (HEALTH, ADMIT_HOST, AUTHENTICATE_TOKEN)
        for route in open_to_all:
            with pytest.raises(Unauthorized):
                await stranger.call(route, body=sample(route.body))
        async with aiohttp.ClientSession() as http:
            page = f"{far.map.urls[FAR]}/openapi.json"
            async with http.get(page, ssl=PAPERS.client(), server_hostname=name_of(FAR)) as answer:
                assert answer.status == 404


async def test_a_name_in_a_header_makes_no_root_of_a_node() -> None:
    async with far_node(Fake()) as far:
        await far.peers.caller(FAR, behalf="root").call(GET_MACHINE, params=PARAMS)
        assert far.fake.calls[0].caller == "root" and not far.fake.calls[0].grant.root


async def test_a_call_that_is_passed_on_counts_for_its_token_and_is_told_with_it(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit", SystemClock(), 1 << 24)
    log.open()
    given = narrow(mint(key_of(ROOT.reveal()), bytes(16), 0), Apps(("a/b",)))
    shown = [narrow(given, Holder(name)) for name in ("root", "ann", "bob")]
    tokens = Tokens(ROOT, SystemClock(), lambda ids: False, lambda app: None)
    async with far_node(Fake(), auditor=AuditTrail(log, SystemClock())) as far:
        front = Server(passing_handlers(far), tokens, SystemClock())
        async with listening(front, "127.0.0.1", 0) as url:
            for token in shown:
                async with Client(url, Secret(to_text(token))) as client:
                    await client.call(STOP_MACHINE, params=PARAMS)
    first_id = mint(key_of(ROOT.reveal()), bytes(16), 0).id
    grants = [call.grant for call in far.fake.calls]
    assert [grant.name for grant in grants] == [f"token {shown[0].id}", "ann", "bob"]
    assert [share_of(grant, {}) for grant in grants] == [f"token {first_id}"] * 3
    entries = [read_line(line) for line in lines(tmp_path / "audit")]
    assert [(entry.who, entry.tokens) for entry in entries] == [
        (grant.name, (token.id,)) for grant, token in zip(grants, shown, strict=True)
    ]


async def test_a_node_of_an_older_version_names_its_caller_only() -> None:
    async with far_node(Fake()) as far:
        await far.peers.caller(FAR, behalf="ann").call(GET_MACHINE, params=PARAMS)
        await far.peers.caller(FAR, behalf="root").call(GET_MACHINE, params=PARAMS)
    assert [share_of(call.grant, {}) for call in far.fake.calls] == ["ann", NODE]


async def test_each_call_names_the_node_that_makes_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "hawker.api"):
        async with far_node(Fake()) as far:
            await far.peers.caller(FAR, behalf="ann").call(GET_MACHINE, params=PARAMS)
    assert [vars(record)["node"] for record in caplog.records if record.message == "request"] == [FAR]
