"""A broker as it is put together from a node's directory: any number of them, and nothing is theirs alone."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from hawker.api.client import Client
from hawker.api.contract.app import GET_APP, LIST_APPS, AppParams
from hawker.api.contract.node import HEALTH, METRICS
from hawker.api.contract.token import CURRENT_TOKENS, LIST_REVOKED, REVOKE_TOKEN, RevokeTokenRequest
from hawker.api.listener import listening
from hawker.api.routes import PEER_ROUTES, ROUTES
from hawker.api.server import Server
from hawker.auth.macaroon import key_of, mint, to_text
from hawker.auth.peer_key import PeerTokens
from hawker.clock import ManualClock, SystemClock
from hawker.cluster import found_cluster, write_cluster
from hawker.errors import CannotStart, Unauthorized, Unavailable
from hawker.log import Secret
from hawker.place import Place
from hawker.settings import Settings
from hawker.up.broker import broker_server
from tests.api.serving import Fake
from tests.gateway.catalogs import A, Files

pytestmark = pytest.mark.anyio

ROOT = "hwk_1"
SHOP = AppParams(app_name="shop")


class Node:
    """A node's directory, and its API between nodes, whose answers are samples."""

    def __init__(self, directory: Path) -> None:
        self.place, self.fake = Place(directory), Fake()
        self.clock = SystemClock()
        self.cluster = found_cluster(self.clock, advertise="127.0.0.1", peer_port=1)
        write_cluster(self.place.cluster, self.cluster)
        self.place.token.write_text(f"{ROOT}\n")
        self.place.remember(A)
        self.files = _Catalog(self.place)
        self.files.row("apps", A, name="shop", org="personal", home=1)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        ring = self.cluster.keyring
        tokens = PeerTokens(lambda: tuple(ring.secrets.values()), Secret(ROOT))
        routes = (*ROUTES, *PEER_ROUTES)
        server = Server(self.fake.handlers(routes), tokens, self.clock, routes=routes, between_nodes=True)
        async with listening(server, "127.0.0.1", 0) as url:
            self.files.row("nodes", A, region="mad", api=url)
            yield

    @asynccontextmanager
    async def broker(self, token: str = ROOT) -> AsyncIterator[Client]:
        async with AsyncExitStack() as stack:
            server = broker_server(Settings(data_dir=self.place.root), self.clock, stack)
            url = await stack.enter_async_context(listening(server, "127.0.0.1", 0))
            yield await stack.enter_async_context(Client(url, Secret(token)))


class _Catalog(Files):
    def __init__(self, place: Place) -> None:
        super().__init__(place.root, ManualClock())
        self._place = place

    def path(self, node: object) -> Path:
        return self._place.catalog


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_ten_brokers_of_one_node_answer_alike(node: Node) -> None:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(node.serving())
        brokers = [await stack.enter_async_context(node.broker()) for _ in range(10)]
        answers = [await broker.call(GET_APP, params=SHOP) for broker in brokers]
        assert len(answers) == 10 and len({answer.id for answer in answers}) == 1
        assert {call.caller for call in node.fake.calls} == {"root"}


async def test_a_broker_has_metrics_of_its_own_and_answers_while_its_node_is_away(node: Node) -> None:
    async with node.serving():
        pass
    async with node.broker() as broker:
        assert (await broker.call(HEALTH)).status == "ok"
        assert "hawker_build_info" in await broker.call(METRICS)
        with pytest.raises(Unavailable, match=f"node {A} in region mad cannot be reached"):
            await broker.call(LIST_APPS)


async def test_a_token_that_was_ended_at_one_broker_is_ended_at_all(node: Node) -> None:
    token = mint(key_of(ROOT), bytes(16), int(node.clock.now()))
    async with node.serving(), node.broker() as one:
        async with node.broker(to_text(token)) as narrow:
            assert (await narrow.call(CURRENT_TOKENS)).tokens[0].token_id == token.id
            node.files.row("revoked_tokens", A, token_id=token.id, at=1.0, by="root")
        async with node.broker(to_text(token)) as narrow:
            with pytest.raises(Unauthorized):
                await narrow.call(CURRENT_TOKENS)
        (listed,) = (await one.call(LIST_REVOKED)).tokens
        assert listed.token_id == token.id


async def test_a_broker_has_its_node_write_down_what_it_ends(node: Node) -> None:
    token = mint(key_of(ROOT), bytes(16), int(node.clock.now()))
    async with node.serving(), node.broker() as one:
        await one.call(REVOKE_TOKEN, body=RevokeTokenRequest(token_id=token.id, note="lost"))
        (call,) = node.fake.calls
        assert call.body == RevokeTokenRequest(token_id=token.id, note="lost")


async def test_a_directory_without_a_node_in_a_cluster_is_refused(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        with pytest.raises(CannotStart, match="a broker serves a node in a cluster"):
            broker_server(Settings(data_dir=tmp_path), SystemClock(), stack)


async def test_beside_an_agent_it_says_what_to_do(node: Node) -> None:
    answers = "`hawker up` answers clients itself"
    async with AsyncExitStack() as stack:
        with pytest.raises(CannotStart, match=answers):
            told = Settings(data_dir=node.place.root, catalog_url="http://127.0.0.1:8080")
            broker_server(told, node.clock, stack)
        node.place.catalog.rename(node.place.root / "elsewhere")
        with pytest.raises(CannotStart, match=answers):
            broker_server(Settings(data_dir=node.place.root), node.clock, stack)
