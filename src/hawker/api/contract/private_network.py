"""Bodies about private networks: people's own computers in them (peers of WireGuard at a node that is a gateway), and
what nodes of different regions tell each other of names there.
"""

from datetime import datetime
from types import NoneType
from typing import Annotated

import msgspec

from hawker.api.contract.body import Answer, Request
from hawker.api.contract.org import OrgParams
from hawker.api.route import NoParams, Rate, Tag, Unary
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
    """The name of the peer, unique in the organization at its node."""
    org: str
    """The slug of the organization."""
    network: str
    """The name of the network; `default` for the organization's default one."""
    peerip: str
    dns: str
    endpoint: str
    pubkey: str
    allowed_ips: str
    peer_pubkey: str
    """The public key of the peer, in base64."""
    node: str
    """The id of the node that is the peer's gateway."""
    created_at: datetime


class WireguardPeerList(Answer, frozen=True, kw_only=True):
    peers: tuple[WireguardPeer, ...]


class WireguardPeerParams(msgspec.Struct, frozen=True, kw_only=True):
    """`peer` is a name: lower-case letters, digits and dashes."""

    org_slug: str
    """The organization whose private network the peer is in."""
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


MOST_NETWORKS, MOST_MACHINES = 1_000, 5_000


class PrivateNamesRequest(Request, frozen=True, kw_only=True):
    """The networks that are asked about, as the 32 bits of each."""

    networks: Annotated[tuple[Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)], ...], msgspec.Meta(max_length=1_000)]


class PrivateName(Answer, frozen=True, kw_only=True):
    """A machine of one of the networks; `ip` is its private address, `name` its name, empty from an older node."""

    id: str
    """The id of the machine."""
    app: str
    """The name of the machine's app."""
    ip: str
    node: str
    """The id of the machine's node."""
    started: bool
    """True when the machine runs: names that lead to running machines alone lead to it."""
    metadata: dict[str, str]
    """The metadata of the machine's config, by key."""
    name: str = ""


class PrivateNames(Answer, frozen=True, kw_only=True):
    """Machines on living nodes of `region`, which is the answering node's, as its catalog has them."""

    region: str
    machines: tuple[PrivateName, ...]


LIST_PRIVATE_NAMES = Unary(
    name="list_private_names",
    method="POST",
    path="/internal/v1/private-names",
    params=NoParams,
    body=PrivateNamesRequest,
    response=PrivateNames,
    tag=Tag.NODE,
    summary="List machines of private networks in this node's region",
    timeout_s=2.0,
)
