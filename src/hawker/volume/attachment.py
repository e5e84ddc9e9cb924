"""Which machine has which volume: decided in the transaction that makes or removes the machine, so that both records
always agree. A machine keeps its volume for as long as it exists, whether it runs or not, unless somebody detaches the
volume while the machine is stopped: then the machine takes it back with its next start, or does not start.
"""

import msgspec

from hawker.config import MachineConfig
from hawker.config.machine import Mount
from hawker.errors import NotFound, Unprocessable, WrongState
from hawker.ids import AppName, MachineId, VolumeId
from hawker.record.machine import MachineRecord
from hawker.record.move import OPEN_MOVE_OF, check_here
from hawker.record.volume import GOING, VOLUMES, VOLUMES_BY_APP, Fstype, VolumeRecord, VolumeState
from hawker.store.contract import Reader, Tx
from hawker.volume.losses import check_usable

_FIELD = "config.mounts[0]"


def mount_of(config: MachineConfig) -> Mount | None:
    """The one mount that a machine may have."""
    return config.mounts[0] if config.mounts else None


def volume_id_of(config: MachineConfig) -> VolumeId | None:
    mount = mount_of(config)
    return VolumeId(mount.volume) if mount is not None and mount.volume else None


def attach(tx: Tx, machine: MachineRecord, now: float, *, to_guest: bool = False) -> MachineRecord:
    """Give a new machine the volume that its config asks for, by id or by name; the machine with the volume's id filled
    in. A machine with a kernel of its own gets the blocks (`to_guest`), which marks the volume.
    Raises `NotFound`, `WrongState` when another machine has it or a guest wrote it, `Unprocessable`."""
    mount = mount_of(machine.config)
    if mount is None:
        return machine
    volume = _named(tx, machine.app, mount) if mount.volume else _free(tx, machine.app, mount)
    _check_fits(volume, mount, to_guest=to_guest)
    written = volume.guest_written or to_guest
    _take(tx, volume, now, machine=machine.id, guest_written=written)
    return msgspec.structs.replace(machine, config=_with_volume(machine.config, mount, volume.id))


def _take(tx: Tx, volume: VolumeRecord, now: float, **fields: object) -> None:
    """A fork that is not as large as ordered yet is from here on a volume that is being extended."""
    state = VolumeState.EXTENDING if volume.state is VolumeState.HYDRATING else volume.state
    taken = msgspec.structs.replace(volume, state=state, unused=False, updated_at=now, **fields)
    tx.put(VOLUMES, volume.id, taken)


def findable(reader: Reader, app: AppName, config: MachineConfig, *, to_guest: bool = False) -> None:
    """Checks that the config's volume can be found. Raises what `attach` would, before any machine is there."""
    mount = mount_of(config)
    if mount is not None:
        _check_fits(_named(reader, app, mount) if mount.volume else _free(reader, app, mount), mount, to_guest=to_guest)


def detach(tx: Tx, machine: MachineRecord, now: float) -> VolumeRecord | None:
    """The machine is gone; its volume stays as it is, for the next one. That volume."""
    volume_id = volume_id_of(machine.config)
    volume = None if volume_id is None else tx.get(VOLUMES, volume_id)
    if volume is not None and volume.machine == machine.id:
        free = msgspec.structs.replace(volume, machine=None, updated_at=now)
        tx.put(VOLUMES, volume.id, free)
        return free
    return None


def as_wished(config: MachineConfig) -> MachineConfig:
    """The config for a node where encryption is a wish: clients that clone a machine ask for what its volume is not."""
    mount = mount_of(config)
    if mount is None or not mount.encrypted:
        return config
    return msgspec.structs.replace(config, mounts=(msgspec.structs.replace(mount, encrypted=None),))


def reattach(tx: Tx, machine: MachineRecord, now: float, *, to_guest: bool = False) -> VolumeId | None:
    """The volume of a machine that is to start, if it was detached meanwhile: the volume that was taken back. Raises
    `WrongState` when it is not to be had any more."""
    volume_id = volume_id_of(machine.config)
    volume = None if volume_id is None else tx.get(VOLUMES, volume_id)
    mount = mount_of(machine.config)
    if volume is not None and volume.machine == machine.id:
        check_usable(volume)
        return None
    if volume_id is None or mount is None:
        return None
    if volume is None or volume.app != machine.app or volume.state in GOING:
        raise WrongState(
            f"volume {volume_id} was detached and is no longer there for machine {machine.id}: update the machine"
            " without the mount, or create another one"
        )
    if volume.machine is not None:
        raise WrongState(f"volume {volume_id} was detached, and machine {volume.machine} has it now")
    check_here(tx, volume.id)
    _check_fits(volume, mount, to_guest=to_guest)
    written = volume.guest_written or to_guest
    lender = None if volume.lent_by == machine.id else volume.lent_by
    _take(tx, volume, now, machine=machine.id, lent_by=lender, guest_written=written)
    return volume.id


def kept(reader: Reader, machine: MachineRecord, config: MachineConfig) -> MachineConfig:
    """A new config of a machine, with the volume that it has. Raises `Unprocessable` when it asks for another one."""
    mount, has = mount_of(config), volume_id_of(machine.config)
    if has is None and mount is None:
        return config
    if has is None:
        raise Unprocessable("config.mounts: a machine gets its volume when it is created: create another one with it")
    if mount is None and attached_to(reader, has, machine.id) is None:
        return config
    if mount is None:
        raise Unprocessable(f"config.mounts: volume {has} is attached until the machine is destroyed: leave it in")
    volume = reader.get(VOLUMES, has)
    name = None if volume is None else volume.name
    if (mount.volume or has) != has or (not mount.volume and mount.name != name):
        raise Unprocessable(f"{_FIELD}: volume {has} is attached until the machine is destroyed, and cannot be changed")
    if volume is not None:
        _check_fits(volume, mount, to_guest=volume.guest_written)
    return _with_volume(config, mount, has)


def shown(reader: Reader, machine: MachineRecord) -> MachineConfig:
    """The config with what the machine's volume is: clients that clone a machine read its name and size there."""
    mount, volume_id = mount_of(machine.config), volume_id_of(machine.config)
    volume = None if volume_id is None else attached_to(reader, volume_id, machine.id)
    if mount is None or volume is None:
        return machine.config
    whole = msgspec.structs.replace(mount, name=volume.name, size_gb=volume.size_gb, encrypted=volume.encrypted)
    return msgspec.structs.replace(machine.config, mounts=(whole,))


def attached_to(reader: Reader, volume_id: VolumeId, machine_id: MachineId) -> VolumeRecord | None:
    """The volume if this machine has it."""
    volume = reader.get(VOLUMES, volume_id)
    return volume if volume is not None and volume.machine == machine_id else None


def _named(reader: Reader, app: AppName, mount: Mount) -> VolumeRecord:
    volume = reader.get(VOLUMES, mount.volume or "")
    if volume is None or volume.app != app or volume.state in GOING:
        raise NotFound(f"{_FIELD}.volume: app '{app}' has no volume {mount.volume!r:.60}")
    check_here(reader, volume.id)
    if volume.machine is not None:
        raise WrongState(
            f"volume {volume.id} is attached to machine {volume.machine}: a volume has one machine at a time; stop that"
            " one and detach the volume, or destroy the machine"
        )
    return volume


def _free(reader: Reader, app: AppName, mount: Mount) -> VolumeRecord:
    """The oldest of this name that nobody has."""
    keys = (key.id for _, key in reader.scan(VOLUMES_BY_APP, f"{app}/"))
    named = [volume for key in keys if (volume := reader.get(VOLUMES, key)) is not None and volume.name == mount.name]
    free = [
        volume
        for volume in named
        if volume.machine is None and volume.state not in GOING and reader.get(OPEN_MOVE_OF, volume.id) is None
    ]
    if not free:
        what = "every volume of that name is attached" if named else "there is none of that name"
        raise WrongState(
            f"{_FIELD}.name: app '{app}' has no free volume {mount.name!r:.60}: {what} on this host; see"
            f" `hawker volumes list -a {app}`, which also shows those of hosts that are away"
        )
    return min(free, key=lambda volume: (volume.damaged, volume.created_at, volume.id))


def guest_written_refusal(volume_id: VolumeId) -> WrongState:
    """A file system that a tenant could write block by block is not for the host's kernel."""
    return WrongState(
        f"volume {volume_id} was the disk of a microVM, which may have written anything to it, so this host does not "
        "mount it: attach it on a node with a microVM driver, and copy its files to a new volume from there"
    )


def _check_fits(volume: VolumeRecord, mount: Mount, *, to_guest: bool) -> None:
    check_usable(volume)
    if volume.guest_written and not to_guest:
        raise guest_written_refusal(volume.id)
    if volume.fstype is Fstype.RAW:
        raise Unprocessable(f"{_FIELD}: volume {volume.id} is raw; this node's driver mounts filesystems only")
    if mount.encrypted and not volume.encrypted:
        raise Unprocessable(f"{_FIELD}.encrypted: volume {volume.id} is not encrypted")
    if (mount.size_gb or 0) > volume.size_gb:
        raise Unprocessable(
            f"{_FIELD}.size_gb: volume {volume.id} has {volume.size_gb} GB, not {mount.size_gb}: extend it first"
        )


def _with_volume(config: MachineConfig, mount: Mount, volume_id: VolumeId) -> MachineConfig:
    return msgspec.structs.replace(config, mounts=(msgspec.structs.replace(mount, volume=volume_id),))


def volume_name(volume_id: VolumeId) -> str:
    """The name of the disk, as its guest knows it."""
    return volume_id.removeprefix("vol_")
