"""What flows ask of the host for machines: root filesystems and networks. `rootfs`, `root_disks` and `network` beside
this file keep these promises."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from hawker.config.effective import EffectiveTempDir
from hawker.config.rules import demand_of
from hawker.gpu import assigned
from hawker.ids import Digest, InstanceId, MachineId
from hawker.record.machine import MachineRecord, Network, claimed_by
from hawker.runtime.driver import ALIVE, Driver
from hawker.runtime.spec import GuestLink
from hawker.volume.moved_files import FilePlace


class ContainerRoot(msgspec.Struct, frozen=True, kw_only=True):
    """The image that one container's root filesystem is made from, by the container's name."""

    name: str
    """The container's, unique in its machine."""
    image: Digest


class ContainerMounts(msgspec.Struct, frozen=True, kw_only=True):
    """The directories at which a machine's containers have their roots and shared volumes, by name; `machine` is an
    empty directory that is the root of the machine itself."""

    machine: str
    roots: dict[str, str]
    """Paths on the host, by the name of the container."""
    volumes: dict[str, str]
    """Paths on the host, by the name of the shared directory."""


class Rootfs(Protocol):
    """A machine's root filesystem on the host: the image below, a writable layer of one instance above."""

    async def mount(
        self,
        machine_id: MachineId,
        instance_id: InstanceId,
        image: Digest,
        *,
        kept: str | None = None,
        size_mib: int | None = None,
        first_id: int | None = None,
    ) -> str:
        """The mounted path. Fresh for a new instance, unchanged for the same one; what was written is still there if
        it is `kept` under this name. The machine may write up to `size_mib`, or what the node gives to each. With
        `first_id` that user of the host is its root."""

    async def mount_containers(
        self,
        machine_id: MachineId,
        instance_id: InstanceId,
        roots: Sequence[ContainerRoot],
        volumes: Sequence[EffectiveTempDir],
        *,
        size_mib: int | None = None,
        first_id: int | None = None,
    ) -> ContainerMounts:
        """Mounts the roots of a machine with containers, and the volumes that they share."""

    async def unmount(self, machine_id: MachineId, *, kept: str | None = None) -> None:
        """Give back every writable layer but the one of this name; no error when there is none."""

    async def remove(self, machine_id: MachineId) -> None:
        """Unmount and remove the machine's directory."""

    def kept(self, machine_id: MachineId, name: str) -> FilePlace:
        """The layer that is kept under this name, whether it is there or not."""

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
        """The link that a machine with a kernel of its own is to set up from what `ensure` made for it; None for all
        others."""

    def private_ip(self, network_id: int, machine_id: MachineId) -> str:
        """The address that the machine has in the private network, on any host."""

    async def delete(self, machine_id: MachineId) -> None: ...

    async def sweep(self) -> None:
        """Remove what no machine uses any more."""

    async def withdraw(self) -> None:
        """Leave nothing on the host, for a node that has no machines and is not coming back."""

    async def list(self) -> list[MachineId]: ...

    async def lost(self, networks: Mapping[MachineId, Network]) -> dict[MachineId, str]:
        """The running machines of `networks` that have lost their namespace or their link, each with a sentence about
        what it is."""

    async def reconnect(self, machine_id: MachineId, network: Network, pid: int) -> None:
        """Bind the namespace of process `pid` again and plug it in, without touching the machine."""

    async def links(self) -> tuple[str, ...]:
        """The names of the links of machines that this node has on the host."""

    def link_of(self, machine_id: MachineId) -> str:
        """The name of a machine's link."""

    def traffic(self, machine_id: MachineId) -> tuple[int, int] | None:
        """Bytes that the machine received and sent since its link was made; None when it is not there."""

    async def unlink(self, name: str) -> None:
        """Remove a link; no error when it is gone."""

    async def guarded(self) -> bool:
        """Whether the node's packet rules are in place."""

    async def guard(self) -> None:
        """Put them in place."""

    async def serve_at(self, addresses: Mapping[int, frozenset[str]]) -> None:
        """Makes these addresses of private networks, by network, the host's own from now on, and no others that were.
        Raises `OSError`."""

    async def withhold(self, members: frozenset[str]) -> None:
        """Keeps machines from reaching these addresses, which are those of the fleet's members, from now on. Raises
        `Fault` or `OSError`; the next sweep comes back to it."""

    async def dropped(self) -> Mapping[str, int]:
        """The number of packets of machines that were dropped, by reason."""


# The GPUs of an instance: made ready on the host just before it is begun.


class Devices(Protocol):
    """Devices of the host by their PCI addresses."""

    async def take(self, addresses: Sequence[str]) -> None:
        """Make these ready for one machine, as its own and fresh; only while nobody has them open. Idempotent. Raises
        `Unavailable` with what to do."""


def gpus_of(record: MachineRecord) -> tuple[str, ...]:
    """The addresses of an instance's devices. Pure: the same for a launch that is repeated."""
    return tuple(gpu.address for gpu in assigned(demand_of(record.config), claimed_by(record)))


async def take_gpus(devices: Devices | None, driver: Driver, record: MachineRecord) -> None:
    """Takes the machine's GPUs before an instance is begun; an instance that runs already, as after a daemon's death,
    keeps its devices as they are."""
    addresses = gpus_of(record)
    if not addresses or (await driver.inspect(record.id)).phase in ALIVE:
        return
    assert devices is not None, "a node whose machines have GPUs has devices"
    await devices.take(addresses)
