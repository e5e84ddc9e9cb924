"""What a machine's mount must satisfy beyond its shape. Which volume it means is asked when the machine is created."""

import posixpath
from collections.abc import Iterator

from hawker.config.machine import MachineConfig
from hawker.config.storage import Mount

MAX_MOUNTS = 1
MAX_PATH_CHARS = 1024
MAX_GB = 1_000_000
_TAKEN = ("/proc", "/sys", "/dev", "/.hawker", "/.fly")
"""Where the platform's own mounts are."""


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
    plain = posixpath.normpath(path.rstrip("/") or "/")
    if ".." in path.split("/") or plain == "/":
        yield f"path must be below the root and without .., not {path!r:.80}"
    if any(plain == taken or plain.startswith(f"{taken}/") for taken in _TAKEN):
        yield f"path {path!r:.80} is the platform's: {', '.join(_TAKEN)} cannot be mounted over"


def _growth(mount: Mount) -> Iterator[str]:
    threshold = mount.extend_threshold_percent
    if threshold is None or threshold == 0:
        return
    if not 1 <= threshold <= 99:
        yield f"extend_threshold_percent must be between 1 and 99, not {threshold}"
    if not mount.add_size_gb:
        yield "add_size_gb is required with extend_threshold_percent"
