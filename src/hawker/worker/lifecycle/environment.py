"""What runs inside a machine, worked out from its config and its image: pure, and complete enough to be stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from hawker.config import Container, File, MachineConfig, MachineProcess, file_contents, guest, stop_config
from hawker.config.dns import host_names, resolver_file
from hawker.config.effective import FILE_MODE, container_image
from hawker.errors import BadRequest
from hawker.ids import InstanceId
from hawker.image.config import ImageConfig
from hawker.names import group_of
from hawker.record.machine import MachineRecord
from hawker.runtime.spec import (
    DiskLimits,
    Ends,
    FileSpec,
    GuestLink,
    InstanceLimits,
    InstanceSpec,
    MountSpec,
    ProcessSpec,
    RootDisk,
    VolumeDisk,
)
from hawker.settings import Settings
from hawker.value_object import ValueObject
from hawker.volume.attachment import mount_of, volume_id_of, volume_name
from hawker.worker.lifecycle.host_adapters import ContainerMounts

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SHARED_WEIGHT = 6  # a shared cpu is a sixteenth of a performance one when all want to run
_PERFORMANCE_WEIGHT = 100


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The things that the host gives an instance: its root filesystem, its network namespace, the settings of its
    limits, and the secrets that its version was given, by name; where its volume is mounted; the first of its ids on
    the host; the configs of images that files show; the host's files with what was uploaded, by digest."""

    rootfs: str | None
    netns: str | None
    nameservers: tuple[str, ...]
    pids: int
    output_bytes: int
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    volume: str | None = None
    first_id: int | None = None
    image_configs: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    uploads: Mapping[str, str] = field(default_factory=dict)


def instance_spec(
    record: MachineRecord, instance_id: InstanceId, image: ImageConfig, around: Surroundings
) -> InstanceSpec:
    """The whole instance. Raises `BadRequest` when neither config nor image names a command."""
    signal, timeout_s = stop_config(record.config)
    return InstanceSpec(
        machine_id=record.id,
        instance_id=instance_id,
        hostname=host_names(record.config.dns, record.id)[0],
        processes=_processes(record, image, around),
        files=() if around.rootfs is None else files_of(record, record.config.files, around),
        limits=limits(record.config, around.pids),
        rootfs=around.rootfs,
        netns=around.netns,
        first_id=around.first_id,
        output_bytes=around.output_bytes,
        mounts=_mounts(record.config, around.volume),
        stop_signal=signal,
        stop_timeout_s=timeout_s,
    )


def _mounts(config: MachineConfig, volume: str | None) -> tuple[MountSpec, ...]:
    mount = mount_of(config)
    if mount is None or volume is None:
        return ()
    assert mount.path is not None, "a mount without a path is refused"
    return (MountSpec(source=volume, target=mount.path, mapped=True),)


def limits(config: MachineConfig, pids: int) -> InstanceLimits:
    size = guest(config)
    weight = _PERFORMANCE_WEIGHT if size.cpu_kind == "performance" else _SHARED_WEIGHT
    swap_mib = (config.init.swap_size_mb if config.init is not None else None) or 0
    return InstanceLimits(
        cpus=size.cpus, cpu_weight=weight * size.cpus, memory_mib=size.memory_mb, pids=pids, swap_mib=swap_mib
    )


def _processes(record: MachineRecord, image: ImageConfig, around: Surroundings) -> tuple[ProcessSpec, ...]:
    config = record.config
    declared: Sequence[MachineProcess] = config.processes or (MachineProcess(),)
    if around.rootfs is None:  # the image's user and directory are of the image's own filesystem
        image = msgspec.structs.replace(image, user="", working_dir="")
    return tuple(_process(record, process, image, around.secrets) for process in declared)


def _process(
    record: MachineRecord, process: MachineProcess, image: ImageConfig, secrets: Mapping[str, str]
) -> ProcessSpec:
    init = record.config.init
    spec = process_spec(
        record,
        MachineProcess(
            exec=process.exec or (init.exec if init else None),
            entrypoint=process.entrypoint or (init.entrypoint if init else None),
            cmd=process.cmd or (init.cmd if init else None),
            env=process.env,
            user=process.user,
            secrets=process.secrets,
            ignore_app_secrets=process.ignore_app_secrets,
            env_from=process.env_from,
        ),
        image,
        secrets,
        record.config.image or "",
    )
    return msgspec.structs.replace(spec, tty=bool(init and init.tty), stdin=bool(init and init.stdin))


def process_spec(
    record: MachineRecord, process: MachineProcess, image: ImageConfig, secrets: Mapping[str, str], named: str
) -> ProcessSpec:
    """The process that runs from an image of that name. Raises `BadRequest` when neither config nor image names a
    command."""
    argv = command(exec=process.exec, entrypoint=process.entrypoint, cmd=process.cmd, image=image)
    if not argv:
        raise BadRequest(f"no command to run: neither the config nor the image {named} names one")
    return ProcessSpec(
        argv=argv,
        env=_env(record, process, image, secrets, named),
        user=process.user or image.user,
        cwd=image.working_dir or "/",
    )


def command(
    *, exec: Sequence[str] | None, entrypoint: Sequence[str] | None, cmd: Sequence[str] | None, image: ImageConfig
) -> tuple[str, ...]:
    """`exec` replaces all; `entrypoint` and `cmd` each replace their part of the image's."""
    if exec:
        return tuple(exec)
    return (*(entrypoint or image.entrypoint), *(cmd or image.cmd))


def _env(
    record: MachineRecord, process: MachineProcess, image: ImageConfig, secrets: Mapping[str, str], named: str
) -> dict[str, str]:
    """A secret goes before a variable of the same name; what the platform sets before both."""
    return {
        "PATH": _PATH,
        **dict(pair.partition("=")[::2] for pair in image.env),
        **(record.config.env or {}),
        **(process.env or {}),
        **_own_fields(record, process, named),
        **({} if process.ignore_app_secrets else secrets),
        **{each.env_var: secrets[each.name or each.env_var] for each in process.secrets or () if each.env_var},
        **platform_env(record, named),
    }


def _own_fields(record: MachineRecord, process: MachineProcess, named: str) -> dict[str, str]:
    """Fields of the machine under the names that the config gives them."""
    fields = {
        "id": record.id,
        "version": record.version,
        "app_name": record.app,
        "private_ip": record.network.private_ip,
        "region": record.region,
        "image": named,
    }
    asked = process.env_from or ()
    return {each.env_var: fields[each.field_ref] for each in asked if each.env_var and each.field_ref}


def platform_env(record: MachineRecord, image: str) -> dict[str, str]:
    """The names that existing software looks for (contract 3.16)."""
    metadata = record.config.metadata or {}
    found = {
        "FLY_APP_NAME": record.app,
        "FLY_MACHINE_ID": record.id,
        "FLY_ALLOC_ID": record.id,
        "FLY_REGION": record.region,
        "FLY_IMAGE_REF": image,
        "FLY_MACHINE_VERSION": record.version,
        "FLY_PRIVATE_IP": record.network.private_ip,
        "FLY_VM_MEMORY_MB": str(guest(record.config).memory_mb),
    }
    group = group_of(metadata)
    return found | ({"FLY_PROCESS_GROUP": group} if group else {})


def files_of(record: MachineRecord, own: tuple[File, ...] | None, around: Surroundings) -> tuple[FileSpec, ...]:
    """The files that every root filesystem of the machine has, and its own."""
    names = host_names(record.config.dns, record.id)
    hosts = (
        "127.0.0.1 localhost\n::1 localhost ip6-localhost\n"
        f"{record.network.private_ip} {' '.join(names)} fly-local-6pn {record.id}.vm.{record.app}.internal\n"
        f"{record.network.ipv4 or '0.0.0.0'} fly-global-services\n"
    )
    resolver = resolver_file(record.config.dns, around.nameservers)
    platform = (
        FileSpec(path="/etc/hostname", content=f"{names[0]}\n".encode()),
        FileSpec(path="/etc/hosts", content=hosts.encode()),
        FileSpec(path="/etc/resolv.conf", content=resolver.encode()),
    )
    written = tuple(
        FileSpec(path=path, content=content, mode=mode)
        for path, content, mode in file_contents(own, around.secrets, around.image_configs)
    )
    return platform + written + tuple(_uploaded(file, around.uploads) for file in own or () if file.digest)


def _uploaded(file: File, uploads: Mapping[str, str]) -> FileSpec:
    mode = FILE_MODE if file.mode is None else file.mode
    return FileSpec(path=file.guest_path or "", source=uploads[file.digest or ""], mode=mode)


# What runs in a machine of several containers: one process for each, held until it is told to start. Pure.


def containers_spec(
    record: MachineRecord,
    instance_id: InstanceId,
    images: Mapping[str, ImageConfig],
    mounted: ContainerMounts,
    around: Surroundings,
) -> InstanceSpec:
    """The whole instance; `images` has that of each container, by its name. Raises `BadRequest` when one has no
    command."""
    signal, timeout_s = stop_config(record.config)
    return InstanceSpec(
        machine_id=record.id,
        instance_id=instance_id,
        hostname=host_names(record.config.dns, record.id)[0],
        processes=tuple(
            _container(record, each, images[each.name or ""], mounted, around)
            for each in record.config.containers or ()
        ),
        limits=limits(record.config, around.pids),
        ends=Ends.TOLD,
        rootfs=mounted.machine,
        netns=around.netns,
        first_id=around.first_id,
        output_bytes=around.output_bytes,
        stop_signal=signal,
        stop_timeout_s=timeout_s,
    )


def _container(
    record: MachineRecord, container: Container, image: ImageConfig, mounted: ContainerMounts, around: Surroundings
) -> ProcessSpec:
    """Secrets that it names are all it gets; one that names none gets those of the app."""
    name = container.name or ""
    process = MachineProcess(
        exec=container.exec,
        entrypoint=container.entrypoint,
        cmd=container.cmd,
        env=container.env,
        user=container.user,
        secrets=container.secrets,
        ignore_app_secrets=bool(container.secrets),
        env_from=container.env_from,
    )
    spec = process_spec(record, process, image, around.secrets, container_image(record.config, container))
    return msgspec.structs.replace(
        spec,
        name=name,
        root=mounted.roots[name],
        held=True,
        mounts=tuple(
            MountSpec(source=mounted.volumes[each.name or ""], target=each.path or "/")
            for each in container.mounts or ()
        ),
        files=files_of(record, container.files, around),
    )


# What an instance with a kernel of its own has beyond what runs inside it: disks, a link, limits of both. Pure, and
# complete enough to be stored, as `environment`.

_BYTES_PER_MIB = 1 << 20


class GuestDiskFiles(ValueObject, frozen=True):
    """Block files of the host: the image's, the machine's own layer, and that of its volume if it has one."""

    image: str
    """Path; many machines read it, none writes."""
    layer: str
    """Path; what the machine writes to its root filesystem."""
    volume: str | None = None
    """Path; None for a machine without one."""


def with_kernel(
    spec: InstanceSpec, record: MachineRecord, disks: GuestDiskFiles, link: GuestLink | None, settings: Settings
) -> InstanceSpec:
    """The same spec of an instance, with block files where it had directories of the host."""
    return msgspec.structs.replace(
        spec,
        rootfs=None,
        mounts=(),
        root_disk=RootDisk(image=disks.image, layer=disks.layer),
        volumes=_volumes(record, disks.volume),
        link=link,
        disk_limits=disk_limits(settings),
        kernel_args=kernel_args(record),
        max_memory_mib=record.config.guest.max_memory_mb if record.config.guest is not None else None,
    )


def disk_limits(settings: Settings) -> DiskLimits:
    return DiskLimits(
        bytes_per_s=settings.vm_disk_mib_per_s * _BYTES_PER_MIB, operations_per_s=settings.vm_disk_operations_per_s
    )


def kernel_args(record: MachineRecord) -> tuple[str, ...]:
    """The kernel's arguments: those of `guest`, then those of `init`: the kernel takes the last of two that contradict
    each other."""
    parts = (record.config.guest, record.config.init)
    return tuple(arg for part in parts if part is not None for arg in part.kernel_args or ())


def _volumes(record: MachineRecord, file: str | None) -> tuple[VolumeDisk, ...]:
    mount, volume_id = mount_of(record.config), volume_id_of(record.config)
    if mount is None or volume_id is None or file is None:
        return ()
    assert mount.path is not None, "a mount without a path is refused"
    return (VolumeDisk(name=volume_name(volume_id), file=file, target=mount.path),)
