"""Answers about WireGuard peers of organizations, at a node that is a gateway."""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from hawker.api.contract.body import instant
from hawker.api.contract.org import OrgParams
from hawker.api.contract.private_network import (
    DELETE_PEER,
    LIST_PEERS,
    PUT_PEER,
    WireguardPeer,
    WireguardPeerList,
    WireguardPeerParams,
    WireguardPeerRequest,
)
from hawker.api.handlers import answers
from hawker.api.route import Call, NoQuery
from hawker.clock import Clock
from hawker.deferred import deferred
from hawker.host.address import network_prefix, network_resolver, peer_ip
from hawker.ids import NodeId
from hawker.permission import Action, Attempt
from hawker.record.app import PeerRecord
from hawker.store.contract import Store

if TYPE_CHECKING:
    from hawker.netpolicy import wireguard_peers
    from hawker.netpolicy.wireguard_peers import GatewayFacts, PeerTable
else:
    wireguard_peers = deferred("hawker.netpolicy.wireguard_peers")


class WireguardHandlers:
    """`gateway` is none where no peers are let in."""

    def __init__(
        self,
        node: NodeId,
        store: Store,
        clock: Clock,
        gateway: "Callable[[], GatewayFacts] | None",
        *,
        in_fleet: bool,
    ) -> None:
        self._node = node
        self._store = store
        self._clock = clock
        self._gateway = gateway
        self._in_fleet = in_fleet

    @cached_property
    def _peers(self) -> "PeerTable":
        return wireguard_peers.PeerTable(self._node, self._store, self._clock, self._gateway, in_fleet=self._in_fleet)

    @answers(LIST_PEERS)
    async def list_(self, call: Call[OrgParams, NoQuery, None]) -> WireguardPeerList:
        call.grant.check(Attempt(Action.READ, org=call.params.org_slug))
        return WireguardPeerList(peers=tuple(map(self._shown, self._peers.list(call.params.org_slug))))

    @answers(PUT_PEER)
    async def put(self, call: Call[WireguardPeerParams, NoQuery, WireguardPeerRequest]) -> WireguardPeer:
        org, name, body = call.params.org_slug, call.params.peer, call.body
        call.grant.check(Attempt(Action.CONTROL, org=org))
        return self._shown(await self._peers.put(org, name, body.network, body.pubkey))

    @answers(DELETE_PEER)
    async def delete(self, call: Call[WireguardPeerParams, NoQuery, None]) -> None:
        call.grant.check(Attempt(Action.CONTROL, org=call.params.org_slug))
        await self._peers.delete(call.params.org_slug, call.params.peer)

    def _shown(self, record: PeerRecord) -> WireguardPeer:
        gateway = self._peers.gateway
        return WireguardPeer(
            name=record.name,
            org=record.org,
            network=record.network,
            peerip=str(peer_ip(record.network_id, record.id)),
            dns=str(network_resolver(record.network_id)),
            endpoint=gateway.endpoint,
            pubkey=gateway.public_key,
            allowed_ips=str(network_prefix(record.network_id)),
            peer_pubkey=record.public_key,
            node=self._node,
            created_at=instant(record.created_at),
        )
