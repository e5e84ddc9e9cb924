"""ext4 in a block file: made, checked, mounted and grown, what its superblock says, and empty ones to copy: one of each
kind and size, made once, because mke2fs takes tens of milliseconds each time.

Growing is left to the kernel where it lets us, also while the filesystem is in use: it is one journalled change, which
a crash leaves done or not done. Without the capability for it (CAP_SYS_RESOURCE) it waits until the filesystem is not
in use, and is resize2fs's work. A tool that we began is not ended with us: nobody kills it in the middle.
"""

import ctypes
import errno
import fcntl
import os
import shutil
import signal
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio

from hawker.errors import BadRequest, NotServed, Unavailable
from hawker.fair.threads import Pool, in_thread
from hawker.host import sparse
from hawker.host.block import attach_loop, held_loop, loops, set_capacity
from hawker.host.mount import NODEV, mount
from hawker.host.spawn import reap, spawn
from hawker.value_object import ValueObject

OFFSET, LENGTH = 1024, 1024
_MAGIC = 0xEF53
_LARGEST_LOG_BLOCK = 6  # 64 KiB
_VALID, _ERRORS = 0x1, 0x2


class Superblock(ValueObject, frozen=True):
    """The superblock of an ext4 filesystem. Counts are in blocks; `overhead` is what the filesystem keeps for itself, 0
    where it does not say. `whole` unless it must be checked before it is mounted: it was seen damaged, or was not
    unmounted and has no journal."""

    block_size: int
    """The size of a block in bytes: a power of two from 1024 to 65536."""
    blocks: int
    """The number of all blocks of the filesystem."""
    blocks_free: int
    """The number of free blocks, with those that are reserved."""
    blocks_reserved: int
    """The number of blocks that are reserved for root."""
    overhead: int
    whole: bool

    @property
    def bytes(self) -> int:
        return self.blocks * self.block_size


def parse_superblock(raw: bytes) -> Superblock | None:
    """The superblock in `LENGTH` bytes; None when they are none, or contradict themselves."""
    if len(raw) < LENGTH or struct.unpack_from("<H", raw, 56)[0] != _MAGIC:
        return None
    (log_block,) = struct.unpack_from("<I", raw, 24)
    (state,) = struct.unpack_from("<H", raw, 58)
    if log_block > _LARGEST_LOG_BLOCK:
        return None
    blocks, reserved, free = (_wide(raw, low, high) for low, high in ((4, 336), (8, 340), (12, 344)))
    if blocks == 0 or free > blocks or reserved > blocks:
        return None
    (overhead,) = struct.unpack_from("<I", raw, 584)
    return Superblock(
        block_size=1024 << log_block,
        blocks=blocks,
        blocks_free=free,
        blocks_reserved=reserved,
        overhead=overhead if overhead < blocks - free else 0,
        whole=bool(state & _VALID) and not state & _ERRORS,
    )


def read_superblock(file: Path) -> Superblock | None:
    """The superblock in a file. None as of `parse_superblock`. Raises `OSError`, for example when there is no such
    file."""
    with file.open("rb") as stream:
        stream.seek(OFFSET)
        return parse_superblock(stream.read(LENGTH))


def _wide(raw: bytes, low: int, high: int) -> int:
    low_half: int = struct.unpack_from("<I", raw, low)[0]
    high_half: int = struct.unpack_from("<I", raw, high)[0]
    return low_half | high_half << 32


_libc = ctypes.CDLL(None, use_errno=True)
_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
_RESIZE_FS = 0x40086610  # EXT4_IOC_RESIZE_FS
_FITRIM = 0xC0185879
TRIMMED_AT_ONCE = 4 << 30
_NO_TRIM = frozenset({errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EROFS})
_CAP_SYS_RESOURCE = 24
_MENDED = 1  # e2fsck(8): what was wrong and is not any more
_BROKEN_OFF = 32 | 128  # somebody stopped it, or a library is missing
_FAILED = 8  # it got no memory, was ended by a fault of its own, or found no superblock
_MENDED_IN_USE = 2  # the same, of one that a kernel may have mounted
_DAMAGED = frozenset({errno.EINVAL, errno.EUCLEAN, errno.EIO, errno.EBADMSG})
_ASKED_S, _ASKED_MEMORY, _ANSWER_BYTES = 60, 1 << 30, 1 << 20
_OPTIONS = "errors=remount-ro"
"""The options of each mount: they hold also where the superblock says that the whole host should panic."""

_NOBODY = 65534
_CONFINED = "setpriv"
_POWERLESS = (f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups", "--no-new-privs", "--bounding-set=-all")
_FIRST_TO_GO = ("-n", "1000")  # when memory runs out: before every machine, whatever the daemon's own score
_LEAST_MEMORY, _BLOCK_MEMORY, _STACK = 256 << 20, 32, 2 << 20
"""The bytes that a confined tool may have: a base, some for each block of 4 KiB, and a stack for each processor, since
e2fsck reads bitmaps in as many threads. An empty filesystem of 256 GiB takes 13 MiB, one of 4 GiB with 120,000 small
files 16 MiB. At worst every second block is in use: e2fsck's map has 48 bytes for each run, so 24 a block; and inodes,
of which four blocks have one, may take 32 each."""
_LEAST_CPU_S, _GIB_CPU_S = 120, 2
"""The seconds of processor time that a confined tool may have, and those for each GiB more. An
empty GiB takes 0.001, one of small files 0.1."""
_BY_HAND = "it had too little memory or time, or a fault of its own; run `e2fsck -f` by hand where it stays so"
_INHERITED = "/proc/self/fd/3"  # the first that `spawn` passes on
_RESERVED_PERCENT = "1"
_LAZY = "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0"
_BARE = ("-O", "^has_journal,^resize_inode")


async def make_filesystem(file: Path, *, journal: bool = True) -> None:
    """Make an empty filesystem as large as the file. Quick whatever the size, and takes next to nothing of the disk: a
    hole in the file reads as the zeros that other programs would write. Without a journal it is for data that nobody
    reads after a crash, and never grows. Raises `Unavailable` when mke2fs fails."""
    reserved, kind = ("-m", _RESERVED_PERCENT) if journal else ("-m", "0"), () if journal else _BARE
    status = await _run("mke2fs", "-q", "-F", "-t", "ext4", *kind, *reserved, "-E", _LAZY, str(file))
    if status != 0:
        raise Unavailable(f"mke2fs could not make a filesystem in {file.name}: it ended with {status}")


async def check_filesystem(file: Path, *, thoroughly: bool = False, confined: bool = False) -> None:
    """Mend what can be mended without asking; `confined` when a tenant may have written whatever it liked to the file.
    Raises `BadRequest` when it is damaged beyond that, `Unavailable` while a check that an earlier daemon began goes
    on."""
    with locked(file) as lock:
        status = await _work("e2fsck", *(["-f"] if thoroughly else []), "-p", file=file, lock=lock, confined=confined)
    _check_looked(status, file, confined=confined)
    if status & ~_MENDED:
        raise BadRequest(f"the filesystem in {file.name} is damaged: e2fsck -p ended with {status}; see to it by hand")


def _check_looked(status: int, file: Path, *, confined: bool) -> None:
    """That it was killed, as by a host without memory, says nothing of the filesystem; nor does that it failed within
    its bounds, where there is a superblock to begin with. Raises `Unavailable`."""
    failed = confined and status & _FAILED and read_superblock(file) is not None
    if status < 0 or status & _BROKEN_OFF or failed:
        text = f"e2fsck ended with {status} before it had looked at everything in {file.name}"
        raise Unavailable(f"{text}: {_BY_HAND}" if confined else text)


async def filesystem_damage(file: Path, *, confined: bool = False) -> str | None:
    """The damage of the filesystem in a copy that is thrown away, in a sentence; None when it is whole. The entries of
    its journal are carried out first, as a mount would do. `confined` and errors are as of `check_filesystem`."""
    with locked(file) as lock:
        status = await _work("e2fsck", "-y", "-E", "journal_only", file=file, lock=lock, confined=confined)
        _check_looked(status, file, confined=confined)
        status = await _work("e2fsck", "-fn", file=file, lock=lock, confined=confined)
    _check_looked(status, file, confined=confined)
    return f"its filesystem is damaged: e2fsck -fn ended with {status}" if status else None


async def repair_filesystem(file: Path, *, confined: bool = False) -> None:
    """Mend what can be mended, and give up the rest: for a filesystem of which some is lost. Done again, it finds
    nothing to do. Raises as `check_filesystem`."""
    with locked(file) as lock:
        status = await _work("e2fsck", "-f", "-y", file=file, lock=lock, confined=confined)
    _check_looked(status, file, confined=confined)
    if status & ~(_MENDED | _MENDED_IN_USE):
        raise BadRequest(f"the filesystem in {file.name} cannot be repaired: e2fsck -fy ended with {status}")


async def ask_debugfs(file: Path, request: str) -> str:
    """The answer of debugfs to `request` about a filesystem that nobody has mounted. debugfs runs as the user nobody,
    with the file's descriptor alone, and with bounds of time, memory and output. Raises `TimeoutError`, and
    `Unavailable` while somebody works on the file."""
    with locked(file) as lock, tempfile.TemporaryFile() as answer:
        command = _expendable(*_powerless(lock), _found("debugfs"), "-c", "-R", request, _INHERITED)
        bounds = (f"--cpu={_ASKED_S}", f"--as={_ASKED_MEMORY}", f"--fsize={_ANSWER_BYTES}")
        pid = spawn([_found("prlimit"), *bounds, "--", *command], fds=(lock,), session=True, stdio=answer.fileno())
        try:
            with anyio.fail_after(2 * _ASKED_S):
                status = await reap(pid)
        except TimeoutError as error:
            os.kill(pid, signal.SIGKILL)
            await reap(pid)
            raise TimeoutError("debugfs took too long") from error
        if status < 0:  # by its own bounds: what it answered is not all
            raise TimeoutError("debugfs took too long, or more memory or output than it may")
        answer.seek(0)
        return answer.read(_ANSWER_BYTES).decode(errors="backslashreplace")


def mount_filesystem(file: Path, target: Path) -> None:
    """Mount the filesystem in `file` at `target`, read-write. Where a loop device is over the file already, though not
    mounted here, that device is mounted: a second device over one file would ruin it."""
    with held_loop(file) as used:
        if used is not None:
            return mount_device(used, target, file.name)
    with attach_loop(file, writable=True) as fresh:
        mount_device(fresh, target, file.name)


def mount_device(device: str, target: Path, name: str) -> None:
    """Mount the filesystem on a device at `target`; errors call it `name`. Raises `BadRequest` for a damaged
    filesystem, `OSError`."""
    try:
        mount(device, target, "ext4", NODEV, _OPTIONS)
    except OSError as error:
        if error.errno in _DAMAGED:
            raise BadRequest(f"the filesystem in {name} cannot be mounted, it is damaged: {error.strerror}") from error
        raise


def grow_mounted(file: Path, target: Path) -> bool:
    """Let the filesystem mounted at `target` be as large as its file. Returns whether it is. False where this process
    may not do that: then `grow_unmounted` must, some time."""
    device = device_of(file)
    if device is not None:
        set_capacity(device)
    return resize_mounted(target, file.stat().st_size)


def resize_mounted(target: Path, size_bytes: int) -> bool:
    """Grow a mounted filesystem to `size_bytes`, which its device has already. Returns as `grow_mounted`."""
    fd = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, _RESIZE_FS, struct.pack("=Q", size_bytes // os.fstatvfs(fd).f_frsize))
    except PermissionError:
        return False
    finally:
        os.close(fd)
    return True


def trim(target: Path, start: int) -> int | None:
    """Let the device drop the bytes that the mounted filesystem does not use, of some GiB from the byte `start` on.
    Returns the byte to go on from, None at the end of the filesystem, or where the device drops nothing."""
    fd = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = os.fstatvfs(fd)
        if start >= found.f_frsize * found.f_blocks:
            return None
        fcntl.ioctl(fd, _FITRIM, struct.pack("=QQQ", start, TRIMMED_AT_ONCE, 0))
        return start + TRIMMED_AT_ONCE
    except OSError as error:
        if error.errno not in _NO_TRIM:
            raise
        return None
    finally:
        os.close(fd)


def sync_filesystem(target: Path) -> None:
    """Have all that was written to the mounted filesystem written to its device. Raises `OSError`."""
    fd = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _libc.syncfs(fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"syncfs: {os.strerror(code)}")
    finally:
        os.close(fd)


async def grow_unmounted(file: Path, *, confined: bool = False) -> None:
    """Grow a filesystem that nobody uses. Raises as `check_filesystem`, and `Unavailable` when it fails."""
    await check_filesystem(file, thoroughly=True, confined=confined)
    with locked(file) as lock:
        status = await _work("resize2fs", file=file, lock=lock, confined=confined)
    if status != 0:
        why = f": {_BY_HAND}" if confined else ""
        raise Unavailable(f"resize2fs could not grow the filesystem in {file.name}: it ended with {status}{why}")


def may_grow_mounted() -> bool:
    """Whether this process has the capability to grow a mounted filesystem (CAP_SYS_RESOURCE)."""
    status = Path("/proc/self/status").read_text()
    return bool(int(status.partition("CapEff:")[2].split()[0], 16) >> _CAP_SYS_RESOURCE & 1)


def device_of(file: Path) -> str | None:
    """The loop device over this file, None without one. With one, somebody has the file mounted, here or where we do
    not see."""
    return next((device for device, backing in loops(file.parent) if backing == file), None)


@contextmanager
def locked(file: Path) -> Iterator[int]:
    """A lock that a child inherits and keeps when we are killed, so that two never work on one file. Raises
    `Unavailable` while an earlier daemon's child has it."""
    fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Unavailable(f"{file.name} is still being checked") from error
        yield fd
    finally:
        os.close(fd)


async def _work(tool: str, *arguments: str, file: Path, lock: int, confined: bool) -> int:
    """On a file that the caller has locked. Confined, the tool is nobody's, may gain nothing, and knows the file by its
    descriptor alone, and has bounds: a filesystem that was made to deceive it wins no more than itself."""
    if not confined:
        return await _run(*_expendable(_found(tool), *arguments, str(file)), lock=lock)
    command = _expendable(*_powerless(lock), _found(tool), *arguments, _INHERITED)
    return await _run("prlimit", *_bounds(os.fstat(lock).st_size), "--", *command, lock=lock)


def _expendable(*command: str) -> list[str]:
    return [_found("choom"), *_FIRST_TO_GO, "--", *command]


def _powerless(lock: int) -> tuple[str, ...]:
    """What a command begins with that is to be nobody's."""
    if os.geteuid() != 0:
        return ()
    os.fchown(lock, _NOBODY, _NOBODY)
    return (_found(_CONFINED), *_POWERLESS, "--")


def _bounds(size_bytes: int) -> tuple[str, ...]:
    """The bounds of a confined tool, by the size of the file. Memory is what is written to, not what is reserved:
    threads reserve 64 MiB each."""
    memory = _LEAST_MEMORY + size_bytes // 4096 * _BLOCK_MEMORY + (os.cpu_count() or 1) * _STACK
    cpu_s = _LEAST_CPU_S + (size_bytes >> 30) * _GIB_CPU_S
    return f"--data={memory}", f"--stack={_STACK}", f"--cpu={cpu_s}"


async def _run(tool: str, *arguments: str, lock: int | None = None) -> int:
    """Its exit status. It goes on when we are cancelled or killed."""
    return await reap(spawn([_found(tool), *arguments], fds=() if lock is None else (lock,), session=True))


def _found(tool: str) -> str:
    found = _find(tool)
    if found is None:
        package = "util-linux" if tool in (_CONFINED, "prlimit", "choom") else "e2fsprogs"
        raise NotServed(f"{tool} is missing on this host: apt-get install {package}")
    return found


def _find(tool: str) -> str | None:
    return shutil.which(tool, path=f"{os.environ.get('PATH', os.defpath)}:{_SBIN}")


LEAST_MIB = 16
"""The least size in MiB: a smaller ext4 has no room for its own journal."""

_KEPT = 16
_DRAFT = "draft-"
_MIB = 1 << 20


class Ext4Templates:
    """Empty filesystems to copy, in one directory: `ext4-MIB`, and `bare-MIB` without a journal."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._drafts: set[str] = set()  # of this process; all others are what a crash left

    async def of(self, size_mib: int, *, journal: bool = True) -> Path:
        """The template of `size_mib`, made if it is not there. Callers that come while it is being made each make one,
        and one of them counts."""
        template = self._directory / f"{'ext4' if journal else 'bare'}-{size_mib}"
        try:
            os.utime(template)  # used last
        except FileNotFoundError:
            await self._make(template, size_mib, journal=journal)
        return template

    async def _make(self, template: Path, size_mib: int, *, journal: bool) -> None:
        draft = self.draft()
        try:
            os.truncate(draft, size_mib * _MIB)
            await make_filesystem(draft, journal=journal)
            await sparse.publish(draft, template)
        finally:
            self.let_go(draft)

    def draft(self) -> Path:
        """An empty file beside the templates that `tidy` does not remove before `let_go`, or before this process
        ends."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd, name = tempfile.mkstemp(prefix=_DRAFT, dir=self._directory)
        os.close(fd)
        self._drafts.add(name)
        return Path(name)

    def let_go(self, draft: Path) -> None:
        self._drafts.discard(str(draft))

    async def tidy(self) -> None:
        """Remove the templates that were not used for long, and drafts that a crash left."""
        await in_thread(Pool.HOST, self._tidy)

    def _tidy(self) -> None:
        whole = [file for kind in ("ext4", "bare") for file in self._directory.glob(f"{kind}-*")]
        for file in sorted(whole, key=_used_at)[:-_KEPT]:
            file.unlink(missing_ok=True)
        for file in self._directory.glob(f"{_DRAFT}*"):
            if str(file) not in self._drafts:
                file.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove all templates; for a node that is not coming back."""
        for file in list(self._directory.iterdir()) if self._directory.is_dir() else ():
            file.unlink(missing_ok=True)
        with suppress(OSError):
            self._directory.rmdir()


def _used_at(file: Path) -> float:
    with suppress(FileNotFoundError):
        return file.stat().st_mtime
    return 0.0
