"""The kernels that a node has: one directory each, whole or not there; and the initramfs made for them, with the pilot
as /init, the modules in /modules and their order, one file per content, not compressed (docs/kernel.md has the
figures).

A kernel's directory is named by its content and never changes. One kernel a release: the one imported last. Commands
and a running node read and write it side by side; each reads it afresh. What is made is made in a draft beside it,
locked, synced, renamed: what a killed process left is known by its lock, and swept by whoever comes next.
"""

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from hawker.errors import CannotStart, NotFound
from hawker.log import bind
from hawker.runtime.kernel.kernel_image import KernelImage
from hawker.runtime.kernel.kernel_modules import Module, Selection
from hawker.runtime.kernel.tools import complaint, run_tool
from hawker.value_object import ValueObject

_PREFIX = ".draft-"


@contextmanager
def draft(directory: Path) -> Iterator[Path]:
    """A fresh directory in `directory`, removed at the end with what is left in it. Raises `OSError`."""
    sweep(directory)
    path, fd = _locked(directory)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(fd)


def sweep(directory: Path) -> None:
    """Remove the drafts in which nobody works any more."""
    for name in os.listdir(directory):
        if name.startswith(_PREFIX):
            _remove_abandoned(directory / name)


def is_draft(name: str) -> bool:
    return name.startswith(_PREFIX)


def put_file(made: Path, place: Path) -> None:
    """Durably; what is in its place is replaced."""
    _sync(made)
    os.rename(made, place)
    _sync(place.parent)


def put_directory(made: Path, place: Path) -> None:
    """Durably, with all files in it. Raises `OSError` when a directory that is not empty is there."""
    for parent, _, files in os.walk(made):
        for file in files:
            _sync(Path(parent, file))
        _sync(Path(parent))
    os.rename(made, place)
    _sync(place.parent)


def _locked(directory: Path) -> tuple[Path, int]:
    """Between its making and its locking a sweep may take a draft for an abandoned one: then there is another."""
    while True:
        path = Path(tempfile.mkdtemp(dir=directory, prefix=_PREFIX))
        try:
            fd = _open(path)
        except FileNotFoundError:
            continue
        if _lock(fd) and path.exists():
            return path, fd
        os.close(fd)


def _remove_abandoned(path: Path) -> None:
    try:
        fd = _open(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        if _lock(fd):
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(fd)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


_FORM = b"hawker initramfs 2\0"  # another one when the same content is to be packed in another way


def initramfs_name(pilot: bytes, modules_digest: str) -> str:
    """By content: that of other content is another one."""
    content = _FORM + hashlib.sha256(pilot).digest() + modules_digest.encode()
    return f"{hashlib.sha256(content).hexdigest()[:32]}.cpio"


def initramfs_digest(modules: Sequence[Module]) -> str:
    """The digest of modules' names and contents, in their order."""
    digest = hashlib.sha256()
    for module in modules:
        digest.update(module.name.encode() + b"\0" + hashlib.sha256(module.content).digest())
    return digest.hexdigest()


def build_initramfs(path: Path, pilot: bytes, modules: Sequence[Module]) -> None:
    """Builders beside each other make the same file. Raises `OSError`, `MissingTool` without cpio, `CannotStart` when
    cpio fails."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with draft(path.parent) as work:
        made = work / path.name
        made.write_bytes(_archive(work / "root", pilot, modules))
        made.chmod(0o644)
        put_file(made, path)


def prune_initramfs(directory: Path, used: Collection[str]) -> None:
    """Remove those with other names. A machine that is just being started with one is started again by its flow."""
    if directory.is_dir():
        for name in os.listdir(directory):
            if name not in used and not is_draft(name):
                with suppress(FileNotFoundError):
                    os.unlink(directory / name)


def _archive(root: Path, pilot: bytes, modules: Sequence[Module]) -> bytes:
    """The form that the kernel unpacks (its buffer-format.rst), all of root's and of no time, so that the same content
    gives the same bytes. Directories come before what is in them: the kernel makes none by itself."""
    (root / "modules").mkdir(parents=True)
    order = "".join(f"{module.name}.ko\n" for module in modules)
    files = {"init": pilot, "modules/order": order.encode()}
    files |= {f"modules/{module.name}.ko": module.content for module in modules}
    for name, content in files.items():
        (root / name).write_bytes(content)
    names = ["init", "modules", *list(files)[1:]]
    for name in names:
        (root / name).chmod(0o755 if name in ("init", "modules") else 0o644)
        os.utime(root / name, (0, 0))
    command = ["cpio", "--create", "--format=newc", "--reproducible", "--owner=+0:+0", "--quiet"]
    done = run_tool(command, given="\n".join(names).encode(), directory=root)
    if done.returncode != 0:
        raise CannotStart(f"cpio cannot pack the initramfs: {complaint(done)}")
    return done.stdout


_log = bind("hawker.kernel")
_RECORD, _MODULES, _CHOSEN = "record.json", "modules", "chosen"
_BOOT, _DIRECT = "bzImage", "vmlinux"


class KernelRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a kernel. `release` is as `uname -r` says it; `origin` is where it came from, for people;
    `digest` is of image and modules; `imported_at` Unix seconds; `pvh` says that Cloud Hypervisor can enter it;
    `modules` are in the order to load them, and `modules_digest` is of these; `lacks` are the optional ones that it
    does not have."""

    release: str
    origin: str
    digest: str
    imported_at: float
    direct: str  # the file for VMMs without a boot loader
    pvh: bool
    modules: tuple[str, ...]
    modules_digest: str
    lacks: tuple[str, ...] = ()


class Kernel(ValueObject, frozen=True):
    """One that is whole."""

    directory: Path
    record: KernelRecord

    @property
    def release(self) -> str:
        return self.record.release

    def file(self, form: str) -> Path:
        """For a VMM that boots a "bzImage" or a "vmlinux", see `Vmm.kernel_format`."""
        return self.directory / (self.record.direct if form == _DIRECT else _BOOT)

    def modules(self) -> tuple[Module, ...]:
        """Raises `OSError`."""
        folder = self.directory / _MODULES
        return tuple(Module(name=name, content=(folder / f"{name}.ko").read_bytes()) for name in self.record.modules)

    def size(self) -> int:
        """Bytes on disk."""
        return sum(path.stat().st_size for path in self.directory.rglob("*") if path.is_file())


class KernelStore:
    """`directory` is made when something is put there."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def list(self) -> list[Kernel]:
        """Newest release first. What cannot be read is told in the log and left out."""
        return sorted(self._kernels(), key=_age, reverse=True)

    def find(self, release: str) -> Kernel:
        """Raises `NotFound`, with what there is."""
        kernels = self.list()
        for kernel in kernels:
            if kernel.release == release:
                return kernel
        there = ", ".join(kernel.release for kernel in kernels)
        known = f"; there is: {there}" if there else ", and no other: `hawker kernel import` imports one"
        raise NotFound(f"there is no kernel {release} here{known}")

    def put(self, image: KernelImage, selection: Selection, origin: str, now: float) -> Kernel:
        """Takes the place of another one of this release, and of this one where it is damaged. The same again is no
        change. Raises `OSError`."""
        record = _record(image, selection, origin, now)
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        place = self._directory / f"{image.release}+{record.digest[:16]}"
        sweep(self._directory)
        files = _files(record, image, selection.modules)
        if not _is_whole(place, files):
            with draft(self._directory) as work:
                made = work / "kernel"
                _lay(made, {**files, _RECORD: msgspec.json.encode(record)})
                _remove(place)
                put_directory(made, place)
        for other in self._kernels():
            if other.release == image.release and other.directory != place:
                _remove(other.directory)
        return Kernel(directory=place, record=_read(place / _RECORD))

    def remove(self, release: str) -> None:
        """Raises `NotFound`. What runs with it goes on."""
        _remove(self.find(release).directory)
        if self.chosen() == release:
            self.choose(None)

    def choose(self, release: str | None) -> None:
        """Machines get this one from now on; None: the newest. Raises `NotFound`, `OSError`."""
        if release is None:
            (self._directory / _CHOSEN).unlink(missing_ok=True)
            return
        self.find(release)
        with draft(self._directory) as work:
            made = work / _CHOSEN
            made.write_text(f"{release}\n")
            put_file(made, self._directory / _CHOSEN)

    def chosen(self) -> str | None:
        """The release that was chosen, whether it is there or not."""
        try:
            return (self._directory / _CHOSEN).read_text().strip() or None
        except FileNotFoundError:
            return None

    def current(self) -> Kernel | None:
        """The chosen one, else the newest; None when there is none."""
        kernels, chosen = self.list(), self.chosen()
        return next((kernel for kernel in kernels if kernel.release == chosen), kernels[0] if kernels else None)

    def _kernels(self) -> Iterator[Kernel]:
        with suppress(FileNotFoundError):
            for name in os.listdir(self._directory):
                record = self._directory / name / _RECORD
                if is_draft(name) or not record.is_file():
                    continue
                try:
                    yield Kernel(record.parent, _read(record))
                except (OSError, msgspec.DecodeError) as error:
                    to_do = "import the kernel again, or remove its directory"
                    _log.error(
                        "kernel cannot be read", extra={"path": str(record), "reason": str(error), "todo": to_do}
                    )


def _record(image: KernelImage, selection: Selection, origin: str, now: float) -> KernelRecord:
    modules_digest = initramfs_digest(selection.modules)
    digest = hashlib.sha256(hashlib.sha256(image.boot).digest() + modules_digest.encode())
    return KernelRecord(
        release=image.release,
        origin=origin,
        digest=digest.hexdigest(),
        imported_at=now,
        direct=_DIRECT if image.direct is not image.boot else _BOOT,
        pvh=image.pvh,
        modules=tuple(module.name for module in selection.modules),
        modules_digest=modules_digest,
        lacks=selection.lacks,
    )


def _files(record: KernelRecord, image: KernelImage, modules: tuple[Module, ...]) -> dict[str, bytes]:
    """All but the record, by their paths in the kernel's directory."""
    files = {f"{_MODULES}/{module.name}.ko": module.content for module in modules}
    return files | {_BOOT: image.boot, record.direct: image.direct}


def _is_whole(place: Path, files: Mapping[str, bytes]) -> bool:
    try:
        _read(place / _RECORD)
        return all((place / name).read_bytes() == content for name, content in files.items())
    except (OSError, msgspec.DecodeError):
        return False


def _lay(made: Path, files: Mapping[str, bytes]) -> None:
    """Readable to all: a VMM has a user of its own."""
    (made / _MODULES).mkdir(parents=True)
    for name, content in files.items():
        (made / name).write_bytes(content)
        (made / name).chmod(0o644)


def _read(record: Path) -> KernelRecord:
    """Raises `OSError`, `msgspec.DecodeError`."""
    return msgspec.json.decode(record.read_bytes(), type=KernelRecord)


def _remove(directory: Path) -> None:
    """The record goes first: what is left of an interrupted removal is no kernel."""
    (directory / _RECORD).unlink(missing_ok=True)
    shutil.rmtree(directory, ignore_errors=True)


def _age(kernel: Kernel) -> tuple[list[tuple[int, str]], float]:
    """By release as people count: 6.10 is after 6.9."""
    parts = re.findall(r"[0-9]+|[^0-9]+", kernel.release)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts], kernel.record.imported_at
