"""What a config's memory, swap and root filesystem must satisfy. Pure; yields complaints that open with the path."""

from collections.abc import Iterator
from typing import Protocol

from hawker.config.effective import Persist, guest, persist_of, persistence
from hawker.config.machine import MachineConfig

MAX_SWAP_MIB = 64 * 1024


class Sized(Protocol):
    """What the driver that will run the machine can do about it (`runtime.driver.Features` is one)."""

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
    swap = config.init.swap_size_mb if config.init is not None else None
    if swap and not 0 <= swap <= MAX_SWAP_MIB:
        yield f"init.swap_size_mb must be between 0 and {MAX_SWAP_MIB}, not {swap}"


def persist(config: MachineConfig) -> Iterator[str]:
    given = config.guest.persist_rootfs if config.guest is not None else None
    if persist_of(given) is None:
        yield f"guest.persist_rootfs must be never, restart, always or 0 to 3, not {given!r}"
    elif persistence(config) is not Persist.NEVER and config.containers:
        yield "rootfs.persist is not served by this node yet: root filesystems of containers are not kept"


def unserved(config: MachineConfig, served: Sized) -> Iterator[str]:
    """What the node's driver cannot do, each with its reason. Takes configs of which `persist` has nothing to say."""
    start = f"is not served by this node's driver ({served.driver}):"
    if persistence(config) is not Persist.NEVER and not served.rootfs:
        yield f"rootfs.persist {start} its machines have no root filesystem"
    if config.guest is not None and config.guest.max_memory_mb and not served.limits:
        yield f"guest.max_memory_mb {start} its machines have no limits"
    if config.init is not None and config.init.swap_size_mb and served.lacks_swap:
        yield f"init.swap_size_mb {start} {served.lacks_swap}"
    for path, part in (("init", config.init), ("guest", config.guest)):
        if part is not None and part.kernel_args and not served.kernel:
            yield f"{path}.kernel_args {start} its machines have no kernel of their own"
