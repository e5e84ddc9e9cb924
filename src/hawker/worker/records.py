"""What a worker stores: the records, and the buckets they live in. The store is the only truth; nothing here is cached.

Records tolerate unknown fields, so that an older worker reads what a newer one wrote.
"""

import msgspec

from hawker.config import MachineConfig
from hawker.gpu import Gpu
from hawker.ids import AppName, EventId, InstanceId, MachineId, NodeId, OrderId, Version
from hawker.image.resolve import Resolved
from hawker.machine import State
from hawker.node import Resources
from hawker.policy import Direction, Transport
from hawker.runtime.driver import Exit
from hawker.store.contract import Bucket


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Who this worker is. `cordoned`: it takes no new machines; `draining`: its machines are being moved away."""

    id: NodeId
    region: str
    created_at: float
    cordoned: bool = False
    draining: bool = False


class CopyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """In a backup only: when it was taken, by which version. A store that has it when a node boots was restored."""

    taken_at: float
    version: str


class AppRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A named group of machines. `number` is its internal numeric id; `network_id` the 32 bits in its addresses.
    `home` is the node where it was made, when that is another one: its secrets and policies are kept there. `reign`
    counts how often another node became its home because the one before was forgotten."""

    id: str
    number: int
    name: AppName
    org: str
    network: str
    network_id: int
    created_at: float
    idempotency_key: str | None = None
    home: NodeId | None = None
    reign: int = 0


class CarriedApp(msgspec.Struct, frozen=True, kw_only=True):
    """Of an app whose home is another node: when that was read for what of the app is here, by its own clock."""

    home: NodeId
    read_at: float


class NameRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A name of an app that this node keeps for whoever makes it. `claim` tells one who asked from another; `home` is
    where the app is to be; `at` is this node's clock."""

    claim: str
    home: NodeId
    at: float


class Network(msgspec.Struct, frozen=True, kw_only=True):
    """A machine's addresses: `private_ip` (IPv6, stable) and, for traffic outwards only, `ipv4`."""

    private_ip: str
    ipv4: str | None = None
    network_id: int


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A client's exclusive right to change a machine until `expires_at` (Unix seconds)."""

    nonce: str
    owner: str
    description: str
    expires_at: float


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """Of a container: its run number `run` is, or is about to be, the `count`-th automatic restart in a row."""

    run: int
    count: int


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """The latest instance. `exit` is set once, when its exit is recorded; `started_at` stays None if it never ran.
    `retries` has each container that was started again by itself, by its name."""

    instance_id: InstanceId
    pid: int | None = None
    started_at: float | None = None
    exit: Exit | None = None
    retries: dict[str, Retry] = {}
    memory_mib: int | None = None  # its limit, when that is no longer the config's


class Previous(msgspec.Struct, frozen=True, kw_only=True):
    """What an update falls back to when the new version cannot be prepared."""

    version: Version
    config: MachineConfig
    image: Resolved
    container_images: dict[str, Resolved] = {}
    state: State
    holds: Resources


class MachineRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One machine. `holds` is what it takes of the node's capacity now: nothing unless it runs or is about to. `gpus`
    are its own for as long as it holds memory; until an update is done, those of both versions.

    `awaited` is the instance that a run is to launch next: a launch of any other came too late and does nothing.
    `container_images` has one for each container, by its name; `image` is then only what the machine shows."""

    id: MachineId
    app: AppName
    name: str
    region: str
    state: State
    version: Version
    config: MachineConfig
    image: Resolved
    container_images: dict[str, Resolved] = {}
    network: Network
    holds: Resources = Resources()
    gpus: tuple[Gpu, ...] = ()
    running: Running | None = None
    awaited: InstanceId | None = None
    restarts: int = 0  # automatic ones in a row
    cordoned: bool = False
    lease: Lease | None = None
    previous: Previous | None = None
    order: OrderId | None = None  # what it was made for
    last_event: EventId = EventId("")
    events: int = 0
    created_at: float
    updated_at: float


class Detail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What belongs to one event: how an instance ended and whether that was asked for, or what went wrong."""

    exit: Exit | None = None
    requested_stop: bool = False
    restarting: bool = False
    restart_count: int = 0
    resumed: bool = False  # of a start: the instance is the one that was suspended
    error: str = ""
    version: str = ""


class EventRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to a machine. Keyed by machine and id, so newest last."""

    id: EventId
    type: str
    status: str
    source: str
    at: float
    detail: Detail | None = None


class VersionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a machine's config, kept after it was replaced."""

    version: Version
    config: MachineConfig
    image: Resolved
    container_images: dict[str, Resolved] = {}
    created_at: float


class SecretRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One secret of an app. Times are Unix seconds."""

    name: str
    sealed: bytes
    digest: str
    created_at: float
    updated_at: float


class SecretKeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One secret key of an app; `type` is a `keyring.KeyType`. Times are Unix seconds."""

    name: str
    type: str
    sealed: bytes
    public: bytes | None
    created_at: float
    updated_at: float


class SecretsVersion(msgspec.Struct, frozen=True, kw_only=True):
    """Counts the changes of an app's secrets, also over the app's end."""

    number: int


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """The secrets that one version of a machine was given, by name, sealed as the app's are."""

    app: AppName
    sealed: dict[str, bytes]


class IpRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An address of an app; `type` is an `ips.IpType`. `shared`: others have it, too. `network` and `org` say where a
    private one is."""

    id: str
    ip: str
    type: str
    region: str
    service_name: str
    shared: bool
    network: str = ""
    org: str = ""
    created_at: float


class IpOwner(msgspec.Struct, frozen=True, kw_only=True):
    """Whose an address is that is not shared."""

    app: AppName


class PortRule(msgspec.Struct, frozen=True, kw_only=True):
    """Without a port, every one of the protocol."""

    protocol: Transport
    port: int | None = None


class PolicyRule(msgspec.Struct, frozen=True, kw_only=True):
    """What it allows; None is everything."""

    direction: Direction
    ports: tuple[PortRule, ...] | None = None


class PolicySelector(msgspec.Struct, frozen=True, kw_only=True):
    """Machines of an app: all, these, or those with all of these pairs of metadata."""

    all: bool = False
    machines: tuple[str, ...] = ()
    metadata: dict[str, str] = {}


class PolicyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One network policy of an app. Times are Unix seconds."""

    id: str
    name: str
    selector: PolicySelector
    rules: tuple[PolicyRule, ...]
    created_at: float
    updated_at: float


class MachineKey(msgspec.Struct, frozen=True, kw_only=True):
    """A pointer in an index: to a machine by name, by app or by order id."""

    id: MachineId


class ArchiveRecord(msgspec.Struct, frozen=True, kw_only=True):
    """That a destroyed machine's history is in an archive, whole: when it was seen there, where, and how large."""

    archive: str
    bytes: int
    at: float


NODE = Bucket("node", NodeRecord)
COPY = Bucket("copy", CopyRecord)  # the one key "self"
APPS = Bucket("apps", AppRecord)  # app name
CARRIED_APPS = Bucket("carried_apps", CarriedApp)  # app name
NAMES = Bucket("app_names", NameRecord)  # app name
MACHINES = Bucket("machines", MachineRecord)  # machine id
DESTROYED = Bucket("destroyed", MachineRecord)  # machine id
ARCHIVED = Bucket("archived", ArchiveRecord)  # machine id; only of those in DESTROYED
BY_APP = Bucket("machines_by_app", MachineKey)  # app/id
BY_NAME = Bucket("machines_by_name", MachineKey)  # app/name
BY_ORDER = Bucket("machines_by_order", MachineKey)  # app/order id
BY_IPV4 = Bucket("machines_by_ipv4", MachineKey)  # address
EVENTS = Bucket("events", EventRecord)  # machine id/event id
VERSIONS = Bucket("versions", VersionRecord)  # machine id/version
USED = Bucket("used", Resources)  # the one key "all": the sum of what the machines hold
SECRETS = Bucket("secrets", SecretRecord)  # app/name
SECRET_KEYS = Bucket("secret_keys", SecretKeyRecord)  # app/name
SECRETS_VERSIONS = Bucket("secrets_versions", SecretsVersion)  # app
PINNED = Bucket("machine_secrets", Pinned)  # machine id/version
IPS = Bucket("ips", IpRecord)  # app/address
IPS_TAKEN = Bucket("ips_taken", IpOwner)  # address; without those that are shared
POLICIES = Bucket("network_policies", PolicyRecord)  # app/id
