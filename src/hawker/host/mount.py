"""Mounts of this host: image, overlay and bind mounts, and the list of what is mounted.

`mount_image` (a read-only block file), `mount_overlay`, `fresh_overlay` (a clean writable layer), `kept_overlay` (one
that was there before), `bind`, `unmount`,
`is_mounted`, `mounts`, `empty_trash`. All but `empty_trash` take well under a millisecond and are plain functions;
each is idempotent: what is mounted already, or not mounted, is no error. Raises `OSError` with the kernel's reason.
"""

import ctypes
import errno
import os
import re
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread

from hawker.failpoint import inside
from hawker.host.block import attach_loop, filesystem_of
from hawker.host.rmtree import remove_tree

_libc = ctypes.CDLL(None, use_errno=True)
READ_ONLY, NOSUID, NODEV, BIND, PRIVATE, REMOUNT = 0x1, 0x2, 0x4, 0x1000, 0x40000, 0x20
_DETACH, _NO_FOLLOW = 0x2, 0x8
_AT_FDCWD, _NO_SYMLINK, _NO_AUTOMOUNT = -100, 0x100, 0x800
_STATX_SIZE, _MOUNT_ROOT = 256, 0x2000
_EMPTYING = threading.Lock()  # two in one tree would move what is in it away from each other
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class MountEntry:
    """One line of mountinfo; `options` are those of the filesystem itself."""

    target: Path
    fstype: str
    source: str
    options: str


def mounts(below: Path | None = None) -> list[MountEntry]:
    """What is mounted at or below a path, in the order in which it was mounted."""
    found = parse_mountinfo(Path("/proc/self/mountinfo").read_text())
    return [mount for mount in found if below is None or mount.target.is_relative_to(below)]


def parse_mountinfo(text: str) -> list[MountEntry]:
    """proc(5): the mount point is the fifth field; type, source and options follow a lone hyphen."""
    found = []
    for line in text.splitlines():
        mine, _, theirs = line.partition(" - ")
        fstype, source, options = theirs.split(" ", 2)
        found.append(MountEntry(Path(_unescape(mine.split(" ")[4])), fstype, _unescape(source), options))
    return found


def is_mounted(target: Path) -> bool:
    """Whether something is mounted at `target` itself; one statx(2), whatever else is mounted on the host."""
    found = ctypes.create_string_buffer(_STATX_SIZE)
    if _libc.statx(_AT_FDCWD, os.fsencode(target), _NO_SYMLINK | _NO_AUTOMOUNT, 0, found) != 0:
        return False
    attributes = int.from_bytes(found.raw[8:16], sys.byteorder)
    return bool(attributes & _MOUNT_ROOT)


def mount_image(file: Path, target: Path) -> None:
    """Mount an EROFS or ext4 image file read-only: straight from the file where the kernel can, else through a loop
    device that goes away with the mount."""
    target.mkdir(parents=True, exist_ok=True)
    if is_mounted(target):
        return
    fstype, flags = filesystem_of(file), READ_ONLY | NODEV
    if fstype == "erofs":
        try:
            return mount(str(file), target, fstype, flags)
        except OSError as error:
            if error.errno not in (errno.ENOTBLK, errno.EINVAL):
                raise
    with attach_loop(file) as device:
        mount(device, target, fstype, flags, "norecovery" if fstype == "ext4" else "")


def mount_overlay(lower: Path, upper: Path, work: Path, target: Path) -> None:
    """A writable view of `lower`; what is written goes to `upper`. `volatile`: nothing is synced to disk, also not by
    unmounting, because a machine's root filesystem lives as long as its instance."""
    target.mkdir(parents=True, exist_ok=True)
    if is_mounted(target):
        return
    paths = f"lowerdir={_escape(lower)},upperdir={_escape(upper)},workdir={_escape(work)}"
    mount("overlay", target, "overlay", 0, f"{paths},volatile")


def kept_overlay(lower: Path, layer: Path, target: Path) -> None:
    """Mount `lower` at `target` under the writable layer in the directory `layer`, which is made if it is not there and
    outlives the mount. Another lower may be below it each time: the features that would forbid that are off. What the
    machine syncs is on the disk."""
    if not layer.exists():
        _make_layer(lower, layer)
    target.mkdir(parents=True, exist_ok=True)
    if not is_mounted(target):
        paths = f"lowerdir={_escape(lower)},upperdir={_escape(layer / 'upper')},workdir={_escape(layer / 'work')}"
        mount("overlay", target, "overlay", 0, f"{paths},index=off,metacopy=off,redirect_dir=off,xino=off")


def _make_layer(lower: Path, layer: Path) -> None:
    """Whole or not at all."""
    made = Path(tempfile.mkdtemp(prefix="new-", dir=layer.parent))
    for name in ("upper", "work"):
        (made / name).mkdir()
    root = lower.stat()
    os.chmod(made / "upper", root.st_mode & 0o7777)
    os.chown(made / "upper", root.st_uid, root.st_gid)
    inside("layered")
    made.rename(layer)


def shows_layer(target: Path, lower: Path, layer: Path) -> bool:
    """Whether `target` is an overlay of just these two."""
    wanted = {f"lowerdir={_escape(lower)}", f"upperdir={_escape(layer / 'upper')}"}
    found = [each for each in mounts(target) if each.target == target and each.fstype == "overlay"]
    return len(found) == 1 and wanted <= {_unescape(option) for option in found[0].options.split(",")}


def fresh_overlay(lower: Path, layer: Path, target: Path, trash: Path) -> None:
    """Mount `lower` at `target` under an empty writable layer kept in the directory `layer`. An old layer is moved to
    `trash`, which must be on the same filesystem and is emptied by `empty_trash`."""
    discard_overlay(layer, target, trash)
    upper, work = layer / "upper", layer / "work"
    for directory in (upper, work):
        directory.mkdir(parents=True)
    root = lower.stat()
    os.chmod(upper, root.st_mode & 0o7777)
    os.chown(upper, root.st_uid, root.st_gid)
    inside("layered")
    mount_overlay(lower, upper, work, target)


def discard_overlay(layer: Path, target: Path, trash: Path) -> None:
    """Unmount, and move the writable layer to `trash`; no error when neither is there."""
    unmount(target)
    inside("detached")
    if layer.exists():
        trash.mkdir(parents=True, exist_ok=True)
        os.rename(layer, tempfile.mkdtemp(dir=trash))


async def empty_trash(trash: Path) -> None:
    """Remove what `discard_overlay` moved away, in a thread: a machine may have left many files there."""
    await anyio.to_thread.run_sync(_empty, trash)


def _empty(trash: Path) -> None:
    """More may come while it is emptied."""
    with _EMPTYING:
        with suppress(FileNotFoundError):
            for name in os.listdir(trash):
                remove_tree(trash / name)
        with suppress(OSError):
            trash.rmdir()


def bind(source: Path | str, target: Path, *, read_only: bool = False) -> None:
    """Make a file or directory appear at `target`, which must exist."""
    if is_mounted(target):
        return
    mount(str(source), target, "", BIND)
    if read_only:
        mount("", target, "", BIND | REMOUNT | READ_ONLY)


def unmount(target: Path) -> None:
    """Detach whatever is mounted at `target` now; the kernel drops it when its last user ends. Raises `OSError`."""
    while is_mounted(target):
        if _libc.umount2(os.fsencode(target), _DETACH | _NO_FOLLOW) != 0:
            code = ctypes.get_errno()
            if code in (errno.EINVAL, errno.ENOENT):
                return
            raise OSError(code, f"unmount: {os.strerror(code)}", str(target))


def mount(source: str, target: Path, fstype: str, flags: int, options: str = "") -> None:
    """mount(2). Raises `OSError`."""
    arguments = (os.fsencode(source), os.fsencode(target), fstype.encode(), ctypes.c_ulong(flags), os.fsencode(options))
    if _libc.mount(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mount {fstype or 'bind'}: {os.strerror(code)}", str(target))


def _unescape(field: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), field)


def _escape(path: Path) -> str:
    """Overlay's options end at a comma and its lower directories at a colon, unless a backslash is before it."""
    return re.sub(r"([\\,:])", r"\\\1", str(path))
