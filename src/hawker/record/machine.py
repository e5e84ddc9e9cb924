"""What a worker stores of its machines: the records, and the buckets they live in. The store is the only truth; nothing
here is cached.

Records tolerate unknown fields, so that an older worker reads what a newer one wrote.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from hawker.config import MachineConfig
from hawker.config.rules import demand_of
from hawker.fsm.contract import Resource, StepContext
from hawker.gpu import Gpu, assigned, choose, keep
from hawker.ids import AppName, EventId, InstanceId, MachineId, OrderId, Version
from hawker.image.manifest import Resolved
from hawker.machine import State
from hawker.node import Resources
from hawker.record.app import WIREGUARD_PEERS
from hawker.runtime.driver import Exit
from hawker.store.contract import Bucket, Reader
from hawker.value_object import ValueObject


class Network(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of a machine: `private_ip` is IPv6 and stays; `ipv4` is for traffic outwards only, None without
    one."""

    private_ip: str
    ipv4: str | None = None
    network_id: int  # the 32 bits of its private network, 0 to 2^32 - 1, which its address has


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A client's exclusive right to change a machine until `expires_at` (Unix seconds)."""

    nonce: str  # 16 hex digits; whoever shows it may change the machine
    owner: str  # name of the token that took the lease, for people
    description: str  # text of the owner for people; may be empty
    expires_at: float


class ContainerRetry(msgspec.Struct, frozen=True, kw_only=True):
    """A restart of a container: its run number `run` is, or is about to be, the `count`-th automatic restart in a
    row."""

    run: int
    count: int


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """The latest instance. `exit` is set once, when its exit is recorded; `started_at` stays None if it never ran.
    `retries` has each container that was started again by itself, by its name."""

    instance_id: InstanceId
    pid: int | None = None  # id of its process on the host; None before it was launched
    started_at: float | None = None
    exit: Exit | None = None
    retries: dict[str, ContainerRetry] = {}
    memory_mib: int | None = None  # memory limit in MiB that a call has set since; None: the config's


class Previous(msgspec.Struct, frozen=True, kw_only=True):
    """The version and the state to which an update falls back when the new version cannot be prepared."""

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
    `rested` is the one that was stopped or suspended because nobody needed it, unless somebody has stopped the machine
    since.
    `container_images` has one for each container, by its name; `image` is then only what the machine shows."""

    id: MachineId
    app: AppName
    name: str  # name of the machine, unique in the app
    region: str  # region of the machine's node
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
    rested: InstanceId | None = None
    restarts: int = 0  # automatic restarts in a row, 0 or more
    cordoned: bool = False  # the edge sends it no new connections
    lease: Lease | None = None
    previous: Previous | None = None
    order: OrderId | None = None  # id of the order that the machine was made for
    generation: int = 1  # how many nodes have owned the machine, 1 or more
    first_id: int | None = None  # first user and group id of the host that is its own; None: it never had any
    last_event: EventId = EventId("")
    events: int = 0  # how many events of the machine are stored, 0 to `EVENTS_KEPT`
    created_at: float  # Unix seconds when the machine was created
    updated_at: float  # Unix seconds of the last change; each change has a later one


class Detail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What belongs to one event: how an instance ended and whether that was asked for, or what went wrong."""

    exit: Exit | None = None
    requested_stop: bool = False  # somebody asked the instance to end
    restarting: bool = False  # another instance follows, which the machine's restart policy starts
    restart_count: int = 0  # automatic restarts in a row, 0 or more, this one included
    resumed: bool = False  # the start went on with the instance that was suspended
    error: str = ""  # text for people that says what went wrong; empty for nothing
    version: str = ""  # version that the event is about, a ULID; empty for the machine's present one


class EventRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to a machine. Keyed by machine and id, so newest last."""

    id: EventId
    type: str  # kind of the event: `launch`, `start`, `exit` and the like, as the Machines API has it
    status: str  # state that came of it: `started`, `stopped`, `failed` and the like
    source: str  # `user` where a client asked for it, else `flyd`
    at: float  # Unix seconds when it happened
    detail: Detail | None = None


class VersionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a machine's config, kept after it was replaced."""

    version: Version
    config: MachineConfig
    image: Resolved
    container_images: dict[str, Resolved] = {}
    created_at: float  # Unix seconds of the create or update that made the version


class MachineKey(msgspec.Struct, frozen=True, kw_only=True):
    """A pointer in an index: to a machine by name, by app or by order id."""

    id: MachineId


MACHINES = Bucket("machines", MachineRecord)  # machine id
DESTROYED = Bucket("destroyed", MachineRecord)  # machine id
BY_APP = Bucket("machines_by_app", MachineKey)  # app/id
BY_NAME = Bucket("machines_by_name", MachineKey)  # app/name
BY_ORDER = Bucket("machines_by_order", MachineKey)  # app/order id
BY_IPV4 = Bucket("machines_by_ipv4", MachineKey)  # address
BY_FIRST_ID = Bucket("machines_by_first_id", MachineKey)  # the first of its ids, in ten digits
EVENTS = Bucket("events", EventRecord)  # machine id/event id
VERSIONS = Bucket("versions", VersionRecord)  # machine id/version


def id_key(first_id: int) -> str:
    return f"{first_id:010}"


def rests(record: MachineRecord) -> bool:
    """Whether it sleeps because nobody needed it, and not because somebody wants it to, or because it ended."""
    running = record.running
    asleep = record.state in (State.STOPPED, State.SUSPENDED)
    return asleep and running is not None and running.instance_id == record.rested


def current_lease(record: MachineRecord, now: float) -> Lease | None:
    return record.lease if record.lease is not None and record.lease.expires_at > now else None


def machine_resource(machine_id: MachineId) -> Resource:
    return Resource(kind="machine", id=machine_id)


def machine_id_of(context: StepContext[Any, Any]) -> MachineId:
    return MachineId(context.resource.id)


class MachineTarget(ValueObject, frozen=True):
    """The machine that a call means, and the lease nonce that the caller showed."""

    app: AppName
    machine_id: str  # id of the machine as the caller wrote it: not checked yet
    nonce: str | None  # nonce of the lease that the caller showed; None where it showed none


class CheckResult(ValueObject, frozen=True):
    """The latest answer of one check. `status` is passing, warning (not asked yet) or critical; `at` Unix seconds."""

    name: str  # name of the check, as `config.effective.checks` gives it
    status: str
    output: str  # answer to the check, or why there was none, for people
    at: float


# Which GPUs are whose. A claim is a device's address in a machine's record, and counts for as long as the machine
# has room on the node: who rests has none. Nothing else knows it, so nothing can disagree; it is chosen in the
# transaction that admits the machine.


def claimed_by(record: MachineRecord) -> tuple[Gpu, ...]:
    """What a machine holds now. Its record may still name what it gave back with its room."""
    return record.gpus if record.holds.memory_mib else ()


def taken(reader: Reader, but: MachineId | None = None) -> frozenset[str]:
    """The addresses of all devices that machines hold."""
    records = (record for _, record in reader.scan(MACHINES) if record.id != but)
    return frozenset(gpu.address for record in records for gpu in claimed_by(record))


def claim(
    reader: Reader, devices: Sequence[Gpu], config: MachineConfig, record: MachineRecord
) -> tuple[Gpu, ...] | dict[str, int]:
    """What a machine of this config shall hold, beside what it holds; or what is missing, as `shortfall` tells it."""
    demand, held = demand_of(config), claimed_by(record)
    if demand is None:
        return held
    others = taken(reader, but=record.id)
    chosen = choose(demand, devices, others, held)
    if chosen is not None:
        return keep(chosen, held)
    free = sum(gpu.kind == demand.kind and gpu.address not in others for gpu in devices)
    return {short_of(demand.kind): demand.count - free}


def short_of(kind: str) -> str:
    """What a shortfall calls a kind of GPU."""
    return f"gpus.{kind}"


def kept_for(record: MachineRecord, config: MachineConfig) -> tuple[Gpu, ...]:
    """What of its devices a machine keeps once an instance of this config is the only one."""
    return assigned(demand_of(config), claimed_by(record))


class _OnNetwork(msgspec.Struct, frozen=True, kw_only=True):
    """A machine's record, without what takes long to read."""

    network: Network


_NETWORKS = Bucket(MACHINES.name, _OnNetwork)


def networks_here(reader: Reader) -> frozenset[int]:
    """The private networks that have machines on this node, or people's computers that come in through it."""
    peers = (record.network_id for _, record in reader.scan(WIREGUARD_PEERS))
    return frozenset((*(record.network.network_id for _, record in reader.scan(_NETWORKS)), *peers))


def counted(gpus: Iterable[Gpu]) -> dict[str, int]:
    """By kind."""
    return dict(sorted(Counter(gpu.kind for gpu in gpus).items()))


class ArchiveRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The whole history of a destroyed machine is in an archive: when it was seen there, where, and how large."""

    archive: str  # name of the archive
    bytes: int  # bytes of the history, as it was sent to the archive
    at: float  # Unix seconds when the history was seen in the archive


ARCHIVED = Bucket("archived", ArchiveRecord)  # machine id; only of those in DESTROYED
