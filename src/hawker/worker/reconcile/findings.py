"""What can be wrong between store and host, one kind each, with what mends it and who may do so. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from hawker.value_object import ValueObject


class Kind(StrEnum):
    """The kinds of findings, in the order in which they are repaired: what is stray goes before what is missing is
    made."""

    STRAY_INSTANCE = "stray instance"
    STRAY_NETWORK = "stray network"
    STRAY_DIRECTORY = "stray directory"
    STRAY_MOUNT = "stray mount"
    STRAY_INTERFACE = "stray interface"
    STRAY_RUN = "stray run"
    FOREIGN_INSTANCE = "foreign instance"
    FORSAKEN = "forsaken machine"
    LOST_INSTANCE = "lost instance"
    UNRECORDED_INSTANCE = "unrecorded instance"
    LEFT_MOUNTED = "rootfs left mounted"
    LOST_ROOTFS = "lost rootfs"
    LOST_CGROUP = "lost control group"
    LOST_RUNTIME_STATE = "lost runtime state"
    NOT_HELD = "suspended machine that runs"
    LEFT_HELD = "started machine held still"
    LOST_NETWORK = "lost network"
    LOST_RULES = "lost packet rules"
    LOST_POLICIES = "lost network policies"
    LOST_IMAGE = "lost image"
    STRAY_VOLUME_MOUNT = "stray volume mount"
    STRAY_VOLUME = "stray volume"
    FOREIGN_VOLUME = "foreign volume"
    WRONG_ATTACHMENT = "wrong attachment"
    FORSAKEN_VOLUME = "forsaken volume"
    VOLUME_LEFT_MOUNTED = "volume left mounted"
    LOST_VOLUME_MOUNT = "lost volume mount"
    LOST_VOLUME = "lost volume"
    HELD_VOLUME = "held volume"
    DAMAGED_BACKUP = "damaged backup"
    WRONG_SUM = "wrong sum"
    WRONG_INDEX = "wrong index"
    LATE_HISTORIES = "late histories"
    WRONG_CLOCK = "wrong clock"
    CATALOG_AGENT = "catalog agent"
    FULL_CONNECTIONS = "connection table nearly full"
    EXPOSED_METADATA = "exposed metadata"
    NO_RESERVE = "store without reserve"
    NO_MESH = "no way to other hosts"
    SILENT_TUNNEL = "silent tunnel"
    ENDING_CERTIFICATE = "certificate ends soon"
    UNREACHED_API = "API not reached"


class Mender(Enum):
    """The one who may repair a finding. What could end a healthy machine, or needs somebody else, is not the node's to
    decide."""

    NODE = "node"  # the node, every minute
    OPERATOR = "operator"  # `hawker node doctor --repair`
    FORCE = "force"  # only when that is told to end foreign instances, too
    NOBODY = "nobody"  # it is only told


class Repair(ValueObject, frozen=True):
    text: str
    """The repair in words, as a command to whoever reads it."""
    by: Mender = Mender.NODE


REPAIRS: Mapping[Kind, Repair] = {
    Kind.STRAY_INSTANCE: Repair("end it and remove it"),
    Kind.STRAY_NETWORK: Repair("remove it"),
    Kind.STRAY_DIRECTORY: Repair("unmount and remove it"),
    Kind.STRAY_MOUNT: Repair("unmount it"),
    Kind.STRAY_INTERFACE: Repair("remove it"),
    Kind.STRAY_RUN: Repair("abort it"),
    Kind.FOREIGN_INSTANCE: Repair("restore the store that created it, or end it with --end-foreign", Mender.FORCE),
    Kind.FORSAKEN: Repair("stop it, or destroy it if it was to be destroyed"),
    Kind.LOST_INSTANCE: Repair("record its exit; the restart policy decides what follows"),
    Kind.UNRECORDED_INSTANCE: Repair("record that it runs"),
    Kind.LEFT_MOUNTED: Repair("unmount it"),
    Kind.LOST_ROOTFS: Repair("mount it again; the machine keeps running"),
    Kind.LOST_CGROUP: Repair("create it again with the machine's limits and processes; the machine keeps running"),
    Kind.LOST_RUNTIME_STATE: Repair("no repair is needed; the machine's next start creates it again", Mender.NOBODY),
    Kind.NOT_HELD: Repair("freeze it again"),
    Kind.LEFT_HELD: Repair("thaw it"),
    Kind.LOST_NETWORK: Repair("bind and connect it again; the machine keeps running"),
    Kind.LOST_RULES: Repair("install the rules again"),
    Kind.LOST_POLICIES: Repair("install the policies' rules again"),
    Kind.LOST_IMAGE: Repair("pull it", Mender.OPERATOR),
    Kind.STRAY_VOLUME_MOUNT: Repair("unmount it, or detach its device; no file is touched"),
    Kind.STRAY_VOLUME: Repair("remove its file: its record says that it is destroyed"),
    Kind.FOREIGN_VOLUME: Repair("restore the store that created it, or move its directory away by hand", Mender.NOBODY),
    Kind.WRONG_ATTACHMENT: Repair("believe the machine that exists"),
    Kind.FORSAKEN_VOLUME: Repair("start the interrupted operation again"),
    Kind.VOLUME_LEFT_MOUNTED: Repair("unmount it"),
    Kind.LOST_VOLUME_MOUNT: Repair("mount it again; the machine keeps running"),
    Kind.HELD_VOLUME: Repair("end or restart that process; the volume itself is whole", Mender.NOBODY),
    Kind.DAMAGED_BACKUP: Repair(
        "put back what is damaged from a copy of the place, then verify it; or forget it", Mender.NOBODY
    ),
    Kind.LOST_VOLUME: Repair("put its file back, or restore a snapshot and delete it", Mender.NOBODY),
    Kind.WRONG_SUM: Repair("add it up again"),
    Kind.WRONG_INDEX: Repair("write it again from the records"),
    Kind.LATE_HISTORIES: Repair("find out why the archive refuses them; the node keeps trying", Mender.NOBODY),
    Kind.WRONG_CLOCK: Repair("set that host's clock; Hawker orders nothing by it", Mender.NOBODY),
    Kind.CATALOG_AGENT: Repair("mend the agent: see docs/cluster.md; the node tries again by itself", Mender.NOBODY),
    Kind.FULL_CONNECTIONS: Repair(
        "raise net.netfilter.nf_conntrack_max, or lower machine_connections and machine_connections_per_s",
        Mender.NOBODY,
    ),
    Kind.NO_RESERVE: Repair("make room on the disk, or use a filesystem that has fallocate", Mender.NOBODY),
    Kind.NO_MESH: Repair("install wireguard-tools or wireguard-go, or set mesh to off", Mender.NOBODY),
    Kind.SILENT_TUNNEL: Repair("let UDP packets through between the two hosts at the port of the mesh", Mender.NOBODY),
    Kind.ENDING_CERTIFICATE: Repair("import a new one, or see in hawker certs show why none is issued", Mender.NOBODY),
    Kind.UNREACHED_API: Repair("free the port, or name another address with --edge-address", Mender.NOBODY),
    Kind.EXPOSED_METADATA: Repair("use the container driver or microVMs, or take it from egress_allow", Mender.NOBODY),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """`about` is a machine's id, or the name of what belongs to no machine. `detail` is for people: two findings that
    differ in nothing else are one."""

    kind: Kind
    about: str
    detail: str = field(default="", compare=False)

    @property
    def repair(self) -> Repair:
        return REPAIRS[self.kind]
