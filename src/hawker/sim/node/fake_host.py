"""The played host of a simulated worker: machines, root filesystems, networks, GPUs, network policies and images. It
outlives the daemon; every call is an edge where the daemon may die.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hawker.clock import Clock
from hawker.config.effective import EffectiveTempDir
from hawker.errors import Fault, Unavailable
from hawker.host.network_policy import PacketFilter
from hawker.ids import Digest, InstanceId, MachineId
from hawker.image.blobs import ImageReader
from hawker.image.cache import ImageCache
from hawker.image.config import Image, ImageConfig
from hawker.image.limits import ImageSettings
from hawker.image.manifest import Resolved
from hawker.image.reference import Reference
from hawker.record.machine import Network
from hawker.runtime.driver import ALIVE, Exit, Phase
from hawker.runtime.fake_host import FakeFault, FakeHost, Instance
from hawker.runtime.spec import GuestLink, InstanceSpec
from hawker.sim.node.crash_points import CrashPoints, Death
from hawker.value_object import ValueObject
from hawker.volume.moved_files import FilePlace
from hawker.worker.lifecycle.host_adapters import ContainerMounts, ContainerRoot

_PIDS = 1000


class SimHost(FakeHost):
    """The fake host, with edges, with a memory of what was ever launched, and with process ids that are soon reused.

    `felled` are exits that the daemon itself brought about; `lost` counts the instances that went with the host.
    `strangers` are ids that processes of others took when an instance's own was free again."""

    def __init__(self, clock: Clock, crash_points: CrashPoints) -> None:
        super().__init__(clock)
        self._crash_points = crash_points
        self.launched: Counter[InstanceId] = Counter()
        self.ever: defaultdict[MachineId, list[Instance]] = defaultdict(list)
        self.doubled: list[MachineId] = []
        self.felled: list[Exit] = []
        self.lost: Counter[MachineId] = Counter()
        self.strangers: set[int] = set()

    def fault(self, call: str) -> FakeFault:
        asked = super().fault(call)
        before, after = self._crash_points.burns(), self._crash_points.burns()
        return FakeFault(error=Death(), after=after) if before or after else asked

    def place(self, spec: InstanceSpec) -> Instance:
        here = self.look(spec.machine_id)
        if here is not None and here.phase in ALIVE:
            self.doubled.append(spec.machine_id)
        return super().place(spec)

    def launch(self, instance: Instance) -> None:
        self.launched[instance.spec.instance_id] += 1
        self.ever[instance.spec.machine_id].append(instance)
        super().launch(instance)

    def _next_pid(self) -> int:
        self._last_pid = self._free_pid() - 1
        return super()._next_pid()

    def end(
        self, machine_id: MachineId, code: int = 0, *, signal: int = 0, oom_killed: bool = False, fault: str = ""
    ) -> None:
        """Its process id goes to a stranger at once."""
        here = self.look(machine_id)
        super().end(machine_id, code, signal=signal, oom_killed=oom_killed, fault=fault)
        if here is not None and here.phase is Phase.EXITED and here.pid is not None:
            self.strangers.add(here.pid)

    def deliver(self, instance: Instance, number: int) -> None:
        """The daemon sends a signal."""
        super().deliver(instance, number)
        if instance.exit is not None:
            self.felled.append(instance.exit)

    def alive(self) -> list[tuple[MachineId, Instance]]:
        here = [(machine_id, self.look(machine_id)) for machine_id in self.machines()]
        return [(key, it) for key, it in here if it is not None and it.phase in ALIVE]

    def running(self) -> dict[MachineId, InstanceId]:
        return {key: it.spec.instance_id for key, it in self.alive()}

    def limits(self) -> dict[MachineId, int]:
        return {key: it.spec.limits.memory_mib for key, it in self.alive()}

    def gpus(self) -> dict[MachineId, tuple[str, ...]]:
        """Which devices each running instance has."""
        return {key: it.spec.gpus for key, it in self.alive()}

    def suspended(self) -> frozenset[MachineId]:
        here = {machine_id: self.look(machine_id) for machine_id in self.machines()}
        return frozenset(key for key, it in here.items() if it is not None and it.phase is Phase.SUSPENDED)

    def reboot(self) -> None:
        """Whatever runs is gone without a word; what the pilots wrote of earlier ends is still on the disk, and so are
        the snapshots of what was suspended by one."""
        for machine_id in self.machines():
            here = self.look(machine_id)
            if here is not None and here.phase is not Phase.EXITED and machine_id not in self.memories:
                self.lost[machine_id] += here.phase in ALIVE
                self.launched.pop(here.spec.instance_id, None)  # a run that begins again launches it again
                del self._instances[machine_id]

    def forgive(self) -> None:
        """Nothing fails any more that was scripted."""
        self._faults.clear()

    def _free_pid(self) -> int:
        running = {instance.pid for instance in self._instances.values() if instance.phase in ALIVE}
        taken = running | self.strangers
        return next(pid for pid in range(_PIDS, _PIDS + len(taken) + 1) if pid not in taken)


class ScriptedFailure(ValueObject, frozen=True):
    """The next call of this name fails, before its effect or `after` it."""

    call: str
    """The name of the host's method."""
    after: bool


class FakeHostPart:
    """A part of the host whose calls have edges and fail when told to."""

    def __init__(self, crash_points: CrashPoints) -> None:
        self._crash_points = crash_points
        self.troubles: list[ScriptedFailure] = []

    async def _edge(self, call: str, *, after: bool = False) -> None:
        await self._crash_points.pass_edge()
        trouble = ScriptedFailure(call, after)
        if trouble in self.troubles:
            self.troubles.remove(trouble)
            raise OSError(f"{call} failed")


class FakeRootfs(FakeHostPart):
    """Keeps `host_adapters.Rootfs` in memory: what is mounted for which instance, and whose directories are there."""

    def __init__(self, crash_points: CrashPoints) -> None:
        super().__init__(crash_points)
        self.mounted: dict[MachineId, tuple[InstanceId, Digest]] = {}
        self.layers: dict[MachineId, tuple[str, InstanceId]] = {}  # its name, and whose first one it was
        self.writes: dict[tuple[MachineId, str], int] = {}  # to each layer that is kept, by its name
        self.directories: set[MachineId] = set()
        self.hidden: set[MachineId] = set()  # unmounted behind our back, while the instance has it
        self.stray: set[str] = set()
        self.duds: Callable[[MachineId], bool] = lambda _: False  # for which nothing can be mounted
        self.forgotten: list[Digest] = []
        self.swept = 0
        self.withdrawn = False

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
        await self._edge("mount")
        if self.duds(machine_id):
            raise Fault("this host mounts nothing for it")
        if kept is None or self.layers.get(machine_id, ("",))[0] != kept:
            self.layers[machine_id] = (kept or instance_id, instance_id)
        if kept is not None:
            self.writes.setdefault((machine_id, kept), 0)
        self.directories.add(machine_id)
        self.mounted[machine_id] = (instance_id, image)
        self.hidden.discard(machine_id)
        await self._edge("mount", after=True)
        return f"/machines/{machine_id}/rootfs"

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
        machine = await self.mount(machine_id, instance_id, roots[0].image)
        return ContainerMounts(
            machine=machine,
            roots={each.name: f"/machines/{machine_id}/containers/{each.name}" for each in roots},
            volumes={each.name: f"/machines/{machine_id}/volumes/{each.name}" for each in volumes},
        )

    async def unmount(self, machine_id: MachineId, *, kept: str | None = None) -> None:
        await self._edge("unmount")
        self.mounted.pop(machine_id, None)
        if self.layers.get(machine_id, ("",))[0] != kept:
            self.layers.pop(machine_id, None)
        for layer in [each for each in self.writes if each[0] == machine_id and each[1] != kept]:
            del self.writes[layer]
        await self._edge("unmount", after=True)

    async def remove(self, machine_id: MachineId) -> None:
        await self.unmount(machine_id)
        self.directories.discard(machine_id)
        await self._crash_points.pass_edge()

    def kept(self, machine_id: MachineId, name: str) -> FilePlace:
        machine = Path(f"/machines/{machine_id}")
        return FilePlace(machine / "disks" / name, machine / "layers" / name)

    async def forget_image(self, image: Digest) -> None:
        self.forgotten.append(image)

    async def sweep(self) -> None:
        self.swept += 1

    async def withdraw(self) -> None:
        self.withdrawn = True

    async def list(self) -> list[MachineId]:
        return sorted(self.directories)

    async def visible(self) -> frozenset[MachineId]:
        return frozenset(self.mounted.keys() - self.hidden)

    async def reveal(self, machine_id: MachineId, pid: int) -> None:
        await self._crash_points.pass_edge()
        self.hidden.discard(machine_id)

    async def strays(self) -> tuple[str, ...]:
        return tuple(sorted(self.stray))

    async def clear(self, stray: str) -> None:
        self.stray.discard(stray)


class FakeNetworks(FakeHostPart):
    """Keeps `host_adapters.Networks` in memory."""

    def __init__(self, crash_points: CrashPoints) -> None:
        super().__init__(crash_points)
        self.plugged: dict[MachineId, Network] = {}
        self.torn: dict[MachineId, str] = {}  # what was lost behind our back
        self.stray: set[str] = set()
        self.rules = True
        self.withheld: frozenset[str] = frozenset()
        self.swept = 0
        self.withdrawn = False

    def private_ip(self, network_id: int, machine_id: MachineId) -> str:
        return f"fdaa::{machine_id[:4]}:{machine_id[4:8]}:2"

    def link(self, machine_id: MachineId, network: Network) -> GuestLink | None:
        address = self.private_ip(network.network_id, machine_id)
        return GuestLink(mac="02:00:00:00:00:01", addresses=(f"{address}/64",), gateways=("fdaa::1",))

    async def ensure(self, machine_id: MachineId, network: Network) -> str:
        await self._edge("ensure")
        self.plugged[machine_id] = network
        self.torn.pop(machine_id, None)
        await self._edge("ensure", after=True)
        return f"/netns/{machine_id}"

    async def delete(self, machine_id: MachineId) -> None:
        await self._edge("delete")
        self.plugged.pop(machine_id, None)
        await self._edge("delete", after=True)

    async def sweep(self) -> None:
        self.swept += 1

    async def withdraw(self) -> None:
        self.withdrawn = True

    async def list(self) -> list[MachineId]:
        return sorted(self.plugged)

    async def lost(self, networks: Mapping[MachineId, Network]) -> dict[MachineId, str]:
        return {each: what for each, what in self.torn.items() if each in networks}

    async def reconnect(self, machine_id: MachineId, network: Network, pid: int) -> None:
        await self.ensure(machine_id, network)

    async def links(self) -> tuple[str, ...]:
        return tuple(sorted({*self.stray, *map(self.link_of, self.plugged)}))

    def link_of(self, machine_id: MachineId) -> str:
        return f"link-{machine_id[:8]}"

    def traffic(self, machine_id: MachineId) -> tuple[int, int] | None:
        """Nothing is carried here."""
        return None

    async def unlink(self, name: str) -> None:
        self.stray.discard(name)

    async def guarded(self) -> bool:
        return self.rules

    async def guard(self) -> None:
        self.rules = True

    async def serve_at(self, addresses: Mapping[int, frozenset[str]]) -> None:
        pass

    async def withhold(self, members: frozenset[str]) -> None:
        self.withheld = members

    async def dropped(self) -> Mapping[str, int]:
        return {}


class FakeGpus(FakeHostPart):
    """Keeps `host_adapters.Devices`. `broken` devices cannot be taken; `torn` were reset while a running instance
    had them."""

    def __init__(self, crash_points: CrashPoints, host: SimHost) -> None:
        super().__init__(crash_points)
        self._host = host
        self.broken: set[str] = set()
        self.ready: set[str] = set()
        self.torn: set[str] = set()

    async def take(self, addresses: Sequence[str]) -> None:
        await self._edge("take_gpus")
        for address in addresses:
            if address in self.broken:
                raise Unavailable(f"device {address} cannot be given to a machine: it is broken")
            if any(address in held for held in self._host.gpus().values()):
                self.torn.add(address)
            self.ready.add(address)
        await self._edge("take_gpus", after=True)


class FakePolicies:
    """Keeps `netpolicy.policies.HostFilters` in memory. `refusal` is why there can be none; `broken` makes the
    next ones fail."""

    def __init__(self, crash_points: CrashPoints) -> None:
        self._crash_points = crash_points
        self.standing: tuple[PacketFilter, ...] = ()
        self.refusal = ""
        self.broken = 0
        self.raised = 0

    async def install_filters(self, wanted: Sequence[PacketFilter]) -> None:
        if self.broken:
            self.broken -= 1
            raise Fault("nft refused the rules")
        if self.standing == tuple(wanted):
            return
        await self._crash_points.pass_edge()
        self.standing = tuple(wanted)
        self.raised += 1
        await self._crash_points.pass_edge()

    async def in_force(self, wanted: Sequence[PacketFilter]) -> bool:
        return self.standing == tuple(wanted)

    async def lack_of_filters(self) -> str:
        return self.refusal


# The images of a simulated node: one, which is brought here in virtual time. The real cache has tests of its own.


class FakeRegistry:
    """Outlives the daemon: what is cached here, how long a pull takes, and how many of the next ones fail."""

    def __init__(self) -> None:
        self.cached: dict[str, Image] = {}
        self.pull_s = 0.5
        self.fails = 0


def block_file(digest: Digest) -> Path:
    """Where a guest's image would be; nobody looks."""
    return Path("/images") / f"{digest.removeprefix('sha256:')}.erofs"


class FakeImages(ImageCache):
    """Keeps what flows ask of the cache; touches no file."""

    def __init__(self, registry: FakeRegistry, clock: Clock) -> None:
        super().__init__(Path("images"), ImageSettings(allow_local=True), clock)
        self._registry = registry
        self._now = clock

    async def open(self) -> None:
        """Nothing to repair."""

    async def resolve(self, reference: Reference | str, *arguments: Any, **named: Any) -> Resolved:
        name = str(reference)
        return Resolved(
            reference=name,
            registry="",
            repository=name,
            tag="latest",
            digest=Digest(f"sha256:{name.encode().hex():0<64}"),
            size_bytes=1_000_000,
        )

    async def fetch(self, resolved: Resolved, *arguments: Any, **named: Any) -> None:
        await self._now.sleep(self._registry.pull_s)
        if self._registry.fails > 0:
            self._registry.fails -= 1
            raise Unavailable("the registry does not answer")

    async def build(self, resolved: Resolved, *arguments: Any, **named: Any) -> Image:
        image = Image(
            digest=resolved.digest,
            reference=resolved.reference,
            registry="",
            repository=resolved.repository,
            tag="latest",
            config=ImageConfig(cmd=("serve",)),
            config_digest=resolved.digest,
            layers=(),
            size_bytes=resolved.size_bytes,
            rootfs_bytes=0,
            rootfs_type="",
            created_at=self._now.now(),
        )
        self._registry.cached[resolved.digest] = image
        return image

    def find(self, reference_or_digest: str) -> Image | None:
        return self._registry.cached.get(reference_or_digest)

    def is_here_for(self, resolved: Resolved, org: ImageReader) -> bool:
        """To everybody."""
        return self.find(resolved.digest) is not None

    def block_path(self, digest: Digest) -> Path:
        return block_file(digest)

    def mark_used(self, digest: Digest) -> None:
        """Nothing is ever pruned."""
