"""What runs in a machine of several containers: one process for each, held until it is told to start. Pure."""

from collections.abc import Mapping

import msgspec

from hawker.config import Container, MachineProcess, stop_config
from hawker.config.dns import host_names
from hawker.config.effective_containers import container_image
from hawker.ids import InstanceId
from hawker.image.config import ImageConfig
from hawker.record.machine import MachineRecord
from hawker.runtime.spec import Ends, InstanceSpec, MountSpec, ProcessSpec
from hawker.worker.lifecycle.deps import ContainerMounts
from hawker.worker.lifecycle.environment import Surroundings, files_of, limits, process_spec


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
