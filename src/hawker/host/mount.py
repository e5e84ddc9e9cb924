"""Mounts of this host: image, overlay and bind mounts, the list of what is mounted, who holds what is mounted no more,
and what a process has as its root, mounted here as well (`open_tree(2)`, `move_mount(2)`).

All but `empty_trash`, and what enters another mount namespace by a thread that ends with the call, take well under a
millisecond and are plain functions; each is idempotent: what is mounted already, or not mounted, is no error. Raises
`OSError` with the kernel's reason.
"""

import ctypes
import errno
import hashlib
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from contextvars import copy_context
from pathlib import Path
from typing import TypeVar

from hawker.failpoint import inside
from hawker.fair.threads import Pool, in_thread
from hawker.host.block import attach_loop, filesystem_of
from hawker.host.idmap import acting_as, attach_tree, mapped_tree, mapping
from hawker.host.rmtree import remove_tree
from hawker.value_object import ValueObject

_libc = ctypes.CDLL(None, use_errno=True)
READ_ONLY, NOSUID, NODEV, NOEXEC, BIND, PRIVATE, REMOUNT = 0x1, 0x2, 0x4, 0x8, 0x1000, 0x40000, 0x20
SLAVE, RECURSIVE = 0x80000, 0x4000
_DETACH, _NO_FOLLOW = 0x2, 0x8
_AT_FDCWD, _NO_SYMLINK, _NO_AUTOMOUNT = -100, 0x100, 0x800
_STATX_SIZE, _MOUNT_ROOT = 256, 0x2000
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432  # the same on every architecture
_FLAG, _STRING, _CREATE = 0, 1, 6
_ATTRIBUTE_NODEV = 4
_EMPTYING = threading.Lock()  # two in one tree would move what is in it away from each other
_MAPPED = "hawker:"
_DISCARDED = "volatile"
_KEPT = "index=off,metacopy=off,redirect_dir=off,xino=off"
_WANTS_ATTACHED = frozenset({errno.EINVAL, errno.ELOOP, errno.ENOENT})
_OCTAL = re.compile(r"\\([0-7]{3})")


class MountEntry(ValueObject, frozen=True):
    """One line of mountinfo; `options` are those of the filesystem itself."""

    target: Path
    fstype: str
    """The kernel's name of the filesystem's kind, `ext4` for example."""
    source: str
    """The device, or the text that the filesystem has in its place."""
    options: str


def mounts(below: Path | None = None) -> list[MountEntry]:
    """All that is mounted at or below a path, in the order in which it was mounted."""
    found = parse_mountinfo(Path("/proc/self/mountinfo").read_text())
    return [mount for mount in found if below is None or mount.target.is_relative_to(below)]


def parse_mountinfo(text: str) -> list[MountEntry]:
    """The mounts in the text of proc(5) mountinfo: the mount point is the fifth field; type, source and options follow
    a lone hyphen."""
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
    """Mount a writable view of `lower` at `target`; all writes go to `upper`. `volatile`: nothing is synced to disk,
    also not by unmounting, because a machine's root filesystem lives as long as its instance."""
    target.mkdir(parents=True, exist_ok=True)
    if is_mounted(target):
        return
    paths = f"lowerdir={_escape(lower)},upperdir={_escape(upper)},workdir={_escape(work)}"
    mount("overlay", target, "overlay", 0, f"{paths},{_DISCARDED}")


def kept_overlay(lower: Path, layer: Path, target: Path, *, first_id: int | None = None) -> None:
    """Mount `lower` at `target` under the writable layer in the directory `layer`, which is made if it is not there and
    outlives the mount. Another lower may be below it each time: the features that would forbid that are off. Data that
    the machine syncs is on the disk. With `first_id`, the machine's user 0 has that id there; on the disk it has 0."""
    if not layer.exists():
        _make_layer(lower, layer)
    target.mkdir(parents=True, exist_ok=True)
    if not is_mounted(target):
        _mount_layer(lower, layer, target, _KEPT, first_id)


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


def shows_layer(target: Path, lower: Path, layer: Path, *, first_id: int | None = None) -> bool:
    """Whether `target` is an overlay of just these two, with just these ids."""
    wanted = {f"lowerdir={_escape(lower)}", f"upperdir={_escape(layer / 'upper')}"}
    found = [each for each in mounts(target) if each.target == target and each.fstype == "overlay"]
    if len(found) != 1 or first_id is not None:
        return len(found) == 1 and found[0].source == _overlay_name(lower, layer, first_id)
    return wanted <= {_unescape(option) for option in found[0].options.split(",")}


def fresh_overlay(lower: Path, layer: Path, target: Path, trash: Path, *, first_id: int | None = None) -> None:
    """Mount `lower` at `target` under an empty writable layer kept in the directory `layer`. An old layer is moved to
    `trash`, which must be on the same filesystem and is emptied by `empty_trash`. `first_id`: see `kept_overlay`."""
    discard_overlay(layer, target, trash)
    upper = layer / "upper"
    for directory in (upper, layer / "work"):
        directory.mkdir(parents=True, exist_ok=True)  # a layer that was made ahead of time has them
    root = lower.stat()
    os.chmod(upper, root.st_mode & 0o7777)
    os.chown(upper, root.st_uid, root.st_gid)
    inside("layered")
    target.mkdir(parents=True, exist_ok=True)
    _mount_layer(lower, layer, target, _DISCARDED, first_id)


def _mount_layer(lower: Path, layer: Path, target: Path, options: str, first_id: int | None) -> None:
    if first_id is None:
        upper, work = layer / "upper", layer / "work"
        paths = f"lowerdir={_escape(lower)},upperdir={_escape(upper)},workdir={_escape(work)}"
        return mount("overlay", target, "overlay", 0, f"{paths},{options}")
    name = _overlay_name(lower, layer, first_id)
    with mapping(first_id) as namespace, ExitStack() as stack:
        trees = [mapped_tree(path, namespace) for path in (lower, layer)]
        for tree in trees:
            stack.callback(os.close, tree)
        try:
            _mount_mapped(name, trees, target, options, first_id)
        except OSError as error:
            if error.errno not in _WANTS_ATTACHED:
                raise
            _mount_attached(name, trees, target, options, first_id)


def _mount_mapped(name: str, trees: Sequence[int], target: Path, options: str, first_id: int) -> None:
    """An overlay of mapped trees, lower and layer. Overlay works on its layers as who mounted it, and root of this host
    is nobody there. The machine reads in its list of mounts a name in the place of our directories."""
    lower, layer = (f"/proc/self/fd/{tree}" for tree in trees)
    with acting_as(first_id):
        mount(name, target, "overlay", 0, f"lowerdir={lower},upperdir={layer}/upper,workdir={layer}/work,{options}")


def _mount_attached(name: str, trees: Sequence[int], target: Path, options: str, first_id: int) -> None:
    """Kernels before 6.15 take layers only from mounts that are attached: beside the target, until the overlay has
    copies of its own. What a crash leaves there is a stray."""
    place = Path(tempfile.mkdtemp(prefix=".layers-", dir=target.parent))
    try:
        for tree in trees:
            attach_tree(tree, place)
        _mount_mapped(name, trees, target, options, first_id)
    finally:
        unmount(place)
        place.rmdir()


def is_layer_of(overlay: MountEntry, layers: Path) -> bool:
    """Whether the writable layer of this mount is below `layers`, a directory with that name."""
    return str(layers) in overlay.options or overlay.source.startswith(f"{_MAPPED}{_below(layers)}/")


def _overlay_name(lower: Path, layer: Path, first_id: int | None) -> str:
    """What is mounted, for us to know it again: the end of the layer's path, and a digest of all."""
    whole = "\0".join((str(lower), str(layer), str(first_id)))
    return f"{_MAPPED}{_below(layer)}:{hashlib.blake2b(whole.encode(), digest_size=8).hexdigest()}"


def _below(layer: Path) -> str:
    """From the directory that has the `layers`."""
    parts = layer.parts
    return "/".join(parts[parts.index("layers") - 1 :] if "layers" in parts else parts[-1:])


def discard_overlay(layer: Path, target: Path, trash: Path) -> None:
    """Unmount `target`, and move the writable layer to `trash`; no error when neither is there."""
    unmount(target)
    inside("detached")
    if layer.exists() and not is_mounted(layer):
        _move_away(layer, trash)


def discard(path: Path, trash: Path) -> None:
    """Move a file or directory that nobody uses to `trash`; no error when it is not there."""
    if path.exists():
        _move_away(path, trash)


def _move_away(path: Path, trash: Path) -> None:
    """To be removed later: a machine may have left many files. At once where there is no room for one more directory:
    what is removed may be what fills the disk."""
    try:
        trash.mkdir(parents=True, exist_ok=True)
        os.rename(path, trash / f"{path.lstat().st_ino}")  # which nothing else has for as long as it is there
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _remove(path)


async def empty_trash(trash: Path) -> None:
    """Remove the layers and files that `discard_overlay` and `discard` moved to `trash`, in a thread: a machine may
    have left many files there."""
    await in_thread(Pool.HOST, _empty, trash)


def _empty(trash: Path) -> None:
    """More may come while it is emptied."""
    with _EMPTYING:
        with suppress(FileNotFoundError):
            for name in os.listdir(trash):
                _remove(trash / name)
        with suppress(OSError):
            trash.rmdir()


def _remove(path: Path) -> None:
    """A file, or a directory with all that is in it."""
    try:
        remove_tree(path)
    except NotADirectoryError:
        path.unlink()


def bind(source: Path | str, target: Path, *, read_only: bool = False) -> None:
    """Make a file or directory appear at `target`, which must exist."""
    if is_mounted(target):
        return
    mount(str(source), target, "", BIND)
    if read_only:
        mount("", target, "", BIND | REMOUNT | READ_ONLY)


def unmount(target: Path) -> None:
    """Detach all that is mounted at `target` now; the kernel drops a mount when its last user ends. Raises
    `OSError`."""
    while is_mounted(target):
        if _libc.umount2(os.fsencode(target), _DETACH | _NO_FOLLOW) != 0:
            code = ctypes.get_errno()
            if code in (errno.EINVAL, errno.ENOENT):
                return
            raise OSError(code, f"unmount: {os.strerror(code)}", str(target))


def mount(source: str, target: Path, fstype: str, flags: int, options: str = "") -> None:
    """Call mount(2). Raises `OSError`."""
    arguments = (os.fsencode(source), os.fsencode(target), fstype.encode(), ctypes.c_ulong(flags), os.fsencode(options))
    if _libc.mount(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mount {fstype or 'bind'}: {os.strerror(code)}", str(target))


def detached_mount(source: str, fstype: str, *, options: Mapping[str, str | None]) -> int:
    """A descriptor of a mount, without devices, that is nowhere yet (`attach_tree`) and goes with its last descriptor.
    `options` are the filesystem's own; an option without a value has None. Raises `OSError`."""
    made = _call(_FSOPEN, f"fsopen {fstype}", fstype.encode(), 1)
    try:
        for name, value in {"source": source, **options}.items():
            kind, text = (_FLAG, None) if value is None else (_STRING, value.encode())
            _call(_FSCONFIG, f"{fstype}: {name}", made, kind, name.encode(), text, 0)
        _call(_FSCONFIG, f"mount {fstype} of {source}", made, _CREATE, None, None, 0)
        return _call(_FSMOUNT, f"fsmount {fstype}", made, 1, _ATTRIBUTE_NODEV)
    finally:
        os.close(made)


def _call(number: int, what: str, *arguments: int | bytes | None) -> int:
    done: int = _libc.syscall(number, *arguments)
    if done < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return done


def _unescape(field: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), field)


def _escape(path: Path) -> str:
    """Overlay's options end at a comma and its lower directories at a colon, unless a backslash is before it."""
    return re.sub(r"([\\,:])", r"\\\1", str(path))


T = TypeVar("T")

_CLONE_FS, _CLONE_NEWNS = 0x200, 0x20000


def leave_namespace() -> None:
    """Give the calling thread, and the threads and processes that it begins, a mount namespace of its own. Raises
    `OSError`."""
    _check(_libc.unshare(_CLONE_FS | _CLONE_NEWNS), "mount namespace")
    mount("", Path("/"), "", SLAVE | RECURSIVE)


def privately(work: Callable[[], T]) -> T:
    """Call `work` in a mount namespace of its own; mounts that it makes stay there. Raises `OSError`, and what `work`
    does."""

    def enter() -> T:
        leave_namespace()
        return work()

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="mounts") as thread:
        return thread.submit(copy_context().run, enter).result()


_PROC = Path("/proc")
_MACHINES = "/hawker-"  # in the control group of every machine's process, of whatever node


class MountHolder(ValueObject, frozen=True):
    """A process that holds mounts in another mount namespace; `namespace` is the kernel's number of that namespace."""

    pid: int
    """The process id, as this process sees it."""
    name: str
    """The name of the process's first thread, at most 15 bytes: not its program's path."""
    namespace: int

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name}) in mount namespace {self.namespace}"


def mount_holders(devices: Collection[Path]) -> dict[Path, tuple[MountHolder, ...]]:
    """For each device that is held, a process of each foreign mount namespace that holds it; machines' own namespaces
    do not count."""
    numbers = {number: device for device in devices if (number := _number_of(device)) is not None}
    found: dict[Path, list[MountHolder]] = {}
    if numbers:
        for holder, folder in _first_of_each_namespace():
            for device in {numbers[number] for number in _mounted_in(folder) if number in numbers}:
                found.setdefault(device, []).append(holder)
    return {device: tuple(holders) for device, holders in found.items()}


def _first_of_each_namespace() -> Iterator[tuple[MountHolder, Path]]:
    """Beside our own. A process that ends meanwhile is left out."""
    seen = {_namespace_of(_PROC / "self")}
    for folder in sorted((each for each in _PROC.iterdir() if each.name.isdigit()), key=lambda each: int(each.name)):
        with suppress(OSError, ValueError):
            namespace = _namespace_of(folder)
            if namespace in seen or _MACHINES in (folder / "cgroup").read_text():
                continue
            seen.add(namespace)
            name = (folder / "comm").read_text(errors="replace").strip()
            yield MountHolder(int(folder.name), name, namespace), folder


def _namespace_of(folder: Path) -> int:
    return int(os.readlink(folder / "ns/mnt").partition("[")[2].rstrip("]"))


def _mounted_in(folder: Path) -> Iterator[str]:
    """The devices, as `major:minor`."""
    with suppress(OSError):
        for line in (folder / "mountinfo").read_text(errors="replace").splitlines():
            yield line.split()[2]


def _number_of(device: Path) -> str | None:
    with suppress(OSError):
        number = device.stat().st_rdev
        return f"{os.major(number)}:{os.minor(number)}"
    return None


_OPEN_TREE, _MOVE_MOUNT = 428, 429  # the same on every architecture
_TREE_CLONE, _CLOEXEC = 1, 0o2000000
_FROM_DESCRIPTOR = 4


def remount_root(pid: int, target: Path, path: str = "/") -> None:
    """Mount at `target` the tree that process `pid` has as its root, or has mounted at `path`; no change when something
    is mounted at `target`. Raises `OSError`."""
    target.mkdir(parents=True, exist_ok=True)
    if is_mounted(target):
        return
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="reveal") as thread:
        tree = thread.submit(_copy_root, pid, path).result()
    try:
        moved = _libc.syscall(_MOVE_MOUNT, tree, ctypes.c_char_p(b""), _AT_FDCWD, os.fsencode(target), _FROM_DESCRIPTOR)
        _check(moved, "move_mount")
    finally:
        os.close(tree)


def _copy_root(pid: int, path: str) -> int:
    """In a thread that is not used again: it does not come back from the other namespace."""
    namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.unshare(_CLONE_FS), "unshare")
        _check(_libc.setns(namespace, _CLONE_NEWNS), "setns")
    finally:
        os.close(namespace)
    tree: int = _libc.syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(path), _TREE_CLONE | _CLOEXEC)
    _check(tree, "open_tree")
    return tree


def _check(result: int, what: str) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
