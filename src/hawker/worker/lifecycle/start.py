"""Flow `start`: a fresh root filesystem, the network, a new instance. Its steps also end create, restart, update.
Flow `create`: the image, then as `start`; a machine that cannot be prepared is taken back whole.

A launch that the machine no longer awaits, because it was stopped or begun anew meanwhile, leaves everything as it is.
"""

import anyio
import msgspec

from hawker.config.effective import rootfs_mib, temp_dirs, uploads_of
from hawker.fsm.contract import Backoff, Done, EndedRun, Ending, Flow, Outcome, Step
from hawker.host.uplink import nameservers
from hawker.ids import InstanceId
from hawker.image.blobs import NODE, ImageReader
from hawker.image.cache import ImageCache
from hawker.image.config import ImageConfig
from hawker.image.manifest import Resolved
from hawker.machine import GONE, State
from hawker.names import RESOLVER
from hawker.record.app import APPS, org_of
from hawker.record.machine import MACHINES, Detail, MachineRecord, Running, kept_for, machine_id_of
from hawker.runtime.driver import ALIVE, Inspection, Phase
from hawker.runtime.spec import InstanceSpec
from hawker.store.contract import Tx
from hawker.volume.attachment import volume_id_of
from hawker.worker.apps import FilesOfApp
from hawker.worker.capacity import at_rest, kept_layer, room_for
from hawker.worker.id_ranges import id_pool, with_ids
from hawker.worker.images import needed
from hawker.worker.lifecycle.deps import Context, FlowDeps, drain_output, machine_in, machine_of
from hawker.worker.lifecycle.environment import (
    GuestDiskFiles,
    Surroundings,
    containers_spec,
    instance_spec,
    with_kernel,
)
from hawker.worker.lifecycle.host_adapters import ContainerMounts, ContainerRoot, Rootfs, gpus_of, take_gpus
from hawker.worker.lifecycle.pull import PullInput, image_resource
from hawker.worker.lifecycle.volume_mount import mount_volume, unmount_volume
from hawker.worker.moves.ownership import taken_back
from hawker.worker.table import Happened

LAUNCHABLE = frozenset({State.CREATED, State.STARTING, State.RESTARTING, State.UPDATING, State.REPLACING})


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a flow's input that its launching steps read. `launch` False prepares and leaves the machine off."""

    instance_id: InstanceId
    launch: bool = True


async def have_image(context: Context[Launch]) -> None:
    """Has the machine's images here: at once when they are cached and the organization may have them, else through the
    shared `pull` run."""
    deps, record = context.deps, machine_of(context)
    org, wanted = org_of(deps.store, record.app), needed(record)
    missing = [image for image in wanted if not _has(deps.images, image, org)]
    if len(missing) == 1:
        await context.child("pull", image_resource(missing[0], org), PullInput(image=missing[0], org=org))
    elif missing:
        async with anyio.create_task_group() as tasks:
            for image in missing:
                tasks.start_soon(context.child, "pull", image_resource(image, org), PullInput(image=image, org=org))
    for image in wanted:
        deps.images.mark_used(image.digest)


async def have_files(context: Context[Launch]) -> None:
    """Fetches the files that were uploaded for the machine. A machine that rests has them too: the node that they came
    from may be gone when it starts."""
    deps, record = context.deps, machine_of(context)
    wanted, app = uploads_of(record.config), deps.store.get(APPS, record.app)
    if wanted and deps.files is not None and app is not None:
        await deps.files.fetch(FilesOfApp(app.id, app.name), wanted)


def _has(images: ImageCache, image: Resolved, org: str) -> bool:
    """Whoever may have an image that is from no registry was asked when its name was resolved."""
    return images.is_here_for(image, ImageReader(org) if image.registry else NODE)


async def rootfs(context: Context[Launch]) -> Outcome:
    """Mount the image below a new writable layer; a machine that is to be off has none, nor has one that is another
    node's."""
    deps, record = context.deps, _awaiting(context)
    if record is None:
        return Done()
    gone = await taken_back(deps, record.id)
    if gone is not None:
        return gone
    await have_files(context)
    if context.input.launch:
        await have_image(context)
    if deps.rootfs is None:
        return Done()
    if not context.input.launch:
        await deps.rootfs.unmount(record.id, kept=kept_layer(record))
        return Done()
    mounted = await _mount_rootfs(deps.rootfs, context, await _with_own_ids(context, record))
    return Done(result=mounted, late=volume_id_of(record.config) is None)


async def _with_own_ids(context: Context[Launch], record: MachineRecord) -> MachineRecord:
    """A machine from before there were any gets its ids now."""
    deps, pool = context.deps, id_pool(context.deps.settings, context.deps.driver.features)
    if pool is None or record.first_id is not None:
        return record

    def apply(tx: Tx) -> MachineRecord:
        current = machine_in(tx, context)
        return deps.table.change(tx, current, first_id=with_ids(tx, pool, current).first_id)

    return await deps.store.write(apply)


async def _mount_rootfs(rootfs: Rootfs, context: Context[Launch], record: MachineRecord) -> str | ContainerMounts:
    instance_id, first_id = context.input.instance_id, _first_id(context, record)
    size_mib = rootfs_mib(record.config)
    if not record.config.containers:
        image, kept = record.image.digest, kept_layer(record)
        return await rootfs.mount(record.id, instance_id, image, kept=kept, size_mib=size_mib, first_id=first_id)
    roots = [ContainerRoot(name=name, image=image.digest) for name, image in record.container_images.items()]
    return await rootfs.mount_containers(
        record.id, instance_id, roots, temp_dirs(record.config), size_mib=size_mib, first_id=first_id
    )


def _first_id(context: Context[Launch], record: MachineRecord) -> int | None:
    """None also for a machine that has ids, on a node that does not use them any more."""
    return record.first_id if context.deps.driver.features.user_namespace else None


async def undo_rootfs(context: Context[Launch]) -> None:
    """Unmounts the root filesystem, and takes back also what a later step made before a crash that lost its record."""
    await undo_launch(context)
    if context.deps.rootfs is not None and not _still_runs(context):
        record = context.deps.store.get(MACHINES, machine_id_of(context))
        await context.deps.rootfs.unmount(machine_id_of(context), kept=kept_layer(record))


async def volume(context: Context[Launch]) -> Outcome:
    """Mount the machine's volume, if it has one; a machine that is to be off gives it back."""
    record = _awaiting(context)
    if record is None:
        return Done()
    if not context.input.launch:
        await unmount_volume(context.deps, record)
        return Done()
    return await mount_volume(context, record)


async def undo_volume(context: Context[Launch]) -> None:
    """Unmounts the volume, and takes back also what a later step made before a crash that lost its record."""
    await undo_launch(context)
    if not _still_runs(context):
        await unmount_volume(context.deps, context.deps.store.get(MACHINES, machine_id_of(context)))


async def network(context: Context[Launch]) -> Outcome:
    """Make the namespace, its addresses and its routes, unless they are there."""
    deps, record = context.deps, _awaiting(context)
    if deps.networks is None or record is None:
        return Done()
    netns = await deps.networks.ensure(record.id, record.network)
    await deps.enforcer.renew_for(record.app)
    return Done(result=netns, late=True)


async def launch(context: Context[Launch]) -> Outcome:
    """Start the instance and record what runs; a workload that could not be executed is left to the supervisor."""
    if not context.input.launch:
        return Done(commit=lambda tx: _rest(tx, context))
    deps, record = context.deps, _awaiting(context)
    if record is None:
        return await _give_way(context)
    spec = msgspec.structs.replace(spec_of_launch(context, record), gpus=gpus_of(record))
    await take_gpus(deps.gpus, deps.driver, record)
    await drain_output(context, spec.instance_id)
    await deps.driver.prepare(spec)
    context.reach("prepared")
    seen = await deps.driver.start(spec)
    return Done(result=seen.pid, commit=lambda tx: _started(tx, context, seen))


def spec_of_launch(context: Context[Launch], record: MachineRecord) -> InstanceSpec:
    instance_id, images = context.input.instance_id, context.deps.images
    if not record.config.containers:
        around = _surroundings(context, record, context.result("rootfs", str) if context.deps.rootfs else None)
        spec = instance_spec(record, instance_id, _config_of(images, record.image), around)
        return _with_kernel(context, record, spec, around) if context.deps.driver.features.disks else spec
    mounted = context.result("rootfs", ContainerMounts)
    configs = {name: _config_of(images, image) for name, image in record.container_images.items()}
    return containers_spec(record, instance_id, configs, mounted, _surroundings(context, record, mounted.machine))


def _with_kernel(
    context: Context[Launch], record: MachineRecord, spec: InstanceSpec, around: Surroundings
) -> InstanceSpec:
    deps, image = context.deps, str(context.deps.images.block_path(record.image.digest))
    assert around.rootfs is not None, "where machines have kernels of their own they have root filesystems"
    disks = GuestDiskFiles(image=image, layer=around.rootfs, volume=around.volume)
    link = deps.networks.link(record.id, record.network) if deps.networks is not None else None
    return with_kernel(spec, record, disks, link, deps.settings)


def _config_of(images: ImageCache, wanted: Resolved) -> ImageConfig:
    image = images.find(wanted.digest)
    assert image is not None, "an image in use is never removed"
    return image.config


def _shown_configs(images: ImageCache, record: MachineRecord) -> dict[str, bytes]:
    """The configs of the images that the machine's files are to show, by the names that they use."""
    config = record.config
    by_name = {each.image: record.container_images[each.name or ""] for each in config.containers or () if each.image}
    wanted = {file.image_config for file in config.files or () if file.image_config}
    return {name: images.raw_config(by_name.get(name, record.image).digest) for name in wanted}


async def undo_launch(context: Context[Launch]) -> None:
    """A launch that was recorded before the run was told to turn back is left to whoever told it."""
    if not _still_runs(context):
        await drain_output(context)
        await context.deps.driver.destroy(machine_id_of(context))


async def _give_way(context: Context[Launch]) -> Outcome:
    """Whoever overtook this launch goes on with the machine; it must hear of an instance that a try before a crash may
    have begun."""
    seen = await context.deps.driver.inspect(machine_id_of(context))
    begun = seen.instance_id == context.input.instance_id and seen.phase in ALIVE | {Phase.EXITED}
    return Done(commit=lambda tx: _started(tx, context, seen) if begun else _forget_previous(tx, context))


def _forget_previous(tx: Tx, context: Context[Launch]) -> None:
    record = tx.get(MACHINES, machine_id_of(context))
    if record is not None and record.previous is not None:
        context.deps.table.change(tx, record, previous=None)


def _awaiting(context: Context[Launch]) -> MachineRecord | None:
    """The machine, if this is the launch that it awaits; it may even be gone."""
    record = context.deps.store.get(MACHINES, machine_id_of(context))
    return record if record is not None and _is_awaited(record, context.input) else None


def _is_awaited(record: MachineRecord, input: Launch) -> bool:
    return record.awaited == input.instance_id


def _still_runs(context: Context[Launch]) -> bool:
    record = context.deps.store.get(MACHINES, machine_id_of(context))
    return record is not None and runs(record)


def _surroundings(context: Context[Launch], record: MachineRecord, rootfs: str | None) -> Surroundings:
    deps, settings = context.deps, context.deps.settings
    return Surroundings(
        rootfs=rootfs,
        netns=context.result("network", str) if context.deps.networks is not None else None,
        nameservers=_nameservers(deps),
        pids=settings.machine_pids,
        output_bytes=settings.logs_mib << 20,
        first_id=_first_id(context, record),
        secrets=deps.secrets.pinned(deps.store, record.id, record.version),
        volume=context.result("volume", str) if volume_id_of(record.config) is not None else None,
        image_configs=_shown_configs(deps.images, record),
        uploads=_uploads(deps, record),
    )


def _uploads(deps: FlowDeps, record: MachineRecord) -> dict[str, str]:
    wanted, app = uploads_of(record.config), deps.store.get(APPS, record.app)
    if not wanted or deps.files is None or app is None:
        return {}
    return {digest: str(deps.files.path(app.id, digest)) for digest in wanted}


def _nameservers(deps: FlowDeps) -> tuple[str, ...]:
    """The node's own resolver, or those that it would ask."""
    if deps.networks is not None and deps.settings.resolver:
        return (str(RESOLVER),)
    return deps.settings.nameservers or nameservers()


def _started(tx: Tx, context: Context[Launch], seen: Inspection) -> None:
    table, record = context.deps.table, machine_in(tx, context)
    executed = seen.started_at is not None and (seen.exit is None or not seen.exit.reason)
    running = Running(
        instance_id=context.input.instance_id, pid=seen.pid, started_at=seen.started_at if executed else None
    )
    if record.state not in LAUNCHABLE or not _is_awaited(record, context.input):
        table.change(tx, record, running=running, previous=None)
        return
    table.change(
        tx,
        record,
        Happened("start", "started") if executed else None,
        state=State.STARTED if executed else State.STARTING,
        running=running,
        holds=room_for(context.deps.settings, context.deps.driver.features.overhead_mib, record.config),
        gpus=kept_for(record, record.config),
        previous=None,
        awaited=None,
    )


def _rest(tx: Tx, context: Context[Launch]) -> None:
    record = machine_in(tx, context)
    if record.state in GONE or not _is_awaited(record, context.input):
        return _forget_previous(tx, context)
    context.deps.table.change(
        tx,
        record,
        Happened("stop", "stopped"),
        state=State.STOPPED,
        holds=at_rest(record),
        previous=None,
        awaited=None,
    )


def mark_failed(tx: Tx, ended: EndedRun[Launch]) -> None:
    """A machine that could not be started is off, and its history says why. One whose old instance could not even be
    ended still runs."""
    deps: FlowDeps = ended.deps
    record = tx.get(MACHINES, ended.resource.id)
    if ended.ending is Ending.DONE or record is None or not _is_awaited(record, ended.input):
        return
    detail = Detail(error=ended.error or "cancelled")
    if runs(record):
        happened = Happened("restart", "failed", detail=detail)
        deps.table.change(tx, record, happened, state=State.STARTED, awaited=None)
        return
    deps.table.change(
        tx,
        record,
        Happened("start", "failed", detail=detail),
        state=State.FAILED,
        holds=at_rest(record),
        previous=None,
        awaited=None,
    )


def runs(record: MachineRecord) -> bool:
    return record.running is not None and record.running.exit is None


async def image(context: Context[Launch]) -> Outcome:
    await have_image(context)
    return Done(commit=lambda tx: _starting(tx, context)) if context.input.launch else Done()


def _starting(tx: Tx, context: Context[Launch]) -> None:
    record = machine_in(tx, context)
    if record.state is State.CREATED:
        context.deps.table.change(tx, record, state=State.STARTING)


async def undo_image(context: Context[Launch]) -> None:
    """Take back what is left of the later steps; the image stays, it may serve others."""
    deps, machine_id = context.deps, machine_id_of(context)
    if runs(machine_of(context)):
        return
    await drain_output(context)
    await deps.driver.destroy(machine_id)
    await unmount_volume(deps, machine_of(context))
    if deps.rootfs is not None:
        await deps.rootfs.remove(machine_id)
    if deps.networks is not None:
        await deps.networks.delete(machine_id)
    await deps.enforcer.renew_soon(machine_of(context).app, without={machine_id})


def take_back(tx: Tx, ended: EndedRun[Launch]) -> None:
    """A create that failed leaves no machine, only a history that says why."""
    deps: FlowDeps = ended.deps
    record = tx.get(MACHINES, ended.resource.id)
    if ended.ending is Ending.DONE or record is None or record.state in GONE or runs(record):
        return
    detail = Detail(error=ended.error or "cancelled")
    deps.table.remove(tx, record, Happened("launch", "launch_failed", detail=detail))


PATIENT = Backoff(attempts=20)
"""The patience of steps that take back: a machine whose undo is given up can neither be used nor destroyed until an
operator comes."""

_TAKEN_BACK = ("undo.killed", "undo.cleared")
ROOTFS = Step(
    "rootfs",
    rootfs,
    undo=undo_rootfs,
    undo_backoff=PATIENT,
    timeout_s=3600,
    points=("detached", "imaged", "layered", *_TAKEN_BACK, "undo.detached"),
)
VOLUME = Step(
    "volume",
    volume,
    undo=undo_volume,
    undo_backoff=PATIENT,
    timeout_s=3600,
    points=("checked", "mounted", "attached", *_TAKEN_BACK, "undo.given_back"),
)
NETWORK = Step("network", network, timeout_s=30, points=("bridged", "linked", "bound"))
LAUNCH = Step(
    "launch",
    launch,
    undo=undo_launch,
    undo_backoff=PATIENT,
    timeout_s=900,
    backoff=Backoff(attempts=3),
    points=("killed", "cleared", "laid_out", "prepared", "creating", "spawned", *_TAKEN_BACK),
)
LAUNCHING = (ROOTFS, VOLUME, NETWORK, LAUNCH)

START = Flow(name="start", input=Launch, steps=LAUNCHING, on_end=mark_failed)
IMAGE = Step(
    "image",
    image,
    undo=undo_image,
    undo_backoff=PATIENT,
    timeout_s=3600,
    backoff=Backoff(attempts=2),
    points=(
        "child_accepted",
        *_TAKEN_BACK,
        "undo.given_back",
        "undo.detached",
        "undo.unrouted",
        "undo.unlinked",
        "undo.unbound",
    ),
)

CREATE = Flow(name="create", input=Launch, steps=(IMAGE, *LAUNCHING), on_end=take_back)
