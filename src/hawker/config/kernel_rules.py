"""What a config's arguments of the guest's kernel must satisfy. Pure; yields complaints that open with the path.

The kernel is the tenant's own, and may be told anything that concerns nobody else: but not what the machine is reached,
booted and turned off by, which the node says itself.
"""

import re
from collections.abc import Iterator

from hawker.config.machine import MachineConfig

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
