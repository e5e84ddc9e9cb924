"""A node as far as private networks and host names go. Real: who claims a network's number and who keeps it, what the
resolver is told and answers, the ways of the mesh, certificates and which of them the edge shows. Played: the store's
disk, the catalog between nodes, calls, machines.
"""

import base64
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from dns import message, rdatatype
from msgspec.structs import replace

from hawker.catalog.contract import Statement
from hawker.config import MachineConfig
from hawker.dns.forward import Forwarder
from hawker.dns.resolver import AskingNetwork, NameResolver, Names
from hawker.edge.certificates import CertificateBook
from hawker.errors import HawkerError
from hawker.feed import AppAddress, SealedCertificate
from hawker.fleet.certificates import FleetCertificates
from hawker.fleet.mesh import FleetMesh, MeshHost
from hawker.fleet.names import FleetNames
from hawker.fleet.rows import Row, RowKey, address_rows, app_row, machine_row, removal, upsert
from hawker.gateway.claims import NetworkClaims
from hawker.host.address import machine_prefix, network_prefix, private_ip
from hawker.host.mesh.device import MemoryDevice, TunnelDevice
from hawker.host.mesh.wireguard import MeshKey
from hawker.ids import AppName, Digest, MachineId, NodeId, Version
from hawker.image.manifest import Resolved
from hawker.machine import State
from hawker.names import KnownNames
from hawker.netpolicy.private_networks import number_of
from hawker.record.app import APPS, AppRecord
from hawker.record.machine import MACHINES, MachineRecord, Network, networks_here
from hawker.record.node import NodeRecord
from hawker.secret.certificates import Certificates, open_pair
from hawker.sim.fleet.shared_catalog import HostReplica
from hawker.sim.harness.loop import LoopClock
from hawker.store.memory_store import MemoryStore
from hawker.value_object import ValueObject
from hawker.vault import Vault
from hawker.worker.changes import Changes
from hawker.worker.names import NameBook

_NOWHERE = Path("/nonexistent")
_CLUSTER_KEY = b"c" * 32
_IMAGE = Resolved(
    reference="hawker/hello", registry="", repository="hello", tag="", digest=Digest("sha256:" + "0" * 64), size_bytes=1
)
_FLYCAST_PART = 0xFFFF


class ToldNames(Names):
    """Without a file between the worker and the resolver."""

    def tell(self, known: KnownNames) -> None:
        self._take(known)

    def _look(self) -> None:
        """It is told."""


class NetworkParts(ValueObject, frozen=True, kw_only=True):
    """What a node is made of, where a bug is planted in one of them."""

    claims: type[NetworkClaims] = NetworkClaims
    told: type[ToldNames] = ToldNames
    resolver: type[NameResolver] = NameResolver
    names: type[FleetNames] = FleetNames
    mesh: type[FleetMesh] = FleetMesh
    certificates: type[Certificates] = Certificates
    fleet_certificates: type[FleetCertificates] = FleetCertificates
    book: type[CertificateBook] = CertificateBook


class PlayedKey:
    """The key of a host's end of the mesh, which nobody renews."""

    def __init__(self, node: NodeId) -> None:
        self.key = MeshKey("", base64.b64encode(node.encode() * 4).decode())

    def renewed(self) -> bool:
        return False


class PlayedMesh:
    """The device of a host, which is there when it is needed."""

    def __init__(self) -> None:
        self.device = MemoryDevice()
        self.is_there = False

    async def there(self) -> TunnelDevice:
        self.is_there = True
        return self.device

    def take(self, key: MeshKey) -> None:
        """It has one."""


class NetworkHost:
    """`lives` is what it believes of other nodes, `claims` its broker's way to the keepers of networks."""

    def __init__(self, number: int, clock: LoopClock, parts: NetworkParts, lives: "dict[NodeId, bool]") -> None:
        self.id = NodeId(f"{number:08x}")
        self.clock = clock
        self.powered = True
        self.lives = lives
        self.store = MemoryStore()
        self.replica = HostReplica(clock)
        self.told: dict[RowKey, Row] = {}
        self.key = PlayedKey(self.id)
        self.me = MeshHost(node=self.id, key=self.key.key.public, endpoint=f"10.0.0.{number}:4283")
        self._parts = parts
        self._number = number
        self._changes = Changes()
        self._read: dict[bytes, list[str]] = {}
        self.mesh_device = PlayedMesh()
        self.begin()

    def begin(self) -> None:
        """The daemon, over what is stored. The device of the mesh outlives it, and so does the resolver's cache."""
        parts, clock, vault = self._parts, self.clock, Vault(bytes([self._number]) * 32, self.clock)
        cluster = Vault(_CLUSTER_KEY, clock)
        self.certificates = parts.certificates(self.store, vault, clock)
        self.fleet_certificates = parts.fleet_certificates(
            self.id, self.certificates, self.store, cast(Any, self.replica), lambda: [cluster], clock
        )
        self.book = parts.book(_NOWHERE, clock)
        self.names = parts.told(_NOWHERE, clock)
        self.resolver = parts.resolver(self.names, Forwarder(tuple, clock), clock)
        record = NodeRecord(id=self.id, region="mad", created_at=0.0)
        self._name_book = NameBook(_NOWHERE, self.store, self._changes, clock, record)
        self.fleet_names = parts.names(
            self.id,
            self.replica,
            self._name_book.networks,
            lambda node: self.lives.get(node, True),
            self._name_book.tell_others,
            clock,
        )
        self.mesh = parts.mesh(
            self.me, self.key, self.replica, self._name_book.networks, self.mesh_device, clock, lambda: None
        )
        self.tell()

    # What is stored here.

    @property
    def apps(self) -> list[AppRecord]:
        return [record for _, record in self.store.scan(APPS)]

    @property
    def machines(self) -> list[MachineRecord]:
        return [record for _, record in self.store.scan(MACHINES)]

    @property
    def networks(self) -> frozenset[int]:
        return networks_here(self.store)

    def rows(self) -> Iterator[Row]:
        """All that it says of itself."""
        for record in self.apps:
            yield app_row(self.id, record)
        for machine in self.machines:
            yield machine_row(self.id, machine)
            yield from address_rows(self.id, machine)
        yield Row(at=RowKey(table="mesh_hosts", key=(self.id,)), values=(self.me.key, self.me.endpoint))
        source = self.fleet_certificates.source
        for key in source.every():
            yield from source.rows(key)

    def news(self) -> list[Statement]:
        """What of that has not been told yet, of which it reads itself at once."""
        there = {row.at: row for row in self.rows()}
        told = [removal(at) for at in self.told if at not in there]
        told += [upsert(row) for at, row in there.items() if self.told.get(at) != row]
        self.told = there
        self.replica.write(told)
        return told

    async def make_app(self, name: str, org: str, network: str) -> AppRecord:
        """Its number was settled. Raises `HawkerError`."""

        def apply(tx: Any) -> AppRecord:
            record = AppRecord(
                id=name,
                number=1,
                name=AppName(name),
                org=org,
                network=network,
                network_id=number_of(tx, org, network),
                created_at=self.clock.now(),
            )
            tx.put(APPS, name, record)
            return record

        return await self.store.write(apply)

    async def carry(self, record: AppRecord, home: NodeId, reign: int = 0) -> None:
        carried = replace(record, home=None if home == self.id else home, reign=reign)
        await self.store.write(lambda tx: tx.put(APPS, record.name, carried))

    async def make_machine(self, machine_id: MachineId, app: AppRecord) -> None:
        address = private_ip(app.network_id, machine_id)
        await self.put(
            MachineRecord(
                id=machine_id,
                app=app.name,
                name=f"m{machine_id[-2:]}",
                region="mad",
                state=State.STARTED,
                version=Version("0" * 26),
                config=MachineConfig(),
                image=_IMAGE,
                network=Network(private_ip=str(address), network_id=app.network_id),
                created_at=self.clock.now(),
                updated_at=self.clock.now(),
            )
        )

    async def put(self, record: MachineRecord) -> None:
        await self.store.write(lambda tx: tx.put(MACHINES, record.id, record))

    async def drop(self, machine_id: MachineId) -> None:
        await self.store.write(lambda tx: tx.delete(MACHINES, machine_id))

    # What it does now and then.

    async def look(self) -> None:
        """Once a second, or so."""
        with suppress(HawkerError):
            await self.fleet_names.read()
        with suppress(HawkerError):
            await self.mesh.read()
        with suppress(HawkerError):
            await self.fleet_certificates.read()
        self.tell()

    def tell(self) -> None:
        """The resolver and the edge, whenever something is new."""
        self._name_book.tell_addresses(self.addresses())
        self.names.tell(self._name_book.known())
        self.book.replace(self.sealed())

    def addresses(self) -> list[AppAddress]:
        """Each app that it knows of has one in its network."""
        known = {app.name: app.network_id for app in self.known_apps()}
        return [AppAddress(app=name, ip=flycast_of(number, name)) for name, number in known.items()]

    def known_apps(self) -> list[AppRecord]:
        told = self.replica.rows("SELECT record FROM apps WHERE node <> ?", self.id)
        return [*(_app(str(row[0])) for row in told), *self.apps]

    def sealed(self) -> list[SealedCertificate]:
        """As the worker tells its edge."""
        return [
            SealedCertificate(hostname=each.hostname, app=each.app, sealed=each.sealed, not_after=each.not_after)
            for each in self.certificates.served().values()
        ]

    # What others see of it.

    def readable(self) -> Iterator[tuple[str, bytes]]:
        """What is on its disk, in its rows and in what its edge is told, with a word for where."""
        yield from ((f"bucket {name} of its store", value) for name, value in self.store.encoded())
        yield from ((f"a row of {row.at.table}", repr(row.values).encode()) for row in self.told.values())
        yield from (("what its edge is told", msgspec.json.encode(each)) for each in self.sealed())

    def answer(self, name: str, network: int, kind: rdatatype.RdataType = rdatatype.AAAA) -> list[str] | None:
        """Of its resolver, to a machine of this network; None where somebody else is to be asked."""
        said = self.resolver.at_once(message.make_query(name, kind, id=7).to_wire(), AskingNetwork(network))
        if not isinstance(said, bytes):
            return None
        return [record.to_text() for each in message.from_wire(said).answer for record in each]

    @property
    def allowed(self) -> Mapping[str, frozenset[str]]:
        """The addresses behind each peer of the mesh, by its key."""
        return {key: peer.allowed for key, peer in self.mesh_device.device.read().peers.items()}

    def names_in(self, shown: SealedCertificate) -> list[str]:
        """Of the certificate itself."""
        if shown.sealed in self._read:
            return self._read[shown.sealed]
        pair = open_pair(Vault(self.certificates.key, self.clock), shown.hostname, shown.sealed)
        found = x509.load_pem_x509_certificate(pair.chain).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
        names = self._read[shown.sealed] = found.value.get_values_for_type(x509.DNSName)
        return names


def prefix_of(record: MachineRecord) -> str:
    return str(machine_prefix(record.network.network_id, record.id))


def flycast_of(number: int, app: str) -> str:
    return str(network_prefix(number)[_FLYCAST_PART << 16 | int(app.removeprefix("app"))])


def issued(hostname: str, now: float, seconds: float) -> tuple[str, str]:
    """A certificate of nobody's authority that is good for so long, and its key; both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "played")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(datetime.fromtimestamp(now - 60, UTC))
    builder = builder.not_valid_after(datetime.fromtimestamp(now + seconds, UTC))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(hostname)]), critical=False)
    chain = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()
    return chain, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _app(text: str) -> AppRecord:
    return msgspec.json.decode(text, type=AppRecord)
