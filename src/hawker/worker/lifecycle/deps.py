"""What the steps of every flow are given, and the two adapters to the host that they use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from hawker.archive.archive import Archive
from hawker.clock import Clock
from hawker.config.effective_containers import TempDir
from hawker.fsm.contract import StepContext
from hawker.ids import Digest, InstanceId, MachineId
from hawker.image.cache import ImageCache
from hawker.netpolicy.enforcement import Fences
from hawker.record.machine import MachineRecord, Network, machine_id_of
from hawker.runtime.driver import NodeDriver
from hawker.runtime.spec import GuestLink
from hawker.secret.secret_keys import SecretKeys
from hawker.secret.secrets import Secrets
from hawker.settings import Settings
from hawker.store.contract import Store, Tx
from hawker.volume.copies import Copies
from hawker.volume.disks import Disks
from hawker.volume.encryption import VolumeKeys
from hawker.volume.table import VolumeTable
from hawker.worker.lifecycle.gpus import Devices
from hawker.worker.table import MachineTable

I = TypeVar("I", bound=msgspec.Struct)  # noqa: E741 - a flow's input


class ContainerRoot(msgspec.Struct, frozen=True, kw_only=True):
    """The image that one container's root filesystem is made from, by the container's name."""

    name: str
    image: Digest


class ContainerMounts(msgspec.Struct, frozen=True, kw_only=True):
    """Where a machine's containers have their roots and shared volumes, by name; `machine` is an empty directory that
    is the root of the machine itself."""

    machine: str
    roots: dict[str, str]
    volumes: dict[str, str]


class Rootfs(Protocol):
    """A machine's root filesystem on the host: the image below, a writable layer of one instance above."""

    async def mount(
        self, machine_id: MachineId, instance_id: InstanceId, image: Digest, *, kept: str | None = None
    ) -> str:
        """The mounted path. Fresh for a new instance, unchanged for the same one; what was written is still there if
        it is `kept` under this name."""

    async def mount_containers(
        self,
        machine_id: MachineId,
        instance_id: InstanceId,
        roots: Sequence[ContainerRoot],
        volumes: Sequence[TempDir],
    ) -> ContainerMounts:
        """The same for a machine with containers, and the volumes that they share."""

    async def unmount(self, machine_id: MachineId, *, kept: str | None = None) -> None:
        """Give back every writable layer but the one of this name; no error when there is none."""

    async def remove(self, machine_id: MachineId) -> None:
        """Unmount and remove the machine's directory."""

    async def forget_image(self, image: Digest) -> None:
        """Let go of an image that was removed."""

    async def sweep(self) -> None:
        """Free the space of what was unmounted and removed."""

    async def withdraw(self) -> None:
        """Leave nothing mounted, for a node that has no machines and is not coming back."""

    async def list(self) -> list[MachineId]: ...

    async def visible(self) -> frozenset[MachineId]:
        """Machines whose root filesystem is mounted here now."""

    async def reveal(self, machine_id: MachineId, pid: int) -> None:
        """Mount here again what process `pid` of the machine has as its root, without touching the machine."""

    async def strays(self) -> tuple[str, ...]:
        """Mounts and loop devices of this node's files that belong to no machine and no image."""

    async def clear(self, stray: str) -> None:
        """Remove one of them; no error when it is gone."""


class Networks(Protocol):
    """A machine's network on the host."""

    async def ensure(self, machine_id: MachineId, network: Network) -> str:
        """The bound network namespace."""

    def link(self, machine_id: MachineId, network: Network) -> GuestLink | None:
        """How a machine with a kernel of its own is to set up what `ensure` made for it; None for all others."""

    def private_ip(self, network_id: int, machine_id: MachineId) -> str:
        """The address that the machine has in the private network, on any host."""

    async def delete(self, machine_id: MachineId) -> None: ...

    async def sweep(self) -> None:
        """Remove what no machine uses any more."""

    async def withdraw(self) -> None:
        """Leave nothing on the host, for a node that has no machines and is not coming back."""

    async def list(self) -> list[MachineId]: ...

    async def lost(self, networks: Mapping[MachineId, Network]) -> dict[MachineId, str]:
        """Which of these running machines have lost their namespace or their link, and what it is, in a sentence."""

    async def reconnect(self, machine_id: MachineId, network: Network, pid: int) -> None:
        """Bind the namespace of process `pid` again and plug it in, without touching the machine."""

    async def links(self) -> tuple[str, ...]:
        """The names of the links of machines that this node has on the host."""

    def link_of(self, machine_id: MachineId) -> str:
        """What a machine's link is called."""

    async def unlink(self, name: str) -> None:
        """Remove a link; no error when it is gone."""

    async def guarded(self) -> bool:
        """Whether the node's packet rules are in place."""

    async def guard(self) -> None:
        """Put them in place."""


@dataclass(frozen=True, slots=True)
class Deps:
    """`rootfs` and `networks` are None for drivers that use the host's own; `archive` where histories are not kept,
    `disks` and `copies` where there are no volumes, `gpus` where the node has none."""

    store: Store
    table: MachineTable
    images: ImageCache
    driver: NodeDriver
    rootfs: Rootfs | None
    networks: Networks | None
    settings: Settings
    clock: Clock
    secrets: Secrets
    secret_keys: SecretKeys
    fences: Fences
    volumes: VolumeTable
    archive: Archive | None = None
    disks: Disks | None = None
    copies: Copies | None = None
    volume_keys: VolumeKeys | None = None
    gpus: Devices | None = None


Context: TypeAlias = StepContext[Deps, I]


def machine_of(context: StepContext[Deps, msgspec.Struct]) -> MachineRecord:
    """The record as last committed. Raises `NotFound`. Inside a commit, ask the transaction instead."""
    return context.deps.table.get(context.deps.store, machine_id_of(context))


def machine_in(tx: Tx, context: StepContext[Deps, msgspec.Struct]) -> MachineRecord:
    """The record as the transaction sees it; for commits, which run in the store's writer."""
    return context.deps.table.get(tx, machine_id_of(context))
