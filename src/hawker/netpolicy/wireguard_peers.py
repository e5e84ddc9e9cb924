"""WireGuard peers of people at this node: who they are, in the store, and the device that lets them in. A peer is in
one private network and has one address there; to the rest of the fleet it is a machine of that network on this host.
"""

import hashlib
from collections.abc import Callable, Collection
from typing import Protocol

from hawker.app import network_name, peer_name
from hawker.clock import Clock
from hawker.errors import HawkerError, NotFound, NotServed, Unavailable, Unprocessable
from hawker.host.mesh.peer_gateway import PeerPlace
from hawker.host.mesh.wireguard import peer_key
from hawker.ids import MachineId, NodeId
from hawker.log import bind
from hawker.netpolicy.private_networks import number_of, settled
from hawker.record.app import WIREGUARD_PEERS, NetworkOwner, PeerRecord
from hawker.store.contract import Store, Tx
from hawker.value_object import ValueObject

MAX_PEERS, MAX_PEERS_OF_ORG = 2000, 200
_EVERY_S, _COMPARE_EVERY_S = 0.5, 60.0
_ID_DIGITS = 14
_log = bind("hawker.wireguard")


class GatewayFacts(ValueObject, frozen=True):
    """The facts of this node's end that a peer has to know."""

    endpoint: str
    """ADDRESS:PORT of UDP that a peer's computer sends to, as the operator has set it."""
    public_key: str
    """The public key of WireGuard at this node, in base64."""


class PeerTable:
    """The WireGuard peers in the store. `facts` is None where this node is no gateway. `in_fleet`: the numbers of
    networks are not this node's to claim."""

    def __init__(
        self, node: NodeId, store: Store, clock: Clock, facts: Callable[[], GatewayFacts] | None, *, in_fleet: bool
    ) -> None:
        self._node = node
        self._in_fleet = in_fleet
        self._store = store
        self._clock = clock
        self._facts = facts

    @property
    def gateway(self) -> GatewayFacts:
        """The facts of this node's gateway. Raises `NotServed`."""
        if self._facts is None:
            raise NotServed("this node lets no WireGuard peers in: ask one that runs with --wireguard-listen")
        return self._facts()

    def list(self, org: str) -> list[PeerRecord]:
        """The peers of `org`, by name. Raises `NotServed`."""
        _ = self.gateway
        return [record for _, record in self._store.scan(WIREGUARD_PEERS) if record.org == org]

    async def put(self, org: str, name: str, network: str | None, public_key: str) -> PeerRecord:
        """Put a peer, durable when this returns. A name that is there gets the new key and keeps its address; in
        another network it is another peer. Raises `NotServed`, `Unprocessable`, `Unavailable`."""
        _ = self.gateway
        wanted = network_name(network)
        peer_name(name)
        peer_key(public_key)

        def apply(tx: Tx) -> PeerRecord:
            there = tx.get(WIREGUARD_PEERS, _key(org, name))
            if there is None:
                _check_room(tx, org)
            if any(
                each.public_key == public_key and (each.org, each.name) != (org, name)
                for _, each in tx.scan(WIREGUARD_PEERS)
            ):
                raise Unprocessable("pubkey: another peer has this key: make a new pair for each")
            number = self._number_of(tx, org, wanted)
            record = PeerRecord(
                org=org,
                name=name,
                network=wanted,
                network_id=number,
                public_key=public_key,
                id=there.id if there is not None else _id_of(self._node, org, name),
                created_at=there.created_at if there is not None else self._clock.now(),
            )
            tx.put(WIREGUARD_PEERS, _key(org, name), record)
            return record

        return await self._store.write(apply)

    def _number_of(self, tx: Tx, org: str, network: str) -> int:
        if not self._in_fleet:
            return number_of(tx, org, network)
        number = settled(tx, NetworkOwner(org=org, network=network))
        if number is None:
            raise Unavailable(
                f"the fleet has not told this node the number of network '{network}': try again in a moment"
            )
        return number

    async def delete(self, org: str, name: str) -> None:
        """Deletes a peer. Raises `NotFound`, `NotServed`."""
        _ = self.gateway

        def apply(tx: Tx) -> None:
            if tx.get(WIREGUARD_PEERS, _key(org, name)) is None:
                raise NotFound(f"peer {name} not found")
            tx.delete(WIREGUARD_PEERS, _key(org, name))

        await self._store.write(apply)


class Entrance(Protocol):
    """The device of peers."""

    async def tell(self, places: Collection[PeerPlace]) -> None:
        """Tells the device which peers there are. Raises `Fault` where there is none, and `OSError` when it does not
        answer."""


class PeerKeeper:
    """Has the device let in the peers that are in the store: at once when that changes, and compared once a minute."""

    def __init__(self, store: Store, entrance: Entrance, clock: Clock) -> None:
        self._store = store
        self._entrance = entrance
        self._clock = clock
        self.lack = ""

    async def serve(self) -> None:
        """Tells the device of peers after each change, until cancelled."""
        told: frozenset[PeerPlace] | None = None
        compare_at = self._clock.monotonic()
        while True:
            wanted = frozenset(
                PeerPlace(record.public_key, record.network_id, record.id)
                for _, record in self._store.scan(WIREGUARD_PEERS)
            )
            if wanted != told or self._clock.monotonic() >= compare_at:
                try:
                    await self._entrance.tell(wanted)
                except (HawkerError, OSError) as error:
                    self._say(str(error))
                    told = None
                else:
                    self._say("")
                    told, compare_at = wanted, self._clock.monotonic() + _COMPARE_EVERY_S
            await self._clock.sleep(_EVERY_S)

    def _say(self, lack: str) -> None:
        if lack and lack != self.lack:
            _log.warning("WireGuard peers are not let in", extra={"reason": lack})
        self.lack = lack


def _check_room(tx: Tx, org: str) -> None:
    records = [record for _, record in tx.scan(WIREGUARD_PEERS)]
    if len(records) >= MAX_PEERS or sum(record.org == org for record in records) >= MAX_PEERS_OF_ORG:
        raise Unprocessable(f"an organization has at most {MAX_PEERS_OF_ORG} peers, and a node {MAX_PEERS}")


def _key(org: str, name: str) -> str:
    return f"{org}/{name}"


def _id_of(node: NodeId, org: str, name: str) -> MachineId:
    """As long as a machine's: it makes the peer's address, which leads to one gateway."""
    return MachineId(hashlib.sha256(f"wireguard peer {node}/{org}/{name}".encode()).hexdigest()[:_ID_DIGITS])
