"""Bodies about people's own computers in private networks: peers of WireGuard at a node that is a gateway."""

from datetime import datetime
from types import NoneType

import msgspec

from hawker.api.contract.body import Answer, Request
from hawker.api.contract.org import OrgParams
from hawker.api.route import Rate, Tag, Unary
from hawker.errors import NotFound, NotServed, Unavailable, Unprocessable
from hawker.permission import Action


class WireguardPeerRequest(Request, frozen=True, kw_only=True):
    """`pubkey` is the peer's public key, base64; its private one stays where it was made. Without `network` it is in
    the organization's default network."""

    pubkey: str
    network: str | None = None


class WireguardPeer(Answer, frozen=True, kw_only=True):
    """What a configuration of WireGuard needs: `peerip` is the peer's address, `pubkey` and `endpoint` are the
    gateway's. The peer may send to `allowed_ips` alone; `dns` answers names of its network."""

    name: str
    org: str
    network: str
    peerip: str
    dns: str
    endpoint: str
    pubkey: str
    allowed_ips: str
    peer_pubkey: str
    node: str
    created_at: datetime


class WireguardPeerList(Answer, frozen=True, kw_only=True):
    peers: tuple[WireguardPeer, ...]


class WireguardPeerParams(msgspec.Struct, frozen=True, kw_only=True):
    """`peer` is a name: lower-case letters, digits and dashes."""

    org_slug: str
    peer: str


_ALL = "/hawker/v1/orgs/{org_slug}/peers"
_ONE = f"{_ALL}/{{peer}}"

LIST_PEERS = Unary(
    name="list_wireguard_peers",
    method="GET",
    path=_ALL,
    params=OrgParams,
    response=WireguardPeerList,
    tag=Tag.APPS,
    summary="List an organization's WireGuard peers at this node",
    errors=(NotServed,),
    guarded=False,
)

PUT_PEER = Unary(
    name="put_wireguard_peer",
    method="PUT",
    path=_ONE,
    params=WireguardPeerParams,
    body=WireguardPeerRequest,
    response=WireguardPeer,
    tag=Tag.APPS,
    summary="Let a WireGuard peer into a private network of an organization",
    errors=(NotServed, Unavailable, Unprocessable),
    guarded=False,
    action=Action.CONTROL,
    rate=Rate.USUAL,
    strict=True,
)

DELETE_PEER = Unary(
    name="delete_wireguard_peer",
    method="DELETE",
    path=_ONE,
    params=WireguardPeerParams,
    response=NoneType,
    tag=Tag.APPS,
    summary="Let a WireGuard peer in no more",
    status=204,
    errors=(NotFound, NotServed),
    guarded=False,
    action=Action.CONTROL,
    rate=Rate.USUAL,
)

WIREGUARD_ROUTES = (LIST_PEERS, PUT_PEER, DELETE_PEER)
