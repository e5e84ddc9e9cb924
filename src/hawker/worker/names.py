"""What the resolver of this host is told: the machines and apps of this node, and those of others that a fleet knows.
It is a file, so that the resolver goes on while the daemon is away; the records are the truth.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

import anyio

from hawker.clock import Clock
from hawker.feed import DNS_01, AppAddress
from hawker.host.address import peer_ip
from hawker.host.own_user import WRITES, read_own
from hawker.host.process_guard import ProcessGuard
from hawker.ids import MachineId, NodeId
from hawker.log import bind
from hawker.machine import GONE, State
from hawker.names import (
    BOUND,
    KnownNames,
    KnownZone,
    NamedAddress,
    NamedApp,
    NamedMachine,
    NamedPeer,
    ZoneProof,
    group_of,
    keeping,
    named_pairs,
    write_names,
)
from hawker.record.app import APPS, WIREGUARD_PEERS, AppRecord, PeerRecord
from hawker.record.machine import MACHINES, MachineRecord, networks_here
from hawker.record.node import NodeRecord
from hawker.secret.certificates import Certificates, proof_name
from hawker.store.contract import Reader
from hawker.value_object import ValueObject
from hawker.worker.changes import Changes
from hawker.worker.table import all_machines

_REST_OF_TIME, _MOST_REST_S = 30, 2.0
"""The multiple of a write's time for which nothing is written after it, and the most seconds of it: what other tasks
did between the parts of a write is in its time, and a name is not to be old for as long as that says."""
_AGAIN_S, _BOUND_WITHIN_S, _LOOK_S, _PEERS_EVERY_S = 1.0, 5.0, 0.005, 0.5
_log = bind("hawker.dns")


class ZoneBook(ValueObject, frozen=True):
    """The part of the platform's own domain that the resolver answers to the world."""

    domain: str
    """The zone: apps have their names directly below it."""
    listen: tuple[str, ...]
    """ADDRESS:PORT each, where questions of the world are heard."""
    shared: tuple[str, ...]
    """Addresses that names of apps without addresses of their own lead to."""
    certificates: Certificates
    api_hostname: str = ""
    """The host name of the node's API, which leads to `shared`; empty: it has none."""

    def known(self, addresses: tuple[NamedAddress, ...]) -> KnownZone:
        places = tuple(each.rpartition(":")[0].strip("[]") for each in self.listen)
        servers = tuple(each for each in places if not ip_address(each).is_unspecified) or self.shared
        shown = (each for each in self.certificates.shown_challenges if each.kind == DNS_01)
        return KnownZone(
            domain=self.domain,
            listen=self.listen,
            name_servers=servers,
            shared=self.shared,
            addresses=addresses,
            api_hostname=self.api_hostname,
            proofs=tuple(
                ZoneProof(name=proof_name(self.domain, each.app, each.hostname.removeprefix("*.")), text=each.answer)
                for each in shown
            ),
        )


class NameBook:
    """`folder` is the resolver's, and `user` who answers there, None for us; `upstream` are servers for names of the
    world, the host's own when empty. `api`: machines reach the node's API."""

    def __init__(
        self,
        folder: Path,
        store: Reader,
        changes: Changes,
        clock: Clock,
        node: NodeRecord,
        upstream: Sequence[str] = (),
        zone: "ZoneBook | None" = None,
        user: int | None = None,
        *,
        api: bool = False,
    ) -> None:
        self._folder = folder
        self._store = store
        self._clock = clock
        self._node = node
        self._upstream = tuple(upstream)
        self._zone = zone
        self._user = user
        self._api = api
        self._others: tuple[tuple[NamedApp, ...], tuple[NamedMachine, ...]] = ((), ())
        self._addresses: tuple[NamedAddress, ...] = ()
        self._public: tuple[NamedAddress, ...] = ()
        self._far_peers: tuple[NamedPeer, ...] = ()
        self._news = anyio.Event()
        changes.listen(self._note)
        if zone is not None:
            zone.certificates.listen(self._note_proofs)

    def tell_others(self, apps: Sequence[NamedApp], machines: Sequence[NamedMachine]) -> None:
        """Takes the apps and machines that other nodes have, as they are now: all of them."""
        others = (tuple(apps), tuple(machines))
        if others != self._others:
            self._others = others
            self._news.set()

    def tell_peers(self, peers: Sequence[NamedPeer]) -> None:
        """Takes the peers of other nodes, as they are now: all of them."""
        if tuple(peers) != self._far_peers:
            self._far_peers = tuple(peers)
            self._news.set()

    def tell_addresses(self, addresses: Sequence[AppAddress]) -> None:
        """Takes all addresses of apps; those in private networks have names, others in the platform's zone."""
        self._addresses = tuple(NamedAddress(app=each.app, ip=each.ip) for each in addresses if each.is_private)
        self._public = tuple(
            NamedAddress(app=each.app, ip=each.ip) for each in addresses if not each.is_private and not each.shared
        )
        self._news.set()

    def _note_proofs(self) -> None:
        self._news.set()

    def _note(self, machine_id: MachineId) -> None:
        self._news.set()

    async def serve(self, guard: ProcessGuard) -> None:
        """Writes the names for the resolver, from the first machine or peer on, or at once where there is a zone; until
        cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_peers)
            while self._zone is None and not (guard.is_there or networks_here(self._store)):
                await self._changed()
            guard.prepare()
            with keeping(self._folder, self._user):
                async with anyio.create_task_group() as kept:
                    kept.start_soon(self._keep)
                    kept.start_soon(guard.serve)

    async def _watch_peers(self) -> None:
        """Nobody tells of those."""
        seen: list[PeerRecord] = []
        while True:
            there = [record for _, record in self._store.scan(WIREGUARD_PEERS)]
            if there != seen:
                seen = there
                self._news.set()
            await self._clock.sleep(_PEERS_EVERY_S)

    async def _keep(self) -> None:
        while True:
            began = self._clock.monotonic()
            try:
                write_names(self._folder, await self._read(), self._user)
            except OSError as error:
                _log.error("names cannot be told to the resolver", extra={"reason": error.strerror})
                self._news.set()
                await self._clock.sleep(_AGAIN_S)
            took_s = self._clock.monotonic() - began
            await self._clock.sleep(min(_REST_OF_TIME * took_s, _MOST_REST_S))
            await self._changed()

    async def _changed(self) -> None:
        await self._news.wait()
        self._news = anyio.Event()

    def networks(self) -> frozenset[int]:
        """The networks that have machines here."""
        return networks_here(self._store)

    async def _read(self) -> KnownNames:
        """As `known`, and lets others run in between: what changes meanwhile is news again."""
        own = list[NamedMachine]()
        async for record in all_machines(self._store):
            own += self._named(record)
        return self._known(own)

    def known(self) -> KnownNames:
        return self._known([each for _, record in self._store.scan(MACHINES) for each in self._named(record)])

    def _named(self, record: MachineRecord) -> Iterator[NamedMachine]:
        if record.state not in GONE and record.network.private_ip.startswith("fdaa:"):
            yield named_machine(record, self._node.id)

    def _known(self, own: Sequence[NamedMachine]) -> KnownNames:
        """Own records go before what the fleet says of this node's machines."""
        peers = [
            NamedPeer(name=each.name, ip=str(peer_ip(each.network_id, each.id)), here=True)
            for _, each in self._store.scan(WIREGUARD_PEERS)
        ]
        apps = [named_app(record) for _, record in self._store.scan(APPS)]
        mine = {each.id for each in own}
        return KnownNames(
            node=self._node.id,
            region=self._node.region,
            upstream=self._upstream,
            apps=tuple(dict.fromkeys((*apps, *self._others[0]))),
            machines=(*own, *(each for each in self._others[1] if each.id not in mine)),
            addresses=self._addresses,
            zone=None if self._zone is None else self._zone.known(self._public),
            peers=(*peers, *self._far_peers),
            api=self._api,
        )


def named_app(record: AppRecord) -> NamedApp:
    return NamedApp(name=record.name, network_id=record.network_id)


def named_machine(record: MachineRecord, node: NodeId) -> NamedMachine:
    dns, metadata = record.config.dns, record.config.metadata or {}
    return NamedMachine(
        id=record.id,
        app=record.app,
        ip=record.network.private_ip,
        node=node,
        region=record.region,
        started=record.state is State.STARTED,
        listed=dns is None or not dns.skip_registration,
        group=group_of(metadata),
        metadata=named_pairs(metadata),
        name=record.name,
    )


class ResolverWait:
    """Lets a machine wait for the resolver: one that asks before anybody listens takes that for an answer."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._bound = (folder / WRITES / BOUND, folder / BOUND)  # the second is of resolvers before 0.1
        self._clock = clock
        self._given_up = False

    async def __call__(self, bridge: str) -> None:
        """Until the resolver listens at this bridge. One that did not come in time is not waited for again before it
        did: machines start without names rather than not at all."""
        until = self._clock.monotonic() + (0.0 if self._given_up else _BOUND_WITHIN_S)
        while not self._serves(bridge):
            if self._clock.monotonic() >= until:
                if not self._given_up:
                    _log.warning("the resolver does not listen", extra={"bridge": bridge})
                self._given_up = True
                return
            await self._clock.sleep(_LOOK_S)
        self._given_up = False

    def _serves(self, bridge: str) -> bool:
        for place in self._bound:
            with suppress(OSError):
                return bridge in read_own(place).decode(errors="replace").split()
        return False
