"""What a config must satisfy beyond its shape. Pure: each rule yields complaints that open with the field's path."""

import posixpath
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

import msgspec

from hawker.config import container_rules, dns, service_rules
from hawker.config.effective import PRESETS, SERVICE_CHECK, Persist, guest, persist_of, persistence, rootfs_mib
from hawker.config.machine import MachineConfig, Mount
from hawker.config.process_rules import (
    argv_complaints,
    bytes_of,
    env_complaints,
    files_complaints,
    image_complaints,
    restart_complaints,
    run_complaints,
    stop_complaints,
)
from hawker.config.service_rules import MAX_CHECKS, check_complaints
from hawker.deferred import deferred
from hawker.errors import Unprocessable
from hawker.value_object import ValueObject

if TYPE_CHECKING:
    from hawker import gpu
else:
    gpu = deferred("hawker.gpu")  # few orders ask for one


class Attached(Protocol):
    """The part of the driver's features that GPUs depend on (`runtime.driver.Features` is one)."""

    @property
    def driver(self) -> str: ...
    @property
    def gpus(self) -> bool: ...


def demand_of(config: MachineConfig) -> "gpu.Demand | None":
    """The GPUs that a config asks for; None: no GPU. A kind without a number is one device."""
    given = config.guest
    if given is None or not given.gpu_kind:
        return None
    return gpu.Demand(kind=given.gpu_kind, count=1 if given.gpus is None else given.gpus)


def gpus(config: MachineConfig) -> Iterator[str]:
    given, demand = config.guest, demand_of(config)
    if given is None:
        return
    if demand is None:
        if given.gpus:
            yield "guest.gpus says how many, but guest.gpu_kind does not say of what kind"
        return
    if not gpu.is_kind(demand.kind):
        yield f"guest.gpu_kind must be small letters, digits and dashes, not {demand.kind!r:.80}"
    if not 1 <= demand.count <= gpu.MOST:
        yield f"guest.gpus must be between 1 and {gpu.MOST}, not {demand.count}"
    if given.max_memory_mb:
        yield "guest.max_memory_mb and guest.gpu_kind exclude each other: devices write to all memory of their machine"


def unserved_gpus(config: MachineConfig, served: Attached) -> Iterator[str]:
    if demand_of(config) is not None and not served.gpus:
        yield (
            f"guest.gpu_kind is not served by this node's driver ({served.driver}): its machines have no devices of "
            "the host"
        )


class UnservedField(ValueObject, frozen=True):
    """A field by its path, `[]` for each item and `{}` for each value. `harmless` values ask for nothing."""

    path: str
    """The path of the field from the config's root, `mounts[].path` say."""
    reason: str
    """The text that a person is told, with what to use instead."""
    harmless: tuple[object, ...] = ()


NOT_SERVED: tuple[UnservedField, ...] = (
    UnservedField("mounts[].add_size_percent", "a volume grows by a size in GB: use add_size_gb"),
    UnservedField("mounts[].min_add_size_gb", "a volume grows by a size in GB: use add_size_gb"),
    UnservedField("volumes[].image", "containers share temporary directories only"),
    UnservedField("containers[].files[].image_config", "image configs are not written to files yet"),
    UnservedField("containers[].restart.gpu_bid_price", "there is no spot price"),
    UnservedField("cache_drive", "there are no cache drives yet"),
    UnservedField("spot", "there is no spot price"),
    UnservedField("dns.dns_forward_rules", "no name server of the node's own stands between"),
    UnservedField("guest.host_dedication_id", "hosts are not dedicated"),
    UnservedField("guest.required_host_features", "hosts declare no features yet"),
    UnservedField("restart.gpu_bid_price", "there is no spot price"),
)
"""`services`, `statics` and `standbys` are kept for the edge, which routes by them, and for what starts spares;
`dns.skip_registration`, `disable_machine_autostart` and a check's `kind` only say what routing and DNS shall leave
alone."""


def not_served(config: MachineConfig) -> Iterator[tuple[str, str]]:
    """Path and reason of each field that asks for something this program does not do."""
    for entry in NOT_SERVED:
        for path, value in _values(config, "", entry.path):
            if value not in entry.harmless and _asks(value):
                yield path, entry.reason


def _values(part: object, at: str, path: str) -> Iterator[tuple[str, object]]:
    """Each value that `path` leads to, with where it was found."""
    step, _, rest = path.partition(".")
    field = step.rstrip("[]{}")
    value = getattr(part, field, None)
    found = f"{at}{field}"
    if step.endswith("[]") and isinstance(value, tuple):
        items = [(f"{found}[{index}]", item) for index, item in enumerate(value)]
    elif step.endswith("{}") and isinstance(value, dict):
        items = [(f"{found}.{key}", item) for key, item in value.items()]
    else:
        items = [(found, value)]
    for where, item in items:
        yield from _values(item, f"{where}.", rest) if rest else [(where, item)]


def _asks(value: object) -> bool:
    """Whether a value is more than the nothing that clients send: null, false, zero, empty, or all of it such."""
    if isinstance(value, msgspec.Struct):
        return any(_asks(getattr(value, field)) for field in value.__struct_fields__)
    return bool(value)


# What a config's memory, swap and root filesystem must satisfy. Pure; yields complaints that open with the path.

MAX_SWAP_MIB = 64 * 1024
MAX_ROOTFS_GB = 500


class Sized(Protocol):
    """The part of the driver's features that sizes and disks depend on (`runtime.driver.Features` is one)."""

    @property
    def driver(self) -> str: ...
    @property
    def rootfs(self) -> bool: ...
    @property
    def limits(self) -> bool: ...
    @property
    def kernel(self) -> bool: ...
    @property
    def lacks_swap(self) -> str: ...


def memory(config: MachineConfig) -> Iterator[str]:
    most = config.guest.max_memory_mb if config.guest is not None else None
    if most and most < guest(config).memory_mb:
        yield f"guest.max_memory_mb must not be below the machine's {guest(config).memory_mb} MB, but is {most}"
    if most and most > MAX_MEMORY_MIB:
        yield f"guest.max_memory_mb must be at most {MAX_MEMORY_MIB}, not {most}"
    swap = config.init.swap_size_mb if config.init is not None else None
    if swap and not 0 <= swap <= MAX_SWAP_MIB:
        yield f"init.swap_size_mb must be between 0 and {MAX_SWAP_MIB}, not {swap}"


def persist(config: MachineConfig) -> Iterator[str]:
    given = config.guest.persist_rootfs if config.guest is not None else None
    if persist_of(given) is None:
        yield f"guest.persist_rootfs must be never, restart, always or 0 to 3, not {given!r}"
    elif persistence(config) is not Persist.NEVER and config.containers:
        yield "rootfs.persist is not served by this node yet: root filesystems of containers are not kept"
    size_gb = config.rootfs.size_gb if config.rootfs is not None else None
    if size_gb and not 1 <= size_gb <= MAX_ROOTFS_GB:
        yield f"rootfs.size_gb must be between 1 and {MAX_ROOTFS_GB}, not {size_gb}"


def unserved(config: MachineConfig, served: Sized) -> Iterator[str]:
    """The complaints about what the node's driver cannot do, each with its reason. Takes configs of which `persist` has
    nothing to say."""
    start = f"is not served by this node's driver ({served.driver}):"
    if persistence(config) is not Persist.NEVER and not served.rootfs:
        yield f"rootfs.persist {start} its machines have no root filesystem"
    if rootfs_mib(config) is not None and not served.rootfs:
        yield f"rootfs.size_gb {start} its machines have no root filesystem"
    if config.guest is not None and config.guest.max_memory_mb and not served.limits:
        yield f"guest.max_memory_mb {start} its machines have no limits"
    if config.init is not None and config.init.swap_size_mb and served.lacks_swap:
        yield f"init.swap_size_mb {start} {served.lacks_swap}"
    for path, part in (("init", config.init), ("guest", config.guest)):
        if part is not None and part.kernel_args and not served.kernel:
            yield f"{path}.kernel_args {start} its machines have no kernel of their own"


# What a config's arguments of the guest's kernel must satisfy. Pure; yields complaints that open with the path. The
# kernel is the tenant's own, and may be told anything that concerns nobody else: but not what the machine is
# reached, booted and turned off by, which the node says itself.

MAX_ARGS, MAX_CHARS = 32, 1024
"""Together, with what the node says itself, far below the 2048 characters that x86 and arm64 kernels read."""

_ARG = re.compile(r"[!#-~]+")  # printable ASCII without spaces and double quotes
_THE_NODES = (
    "acpi",
    "boot_delay",
    "console",
    "earlycon",
    "earlyprintk",
    "init",
    "initrd",
    "maxcpus",
    "mem",
    "noinitrd",
    "nr_cpus",
    "panic",
    "rdinit",
    "reboot",
    "ro",
    "root",
    "rootflags",
    "rootfstype",
    "rw",
    "virtio_mmio.device",
)
_OUR_PREFIX = "hawker."


def kernel_args(config: MachineConfig) -> Iterator[str]:
    given = [(path, part.kernel_args or ()) for path, part in (("init", config.init), ("guest", config.guest)) if part]
    for path, args in given:
        for index, arg in enumerate(args):
            yield from (f"{path}.kernel_args[{index}] {complaint}" for complaint in _complaints(arg))
    whole = [arg for _, args in given for arg in args]
    if len(whole) > MAX_ARGS:
        yield f"guest.kernel_args has more than {MAX_ARGS} items, with those of init"
    if sum(len(arg) + 1 for arg in whole) > MAX_CHARS:
        yield f"guest.kernel_args has more than {MAX_CHARS} characters, with those of init"


def _complaints(arg: str) -> Iterator[str]:
    if not _ARG.fullmatch(arg):
        yield f"must be printable ASCII without spaces and double quotes, not {arg!r:.80}"
    elif arg == "--":
        yield "ends the kernel's arguments: what follows would be the first program's"
    elif _names_the_nodes(arg.partition("=")[0]):
        yield f"is the node's to say: {arg!r:.80}"


def _names_the_nodes(name: str) -> bool:
    """The kernel takes dashes for underscores."""
    plain = name.replace("-", "_").lower()
    return plain in _THE_NODES or plain.startswith(_OUR_PREFIX)


# What a machine's mount must satisfy beyond its shape. Which volume it means is asked when the machine is created.

MAX_MOUNTS = 1
MAX_PATH_CHARS = 1024
MAX_GB = 1_000_000
PLATFORM_PATHS = ("/proc", "/sys", "/dev", "/.hawker", "/.fly")
"""The places of the platform's own mounts, each directly below the root."""


def mounts(config: MachineConfig) -> Iterator[str]:
    found = config.mounts or ()
    if len(found) > MAX_MOUNTS:
        yield f"mounts has {len(found)} items: a machine has at most one volume"
    if found and config.containers:
        yield "mounts and containers cannot be served together yet: a machine's containers share volumes of their own"
    for index, mount in enumerate(found):
        yield from (f"mounts[{index}].{complaint}" for complaint in (*_which(mount), *_path(mount), *_growth(mount)))


def _which(mount: Mount) -> Iterator[str]:
    if not mount.volume and not mount.name:
        yield "volume is required: the id of a volume, or in name the name of a free one"
    for field in ("size_gb", "add_size_gb", "size_gb_limit"):
        value = getattr(mount, field)
        if value is not None and not 0 <= value <= MAX_GB:
            yield f"{field} must be between 0 and {MAX_GB}, not {value}"


def _path(mount: Mount) -> Iterator[str]:
    path = mount.path or ""
    if not path.startswith("/") or not path.isprintable() or len(path) > MAX_PATH_CHARS:
        yield f"path must be an absolute path of at most {MAX_PATH_CHARS} characters, not {path!r:.80}"
        return
    plain = _plain(path)
    if ".." in path.split("/") or plain == "/":
        yield f"path must be below the root and without .., not {path!r:.80}"
    if any(plain == taken or plain.startswith(f"{taken}/") for taken in PLATFORM_PATHS):
        yield f"path {path!r:.80} is the platform's: {', '.join(PLATFORM_PATHS)} cannot be mounted over"


def _plain(path: str) -> str:
    """An absolute path as Linux reads it where nothing is a link: two slashes in front, which POSIX keeps, are one."""
    return "/" + posixpath.normpath(path).lstrip("/")


def _growth(mount: Mount) -> Iterator[str]:
    threshold = mount.extend_threshold_percent
    if threshold is None or threshold == 0:
        return
    if not 1 <= threshold <= 99:
        yield f"extend_threshold_percent must be between 1 and 99, not {threshold}"
    if not mount.add_size_gb:
        yield "add_size_gb is required with extend_threshold_percent"


# Which fields of a config are understood but not served, in one table. Shrinks as the house grows.

_ONE = "its machines hold one container"
MAX_CPUS = 1024
MIN_MEMORY_MIB, MAX_MEMORY_MIB = 32, 16 * 1024 * 1024
MAX_METADATA, MAX_METADATA_BYTES = 1000, 64 * 1024
MAX_METADATA_JSON_BYTES = 128 * 1024
"""All nodes of a region know a machine's metadata as JSON, where a control character has six bytes."""
MAX_CONFIG_BYTES = 512 * 1024
"""A config in the store, where the contents of files are not counted."""
MAX_CHECK_NAME = 255
MAX_PROCESSES = 16


class Served(Sized, Attached, Protocol):
    """The features of the driver that will run the machine (`runtime.driver.Features` is one)."""

    @property
    def containers(self) -> bool: ...
    @property
    def mounts(self) -> bool: ...
    @property
    def disks(self) -> bool: ...


def validate(config: MachineConfig, served: Served) -> None:
    """Raise `Unprocessable` with the first complaint: a value out of range, or a field that is not served yet."""
    validate_served(config, served)
    for rule in _RULES:
        for complaint in rule(config):
            raise Unprocessable(f"config.{complaint}")


def validate_served(config: MachineConfig, served: Served) -> None:
    """Raise `Unprocessable` with the first complaint about what a node cannot serve, or how much of it that would take.
    It is the part of `validate` that counts for a machine of another node: an older version may have taken the rest."""
    for path, reason in not_served(config):
        raise Unprocessable(f"config.{path} is not served by this node yet: {reason}")
    if config.files and not served.rootfs:
        raise Unprocessable("config.files is not served by this node's driver: its machines have no filesystem")
    if config.mounts and not (served.mounts or served.disks):
        raise Unprocessable("config.mounts is not served by this node's driver: its machines have no filesystem")
    if dns.asks_inside(config.dns) and not served.rootfs:
        raise Unprocessable("config.dns is not served by this node's driver: its machines use the host's resolver")
    if config.containers and not served.containers:
        raise Unprocessable(f"config.containers is not served by this node's driver ({served.driver}): {_ONE}")
    for rule in _ROOM_RULES:
        for complaint in rule(config):
            raise Unprocessable(f"config.{complaint}")
    for complaint in (*unserved(config, served), *unserved_gpus(config, served)):
        raise Unprocessable(f"config.{complaint}")


def complaints(config: MachineConfig) -> Iterator[str]:
    """All complaints of `validate` about a config, whatever driver will run it. Each opens with the field's path."""
    for path, reason in not_served(config):
        yield f"{path}: not served: {reason}"
    for rule in (*_ROOM_RULES, *_RULES):
        yield from rule(config)


def validate_metadata(metadata: dict[str, str], before: dict[str, str] | None = None) -> None:
    """The rule for metadata alone, for the calls that change nothing else. What is no more than it was `before` is
    taken: an older version may have taken more. Raises `Unprocessable`."""
    if metadata.keys() <= (before or {}).keys() and all(of(metadata) <= of(before) for of in (bytes_of, _json_bytes)):
        return
    for complaint in _metadata(MachineConfig(metadata=metadata)):
        raise Unprocessable(complaint)


def _bulk(config: MachineConfig) -> Iterator[str]:
    """Whoever reads the machine's record decodes all of it, in the event loop."""
    files = (*(config.files or ()), *(file for each in config.containers or () for file in each.files or ()))
    size_bytes = len(msgspec.msgpack.encode(config)) - sum(len(file.raw_value or "") for file in files)
    if size_bytes > MAX_CONFIG_BYTES:
        what = "env and all other fields, but for the contents of files,"
        yield f"{what} are larger than {MAX_CONFIG_BYTES} bytes together"


def _image(config: MachineConfig) -> Iterator[str]:
    """A machine with containers needs none of its own: it is what those are made from that name none."""
    if config.image or not config.containers:
        yield from image_complaints("image", config.image)


def _size(config: MachineConfig) -> Iterator[str]:
    if config.size and config.size not in PRESETS:
        yield f"size: {config.size!r} is not one of {', '.join(PRESETS)}"
        return
    given = config.guest
    if given is None:
        return
    if config.size and guest(config) != PRESETS[config.size]:
        yield "size and config.guest exclude each other"
    if given.cpus is not None and not 1 <= given.cpus <= MAX_CPUS:
        yield f"guest.cpus must be between 1 and {MAX_CPUS}, not {given.cpus}"
    if given.memory_mb is not None and not MIN_MEMORY_MIB <= given.memory_mb <= MAX_MEMORY_MIB:
        yield f"guest.memory_mb must be between {MIN_MEMORY_MIB} and {MAX_MEMORY_MIB}, not {given.memory_mb}"


def _env(config: MachineConfig) -> Iterator[str]:
    yield from env_complaints("env", config.env)


def _commands(config: MachineConfig) -> Iterator[str]:
    if len(config.processes or ()) > MAX_PROCESSES:
        yield f"processes has more than {MAX_PROCESSES} items"
    if config.init is not None:
        yield from argv_complaints("init", config.init.exec, config.init.entrypoint, config.init.cmd)
    for index, process in enumerate(config.processes or ()):
        yield from run_complaints(f"processes[{index}]", process)


def _files(config: MachineConfig) -> Iterator[str]:
    yield from files_complaints("files", config.files or ())
    images = {config.image, *(container.image for container in config.containers or ())}
    for index, file in enumerate(config.files or ()):
        if file.image_config and file.image_config not in images:
            yield f"files[{index}].image_config names no image of the machine: {file.image_config!r}"


def _metadata(config: MachineConfig) -> Iterator[str]:
    if any(not key for key in config.metadata or {}):
        yield "metadata has an empty key"
    if len(config.metadata or {}) > MAX_METADATA:
        yield f"metadata has more than {MAX_METADATA} keys"
    elif bytes_of(config.metadata) > MAX_METADATA_BYTES:
        yield f"metadata is larger than {MAX_METADATA_BYTES} bytes"
    elif _json_bytes(config.metadata) > MAX_METADATA_JSON_BYTES:
        yield f"metadata is larger than {MAX_METADATA_JSON_BYTES} bytes as JSON"


def _json_bytes(metadata: dict[str, str] | None) -> int:
    return len(msgspec.json.encode(metadata or {}))


def _checks(config: MachineConfig) -> Iterator[str]:
    if len(config.checks or {}) > MAX_CHECKS:
        yield f"checks has more than {MAX_CHECKS} items"
    for name, check in (config.checks or {}).items():
        if name.startswith(SERVICE_CHECK):
            yield f"checks.{name}: names that begin with {SERVICE_CHECK} are those of services' checks"
        if len(name) > MAX_CHECK_NAME:
            yield f"checks: a name may have {MAX_CHECK_NAME} characters, not {len(name)}"
            continue
        yield from (f"checks.{name}.{complaint}" for complaint in check_complaints(check))


def _dns(config: MachineConfig) -> Iterator[str]:
    if config.dns is not None:
        yield from (f"dns.{complaint}" for complaint in dns.complaints(config.dns))


def _ending(config: MachineConfig) -> Iterator[str]:
    yield from restart_complaints("restart", config.restart)
    yield from stop_complaints("stop_config", config.stop_config)


_ROOM_RULES: tuple[Callable[[MachineConfig], Iterator[str]], ...] = (
    _size,
    memory,
    persist,
    gpus,
    container_rules.volumes,
)
_RULES: tuple[Callable[[MachineConfig], Iterator[str]], ...] = (
    _image,
    kernel_args,
    _env,
    _commands,
    _files,
    _metadata,
    _checks,
    _dns,
    _ending,
    mounts,
    service_rules.services,
    service_rules.statics,
    service_rules.metrics,
    service_rules.standbys,
    container_rules.containers,
    _bulk,
)
