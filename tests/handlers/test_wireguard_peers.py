"""Who may see and change an organization's peers. What becomes of one is in tests/netpolicy/test_wireguard_peers.py."""

import base64
from typing import Any

import pytest

from hawker.api.contract.org import OrgParams
from hawker.api.contract.private_network import WireguardPeerParams, WireguardPeerRequest
from hawker.api.grant import Everything
from hawker.api.route import Call, NoQuery
from hawker.auth.caveat import Actions, Apps, Caveat, Orgs
from hawker.errors import Forbidden
from hawker.handlers.wireguard_peers import WireguardHandlers
from hawker.ids import NodeId
from hawker.netpolicy.wireguard_peers import GatewayFacts
from hawker.permission import Attempt
from hawker.record.app import WIREGUARD_PEERS
from hawker.sim.node.sim_worker import SimWorker

pytestmark = pytest.mark.anyio
KEY = base64.b64encode(bytes(31) + b"\1").decode()


class Limited(Everything):
    """The grant of a token with these caveats."""

    def __init__(self, *caveats: Caveat) -> None:
        super().__init__(root=False)
        self._caveats = caveats

    def check(self, attempt: Attempt) -> None:
        if not all(caveat.allows(attempt) for caveat in self._caveats):
            raise Forbidden("not for you")


@pytest.fixture
def handlers(worker: SimWorker) -> WireguardHandlers:
    facts = GatewayFacts("gateway.example.com:51820", "public")
    return WireguardHandlers(NodeId("a" * 14), worker.store, worker.parts.deps.clock, lambda: facts, in_fleet=False)


def call(params: Any, grant: Limited, body: Any = None) -> Call[Any, Any, Any]:
    return Call(params=params, query=NoQuery(), body=body, grant=grant, request_id="r")


async def put(handlers: WireguardHandlers, grant: Limited) -> None:
    params = WireguardPeerParams(org_slug="ada", peer="laptop")
    await handlers.put(call(params, grant, WireguardPeerRequest(pubkey=KEY)))


async def test_a_token_of_the_organization_brings_lists_and_removes_a_peer(handlers: WireguardHandlers) -> None:
    own = Limited(Orgs(("ada",)))
    await put(handlers, own)
    listed = await handlers.list_(call(OrgParams(org_slug="ada"), own))
    assert [(peer.name, peer.peer_pubkey) for peer in listed.peers] == [("laptop", KEY)]
    await handlers.delete(call(WireguardPeerParams(org_slug="ada", peer="laptop"), own))
    assert (await handlers.list_(call(OrgParams(org_slug="ada"), own))).peers == ()


@pytest.mark.parametrize("caveat", [Orgs(("eve",)), Apps(("shop",)), Actions("r")], ids=str)
async def test_another_organization_an_app_and_a_reader_are_refused(
    handlers: WireguardHandlers, worker: SimWorker, caveat: Caveat
) -> None:
    with pytest.raises(Forbidden):
        await put(handlers, Limited(caveat))
    assert not list(worker.store.scan(WIREGUARD_PEERS))
    await put(handlers, Limited(Orgs(("ada",))))
    with pytest.raises(Forbidden):
        await handlers.delete(call(WireguardPeerParams(org_slug="ada", peer="laptop"), Limited(caveat)))
    assert len(list(worker.store.scan(WIREGUARD_PEERS))) == 1
    if not isinstance(caveat, Actions):
        with pytest.raises(Forbidden):
            await handlers.list_(call(OrgParams(org_slug="ada"), Limited(caveat)))
