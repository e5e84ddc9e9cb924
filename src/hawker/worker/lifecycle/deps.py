"""What the steps of every flow are given; and the other nodes of the fleet, as moves and deploys need them: the way to
each, who could take something, and what only nodes of the cluster can read. There once the process answers; a node
alone has none.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from hawker.api.caller import Caller, LateCaller
from hawker.api.directory import Node
from hawker.archive.archive import Archive
from hawker.clock import Clock
from hawker.errors import NotServed, Unavailable
from hawker.fsm.contract import Resource, StepContext, WhenBusy
from hawker.ids import AppName, MachineId, NodeId, RunId, VolumeId
from hawker.image.cache import ImageCache
from hawker.logs.machine_logs import MachineLogs
from hawker.netpolicy.policies import PolicyEnforcer
from hawker.node import Capacity
from hawker.record.app import AppRecord
from hawker.record.machine import MachineRecord, machine_id_of
from hawker.runtime.driver import NodeDriver
from hawker.secret.certificates import Certificates
from hawker.secret.registry_logins import RegistryLogins
from hawker.secret.secret_keys import SecretKeyStore
from hawker.secret.secrets import Secrets
from hawker.settings import Settings
from hawker.store.contract import Reader, Store, Tx
from hawker.value_object import ValueObject
from hawker.volume.disks import Backups, Copies, Disks
from hawker.volume.encryption import VolumeKeys
from hawker.volume.moved_files import MovedFiles
from hawker.volume.table import VolumeTable
from hawker.worker.apps import AppFiles
from hawker.worker.edge_line import EdgeLine
from hawker.worker.lifecycle.host_adapters import Devices, Networks, Rootfs
from hawker.worker.table import MachineTable


class OtherNodes(Protocol):
    @property
    def me(self) -> NodeId: ...

    def caller(self, node: NodeId) -> Caller:
        """The way to its peer API. Raises `Unavailable`."""

    def nodes(self) -> Sequence[Node]:
        """All nodes that are known, this one too."""

    def nodes_of_app(self, app: AppName) -> Sequence[NodeId]:
        """All nodes that know the app, as far as is known here."""

    def seen_at(self, machine: MachineId) -> NodeId | None:
        """The node at which the catalog has the machine, as far as it is known here."""

    def volume_seen_at(self, volume: VolumeId) -> NodeId | None:
        """The node at which the catalog has the volume, as far as it is known here."""

    def seen_generation(self, machine: MachineId) -> int:
        """The greatest that the catalog has of the machine; 0 when it has none."""

    async def lost_since(self, node: NodeId) -> float | None:
        """The moment since which gossip calls the node down and its host is silent: Unix seconds, 0 for a node that
        nobody knows; None while it lives."""

    def is_forgotten(self, node: NodeId) -> bool:
        """An operator said that it never comes back, and it has not, as far as is known here."""

    def pack(self, reader: Reader, app: AppRecord) -> bytes: ...

    def unpack(self, tx: Tx, app: AppRecord, packed: bytes) -> None: ...

    def seal(self, data: bytes) -> bytes:
        """Seals `data` for nodes of the cluster alone."""

    def open(self, sealed: bytes) -> bytes:
        """The data that was sealed. Raises `Unavailable` when it was sealed with a key that is not known here."""


class LateNodes:
    """Others that are there once the process answers, for what is built before that."""

    def __init__(self) -> None:
        self._others: OtherNodes | None = None

    def meet(self, others: OtherNodes) -> None:
        self._others = others

    @property
    def are_there(self) -> bool:
        return self._others is not None

    @property
    def there(self) -> OtherNodes:
        """The other nodes. Raises `Unavailable` before they are known: runs are resumed while a node is on its way
        up."""
        if self._others is None:
            raise Unavailable("this node does not know of any others")
        return self._others

    def check(self) -> None:
        """Checks that there are other nodes, for calls that are answered. Raises `NotServed` on a node that is
        alone."""
        if self._others is None:
            raise NotServed("this node is in no cluster, so there is nowhere to move anything")


class LateRuns:
    """Begins runs, for steps: the runner is built after what steps are given."""

    def __init__(self) -> None:
        self._accept: Callable[..., RunId] | None = None

    def meet(self, accept: Callable[..., RunId]) -> None:
        self._accept = accept

    def accept(self, tx: Tx, flow: str, resource: Resource, input: msgspec.Struct) -> RunId:
        """Accepts a run, in line behind what is under way at the resource."""
        assert self._accept is not None, "a worker is assembled before it runs anything"
        return self._accept(tx, flow, resource, input, when_busy=WhenBusy.QUEUE)


class LateRoom:
    """The capacity that the host has to sell, for steps: it is looked at once the worker is assembled."""

    def __init__(self) -> None:
        self._room: Callable[[], Capacity] | None = None

    def meet(self, room: Callable[[], Capacity]) -> None:
        self._room = room

    def __call__(self) -> Capacity:
        assert self._room is not None, "a worker is assembled before it runs anything"
        return self._room()


I = TypeVar("I", bound=msgspec.Struct)  # noqa: E741 - a flow's input


class FlowDeps(ValueObject, frozen=True):
    """`rootfs` and `networks` are None for drivers that use the host's own; `archive` where histories are not kept,
    `disks` and `copies` where there are no volumes, `backups` where they go nowhere, `gpus` where the node has none,
    `logs` where none are kept; `files`, what was uploaded for machines, where no such files are. `fleet` answers every
    call that a client may make, once the node answers; `others` are the other nodes, `moved_files` what moves do with
    volumes' files. `runs` begins runs of the worker, `room` is what the host has to sell. `claims` has the moves by
    which something came that was found to be the node's own still, in this life of the daemon."""

    store: Store
    table: MachineTable
    images: ImageCache
    driver: NodeDriver
    rootfs: Rootfs | None
    networks: Networks | None
    settings: Settings
    clock: Clock
    secrets: Secrets
    secret_keys: SecretKeyStore
    certificates: Certificates
    logins: RegistryLogins
    enforcer: PolicyEnforcer
    volumes: VolumeTable
    archive: Archive | None = None
    disks: Disks | None = None
    copies: Copies | None = None
    volume_keys: VolumeKeys | None = None
    backups: Backups | None = None
    gpus: Devices | None = None
    edge: EdgeLine = msgspec.field(default_factory=EdgeLine)
    logs: MachineLogs | None = None
    files: AppFiles | None = None
    fleet: LateCaller = msgspec.field(default_factory=LateCaller)
    moved_files: MovedFiles | None = None
    others: LateNodes = msgspec.field(default_factory=LateNodes)
    runs: LateRuns = msgspec.field(default_factory=LateRuns)
    room: LateRoom = msgspec.field(default_factory=LateRoom)
    claims: set[str] = msgspec.field(default_factory=set)


Context: TypeAlias = StepContext[FlowDeps, I]


def machine_of(context: StepContext[FlowDeps, msgspec.Struct]) -> MachineRecord:
    """The record as last committed. Raises `NotFound`. Inside a commit, ask the transaction instead."""
    return context.deps.table.get(context.deps.store, machine_id_of(context))


async def drain_output(context: StepContext[FlowDeps, msgspec.Struct], next_instance: str = "") -> None:
    """Waits until the app's log has all of the machine's output, before that goes with all that it has or for the next
    instance."""
    if context.deps.logs is not None:
        await context.deps.logs.drain(machine_id_of(context), next_instance)


def machine_in(tx: Tx, context: StepContext[FlowDeps, msgspec.Struct]) -> MachineRecord:
    """The record as the transaction sees it; for commits, which run in the store's writer."""
    return context.deps.table.get(tx, machine_id_of(context))
