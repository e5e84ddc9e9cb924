"""What a worker's records look like in the catalog: rows of `catalog/tables.sql`. Pure. A row's key has its owner, the
node, first; columns and values beyond the key are in the order of `COLUMNS`.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from hawker.catalog.change import Value
from hawker.catalog.contract import Statement
from hawker.config import PUBLISH, Service
from hawker.feed import EVERYWHERE, ShownChallenge
from hawker.fleet.pages import PagedQuery
from hawker.ids import NodeId
from hawker.machine import GONE
from hawker.node import Capacity, Resources
from hawker.record.app import AppRecord, CertificateRecord, IpRecord, PeerRecord
from hawker.record.machine import CheckResult, MachineRecord, counted
from hawker.record.node import NodeRecord, TakeoverRecord
from hawker.record.org import Amount, LoginRecord, QuotaRecord
from hawker.record.volume import VolumeRecord
from hawker.value_object import ValueObject

KEYS: Mapping[str, tuple[str, ...]] = {
    "nodes": ("node",),
    "apps": ("node", "name"),
    "revoked_tokens": ("node", "token_id"),
    "machines": ("node", "id"),
    "services": ("node", "machine", "number"),
    "health": ("node", "machine", "name"),
    "volumes": ("node", "id"),
    "capacity": ("node",),
    "images": ("node", "digest"),
    "takeovers": ("node", "machine", "spare"),
    "quotas": ("node", "subject"),
    "quota_usage": ("node", "subject"),
    "registry_logins": ("node", "org", "registry"),
    "image_names": ("node", "reference"),
    "app_ips": ("node", "app", "ip"),
    "private_ips": ("node", "app", "ip"),
    "certificates": ("node", "hostname"),
    "mesh_hosts": ("node",),
    "addresses": ("node", "machine"),
    "served_machines": ("node", "machine"),
    "challenges": ("node", "hostname", "kind"),
    "peers": ("node", "org", "name"),
}
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "nodes": ("region", "api", "version", "drivers", "labels", "cordoned", "draining", "started_at"),
    "apps": ("org", "home", "record"),
    "revoked_tokens": ("at", "by", "note"),
    "machines": ("app", "name", "state", "version", "generation", "image", "private_ip", "cordoned", "metadata",
                 "standby_for", "created_at", "updated_at"),
    "services": ("app", "protocol", "internal_port", "config"),
    "health": ("status", "updated_at"),
    "volumes": ("app", "name", "state", "size_gb", "machine"),
    "capacity": ("cpus", "memory_mib", "disk_mib", "shared_ratio", "used_shared_cpus", "used_performance_cpus",
                 "used_memory_mib", "used_disk_mib", "gpus"),
    "images": (),
    "takeovers": ("seen", "at"),
    "quotas": ("limits", "at", "by"),
    "quota_usage": ("amount",),
    "registry_logins": ("username", "at", "by", "gone"),
    "image_names": ("digest", "at"),
    "app_ips": ("shared", "created_at"),
    "private_ips": ("created_at",),
    "certificates": ("app", "sealed", "created_at", "updated_at"),
    "mesh_hosts": ("public_key", "endpoint"),
    "addresses": ("app", "network", "generation"),
    "served_machines": ("app", "publish", "services"),
    "challenges": ("app", "token", "answer"),
    "peers": ("network", "id"),
}  # fmt: skip
"""The columns of each table that this version of Hawker publishes; others' columns keep their defaults."""

_TOLD = {"health": COLUMNS["health"].index("updated_at")}


class RowKey(ValueObject, frozen=True, kw_only=True):
    table: str
    """The name of the catalog's table."""
    key: tuple[Value, ...]


class Row(ValueObject, frozen=True, kw_only=True):
    """`values` has one for each of the table's `COLUMNS`."""

    at: RowKey
    values: tuple[Value, ...]

    @property
    def digest(self) -> bytes:
        """A digest that is the same for rows that say the same. When a check was last asked is not worth saying again,
        and SQLite gives back whole numbers as whole ones or not, as the column has it."""
        told = self.values[: _TOLD.get(self.at.table)]
        plain = [int(value) if isinstance(value, float) and value.is_integer() else value for value in told]
        return hashlib.blake2b(msgspec.msgpack.encode(plain), digest_size=16).digest()


class NodeFacts(ValueObject, frozen=True, kw_only=True):
    """The facts that a node says of itself beside its record."""

    api: str
    """The URL at which other nodes ask it."""
    version: str
    """The version of Hawker that runs now."""
    drivers: tuple[str, ...]
    """The names of the drivers of the node."""
    labels: Mapping[str, str]
    started_at: float
    """The time at which the node's daemon began, in Unix seconds."""


def node_row(record: NodeRecord, said: NodeFacts) -> Row:
    values = (
        record.region,
        said.api,
        said.version,
        _json(said.drivers),
        _json(dict(said.labels)),
        int(record.cordoned),
        int(record.draining),
        said.started_at,
    )
    return _row("nodes", (record.id,), values)


def app_row(node: NodeId, record: AppRecord) -> Row:
    """The row of an app, at its home with the number of its reign. Of several homes the one of the latest reign counts,
    which is the largest number; 0 is none."""
    home = record.home is None or record.home == node
    return _row("apps", (node, record.name), (record.org, 1 + record.reign if home else 0, _json(record)))


def machine_row(node: NodeId, record: MachineRecord) -> Row:
    values = (
        record.app,
        record.name,
        str(record.state),
        record.version,
        record.generation,
        record.image.digest,
        record.network.private_ip,
        int(record.cordoned),
        _json(record.config.metadata or {}),
        _json(record.config.standbys or ()),
        record.created_at,
        record.updated_at,
    )
    return _row("machines", (node, record.id), values)


def address_rows(node: NodeId, record: MachineRecord) -> Iterator[Row]:
    """The row of a machine's private address; none for a machine that is going, or that is on no private network."""
    if record.state not in GONE and record.network.private_ip.startswith("fdaa:"):
        values = (record.app, record.network.network_id, record.generation)
        yield _row("addresses", (node, record.id), values)


def served_rows(node: NodeId, record: MachineRecord) -> Iterator[Row]:
    plain = services_served(record.config.services or ())
    if plain and record.state not in GONE:
        everywhere = (record.config.metadata or {}).get(PUBLISH) == EVERYWHERE
        yield _row("served_machines", (node, record.id), (record.app, EVERYWHERE if everywhere else "", _json(plain)))


def services_served(services: Iterable[Service]) -> list[Service]:
    """The services that have ports, without what only the machine's own host needs to know: limits, checks, rest."""
    return [
        replace(each, concurrency=None, checks=None, autostop=None, autostart=None, min_machines_running=None)
        for each in services
        if (each.protocol or "tcp") in ("tcp", "udp") and each.internal_port and each.ports
    ]


def mesh_row(node: NodeId, key: str, endpoint: str) -> Row:
    return _row("mesh_hosts", (node,), (key, endpoint))


def service_rows(node: NodeId, record: MachineRecord) -> Iterator[Row]:
    for number, service in enumerate(record.config.services or ()):
        values = (record.app, service.protocol or "tcp", service.internal_port or 0, _json(service))
        yield _row("services", (node, record.id, number), values)


def health_rows(node: NodeId, record: MachineRecord, results: Iterable[CheckResult]) -> Iterator[Row]:
    for result in results:
        yield _row("health", (node, record.id, result.name), (result.status, result.at))


def volume_row(node: NodeId, record: VolumeRecord) -> Row:
    values = (record.app, record.name, str(record.state), record.size_gb, record.machine or "")
    return _row("volumes", (node, record.id), values)


def capacity_row(node: NodeId, room: Capacity, used: Resources, taken: Iterable[str]) -> Row:
    """`taken` are the addresses of GPUs that machines have."""
    given = frozenset(taken)
    free = counted(gpu for gpu in room.gpus if gpu.address not in given)
    values = (
        room.cpus,
        room.memory_mib,
        room.disk_mib,
        room.shared_ratio,
        used.shared_cpus,
        used.performance_cpus,
        used.memory_mib,
        used.disk_mib,
        _json(dict(free)),
    )
    return _row("capacity", (node,), values)


def image_row(node: NodeId, digest: str) -> Row:
    return _row("images", (node, digest), ())


def image_name_row(node: NodeId, reference: str, digest: str, at: float) -> Row:
    return _row("image_names", (node, reference), (digest, at))


def app_ip_rows(node: NodeId, app: str, record: IpRecord) -> Iterator[Row]:
    if record.is_public:
        yield _row("app_ips", (node, app, record.ip), (int(record.shared), record.created_at))
    else:
        yield _row("private_ips", (node, app, record.ip), (record.created_at,))


def certificate_row(node: NodeId, record: CertificateRecord, sealed: str) -> Row:
    """`sealed` is for the fleet: what the record has only its own node can open."""
    values = (record.app, sealed, record.created_at, record.updated_at)
    return _row("certificates", (node, record.hostname), values)


def challenge_row(node: NodeId, shown: ShownChallenge) -> Row:
    return _row("challenges", (node, shown.hostname, shown.kind), (shown.app, shown.token, shown.answer))


def peer_row(node: NodeId, record: PeerRecord) -> Row:
    return _row("peers", (node, record.org, record.name), (record.network_id, record.id))


def takeover_row(node: NodeId, record: TakeoverRecord) -> Row:
    return _row("takeovers", (node, record.machine, record.spare), (record.seen, record.at))


def quota_row(node: NodeId, record: QuotaRecord) -> Row:
    return _row("quotas", (node, record.subject), (_json(record.limits), record.at, record.by))


def usage_row(node: NodeId, subject: str, amount: Amount) -> Row:
    return _row("quota_usage", (node, subject), (_json(amount),))


def login_row(node: NodeId, record: LoginRecord) -> Row:
    """The row of a login to a registry, without the password."""
    values = (record.username, record.at, record.by, int(record.gone))
    return _row("registry_logins", (node, record.org, record.registry), values)


def revoked_row(node: NodeId, token_id: str, *, at: float, by: str, note: str) -> Row:
    return _row("revoked_tokens", (node, token_id), (at, by, note))


def upsert(row: Row) -> Statement:
    table, keys, columns = row.at.table, KEYS[row.at.table], COLUMNS[row.at.table]
    names = (*keys, *columns)
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns)
    query = (
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        f" ON CONFLICT ({', '.join(keys)}) DO {f'UPDATE SET {changes}' if changes else 'NOTHING'}"
    )
    return Statement(query=query, params=(*row.at.key, *row.values))


def removal(at: RowKey) -> Statement:
    where = " AND ".join(f"{name} = ?" for name in KEYS[at.table])
    return Statement(query=f"DELETE FROM {at.table} WHERE {where}", params=at.key)


def own_rows(table: str) -> PagedQuery:
    """The rows that the catalog has of a node in a table: key, then columns."""
    key = KEYS[table]
    names = ", ".join((*key, *COLUMNS[table]))
    text = f"SELECT {names} FROM {table} WHERE node = ? AND {{after}} ORDER BY {', '.join(key)} LIMIT ?"
    return PagedQuery(text=text, key=key, places=tuple(range(len(key))))


def row_of(table: str, found: tuple[Value, ...]) -> Row:
    """The row of `table` that is in an answer to `own_rows`."""
    width = len(KEYS[table])
    return _row(table, found[:width], found[width:])


def _row(table: str, key: tuple[Value, ...], values: tuple[Value, ...]) -> Row:
    return Row(at=RowKey(table=table, key=key), values=values)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
