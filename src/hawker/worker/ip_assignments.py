"""Addresses of apps: which are free, whose they are, and when they are given back. Records alone; what listens on an
address reads them.

`v4` and `v6` come from the operator's pools and belong to one app at a time. `shared_v4` is the node's own address for
everybody. `private_v6` is in a private network, computed from it and the app, so that any node comes to the same.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from hawker.app import network_name
from hawker.clock import Clock
from hawker.errors import BadRequest, NotFound, Unprocessable
from hawker.host.address import network_prefix
from hawker.host.uplink import OwnAddress
from hawker.ids import next_ulid
from hawker.netpolicy.private_networks import number_of
from hawker.quota.quotas import Quotas
from hawker.record.app import APPS, IPS, IPS_TAKEN, AppRecord, IpOwner, IpRecord
from hawker.record.org import Amount
from hawker.region import accepts
from hawker.settings import Settings
from hawker.store.contract import Store, Tx
from hawker.value_object import ValueObject

MAX_PER_APP = 64
GLOBAL = "global"
_MAX_SERVICE_NAME = 63


class IpType(StrEnum):
    V4 = "v4"
    V6 = "v6"
    SHARED_V4 = "shared_v4"
    PRIVATE_V6 = "private_v6"


EGRESS = frozenset({"egress_v4", "egress_v6", "egress_pair"})


class IpRequest(ValueObject, frozen=True, kw_only=True):
    """A caller's request for an address; a field that is empty is not said. `network` and `org` are of a
    `private_v6`."""

    type: str
    """The type of address: `v4`, `v6`, `shared_v4` or `private_v6`; another one is refused."""
    region: str = ""
    """A code, or `global`; it must lead here, as an address is this node's."""
    service_name: str = ""
    """The name of the service, for the owner, at most 63 characters. Whoever asks for the address of another service is
    refused."""
    network: str = ""
    org: str = ""


class IpAllocator:
    """`outward` says what the host's own address is."""

    def __init__(
        self, store: Store, clock: Clock, settings: Settings, region: str, outward: OwnAddress, quotas: Quotas
    ) -> None:
        self._store = store
        self._clock = clock
        self._region = region
        self._outward = outward
        self._quotas = quotas
        self._shared_v4 = settings.shared_ipv4
        self._pools: dict[IpType, Sequence[IPv4Network | IPv6Network]] = {
            IpType.V4: tuple(map(ip_network, settings.public_ipv4)),
            IpType.V6: tuple(map(ip_network, settings.public_ipv6)),
        }

    def list(self, app: str) -> list[IpRecord]:
        """The addresses of `app`, in the order in which they were given."""
        return sorted((record for _, record in self._store.scan(IPS, f"{app}/")), key=lambda record: record.id)

    async def allocate(self, app: str, wish: IpRequest) -> IpRecord:
        """Give an app an address, durable when this returns. What cannot be given twice, because there is one of it, is
        given once: asking again answers the same. Raises `BadRequest` for an unknown type, `Unprocessable` for what
        this node cannot give."""
        kind = _type(wish.type)
        self._check(kind, wish)
        fixed, chance = self._fixed(kind), int.from_bytes(self._clock.token_bytes(8), "big")
        now = self._clock.now()

        def apply(tx: Tx) -> IpRecord:
            owner = tx.get(APPS, app)
            if owner is None:
                raise NotFound("app not found")
            network = _network(owner, kind, wish)
            ip = self._address(tx, owner, kind, network, fixed, chance)
            there = tx.get(IPS, _key(app, ip))
            if there is not None:
                return _same(there, wish)
            others = [record.id for _, record in tx.scan(IPS, f"{app}/")]
            if len(others) >= MAX_PER_APP:
                raise Unprocessable(f"an app has at most {MAX_PER_APP} addresses: release one first")
            self._quotas.check(tx, owner.name, Amount(addresses=1))
            shared = ip == fixed
            record = IpRecord(
                id=next_ulid(self._clock, max(others, default="")),
                ip=ip,
                type=kind.value,
                region=wish.region or GLOBAL,
                service_name=wish.service_name,
                shared=shared,
                network=network.name if network else "",
                org=network.org if network else "",
                created_at=now,
            )
            tx.put(IPS, _key(app, ip), record)
            if not shared:
                tx.put(IPS_TAKEN, ip, IpOwner(app=owner.name))
            return record

        return await self._store.write(apply)

    async def release(self, app: str, text: str) -> None:
        """Takes an address from `app`. Raises `NotFound`."""
        ip = _canonical(text)

        def apply(tx: Tx) -> None:
            if tx.get(APPS, app) is None:
                raise NotFound("app not found")
            record = tx.get(IPS, _key(app, ip))
            if record is None:
                raise NotFound(f"ip address {text!r:.60} not found")
            _forget(tx, app, record)

        await self._store.write(apply)

    def _check(self, kind: IpType, wish: IpRequest) -> None:
        if len(wish.service_name) > _MAX_SERVICE_NAME:
            raise Unprocessable(f"service_name is longer than {_MAX_SERVICE_NAME} characters")
        if wish.region not in ("", GLOBAL) and not accepts(wish.region, self._region):
            raise Unprocessable(f"region: {wish.region!r:.40} is not this node's region, which is {self._region!r}")
        if wish.network and kind is not IpType.PRIVATE_V6:
            raise Unprocessable(f"network: an address of type {kind} is on no private network")

    def _fixed(self, kind: IpType) -> str | None:
        """The node's own address, where it is what this type gives to everybody."""
        if kind is IpType.SHARED_V4:
            found = self._shared_v4 or self._outward(4)
            if found is None:
                raise Unprocessable("type: this host has no IPv4 address towards the world: set --shared-ipv4")
            return found
        if kind is IpType.V6 and not self._pools[kind]:
            return self._outward(6)
        return None

    def _address(
        self, tx: Tx, app: AppRecord, kind: IpType, network: "_Network | None", fixed: str | None, chance: int
    ) -> str:
        """Without a pool of IPv6 and without an address of its own, the node has none to give but a private one."""
        if fixed is not None:
            return fixed
        if kind is IpType.PRIVATE_V6 or not self._pools[kind]:
            if kind is IpType.V4:
                raise Unprocessable(_NO_V4)
            return _private(app, number_of(tx, network.org, network.name) if network else app.network_id)
        taken = tx.count(IPS_TAKEN)
        for ip in _candidates(self._pools[kind], chance, taken + 1):
            if ip != self._shared_v4 and tx.get(IPS_TAKEN, ip) is None:
                return ip
        setting = "--public-ipv4" if kind is IpType.V4 else "--public-ipv6"
        raise Unprocessable(f"type: every address of this node's pool is taken: release one, or add to {setting}")


_NO_V4 = (
    "type: this node has no pool of IPv4 addresses to give to one app alone: allocate shared_v4, or give the node a "
    "pool with --public-ipv4"
)


class _Network(ValueObject, frozen=True):
    org: str
    name: str


def release_all(tx: Tx, app: str) -> None:
    """Takes all addresses from an app, in the transaction that removes it."""
    for _, record in list(tx.scan(IPS, f"{app}/")):
        _forget(tx, app, record)


def _forget(tx: Tx, app: str, record: IpRecord) -> None:
    tx.delete(IPS, _key(app, record.ip))
    owner = tx.get(IPS_TAKEN, record.ip)
    if owner is not None and owner.app == app:
        tx.delete(IPS_TAKEN, record.ip)


def _type(text: str) -> IpType:
    if text in EGRESS:
        raise Unprocessable(f"type: {text} is not served by this node: traffic outwards has the host's own address")
    try:
        return IpType(text)
    except ValueError:
        raise BadRequest("invalid ip address type") from None


def _network(app: AppRecord, kind: IpType, wish: IpRequest) -> _Network | None:
    """The private network that the address is in, if it is in one."""
    if wish.org not in ("", app.org) and kind is not IpType.PRIVATE_V6:
        raise Unprocessable(f"org_slug: app '{app.name}' belongs to '{app.org}'")
    if kind is not IpType.PRIVATE_V6:
        return None
    return _Network(wish.org or app.org, network_name(wish.network) if wish.network or wish.org else app.network)


def _same(there: IpRecord, wish: IpRequest) -> IpRecord:
    if wish.service_name not in ("", there.service_name):
        raise Unprocessable(f"service_name: the app has {there.ip} for another service: release it first")
    return there


def _private(app: AppRecord, number: int) -> str:
    """In a part of the network that no machine's /112 is in: bits 16 to 23 are 1, where a machine's are 0."""
    own = int.from_bytes(hashlib.sha256(app.id.encode()).digest()[:7], "big")
    return str(network_prefix(number)[own << 24 | 1 << 16 | 2])


def _candidates(pools: Iterable[IPv4Network | IPv6Network], chance: int, most: int) -> Iterator[str]:
    """At most `most` of each pool, one after the other from a place that chance gives. So many that one of them is
    free, if any is; without the addresses that mean a network or all of its hosts."""
    for pool in pools:
        first, size = _usable(pool)
        for step in range(min(most + 1, size)):
            yield str(pool[first + (chance + step) % size])


def _usable(pool: IPv4Network | IPv6Network) -> tuple[int, int]:
    """The index of the first address that can be given, and how many can be."""
    size = pool.num_addresses
    if size <= 2:
        return 0, size
    return 1, size - (2 if isinstance(pool, IPv4Network) else 1)


def _canonical(text: str) -> str:
    try:
        found = ip_address(text)
    except ValueError:
        raise NotFound(f"ip address {text!r:.60} not found") from None
    if isinstance(found, IPv6Address) and found.scope_id is not None:
        raise NotFound(f"ip address {text!r:.60} not found")
    return str(found)


def _key(app: str, ip: str) -> str:
    return f"{app}/{ip}"
