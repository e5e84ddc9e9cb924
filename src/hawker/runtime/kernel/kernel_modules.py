"""Which modules of a kernel a machine needs, and the order in which they are loaded: asked of kmod.

The modules' directory (/lib/modules/RELEASE, or one that a package was unpacked to, in which no depmod ran) is only
read. Links to its regular files stand in a scratch directory, where depmod makes the index that modprobe then asks.
"""

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hawker.runtime.kernel.kernel_image import unpacked
from hawker.runtime.kernel.tools import complaint, run_tool
from hawker.value_object import ValueObject

REQUIRED = ("virtio_mmio", "virtio_blk", "virtio_net", "virtio_console", "erofs", "overlay", "ext4")
OPTIONAL = ("virtio_pci", "virtio_balloon", "virtio_rng", "vmw_vsock_virtio_transport")
BUILTIN_LISTS = ("modules.builtin", "modules.builtin.modinfo")

_MAX_BYTES = 64 << 20  # of a module, unpacked
_MOST_FILES = 50_000
_GZIP = ".ko.gz"  # which Debian's kmod is built without
_FILE = re.compile(r"(?P<name>[A-Za-z0-9_-]{1,55})\.ko(\.xz|\.zst|\.gz)?")


class LacksModules(ValueError):
    """The text says which."""


class Module(ValueObject, frozen=True):
    """`name` is the kernel's ("virtio_rng"), `content` the plain file."""

    name: str
    content: bytes


class Selection(ValueObject, frozen=True):
    """Modules in the order to load them; the optional ones that this kernel does not have."""

    modules: tuple[Module, ...]
    lacks: tuple[str, ...]
    """Names of modules."""


def module_name(file: str) -> str | None:
    """`virtio-rng.ko.xz` is the module virtio_rng; None for what is no module, or has a name that none has."""
    found = _FILE.fullmatch(file)
    return _kernel_name(found["name"]) if found else None


class ModuleTree:
    """The modules of one kernel. `release` is that kernel's: a module of another one is refused."""

    def __init__(self, directory: Path, release: str) -> None:
        self._directory = directory
        self._release = release

    def select(self, required: tuple[str, ...] = REQUIRED, optional: tuple[str, ...] = OPTIONAL) -> Selection:
        """With all that they need. Raises `LacksModules` for a required one that is not there, `ValueError` for files
        that cannot be used, `MissingTool` without kmod, `OSError`."""
        files = self._files()
        builtin = self._builtin()
        missing = [name for name in required if name not in files and name not in builtin]
        if missing:
            raise LacksModules(f"kernel {self._release} has no {', no '.join(missing)}, which machines need")
        chosen: dict[str, Path] = {}
        lacks: list[str] = []
        with self._index(files, builtin) as index:
            for name in required:
                chosen |= index.load_order(name)
            for name in optional:
                try:
                    chosen |= index.load_order(name)
                except LacksModules:
                    lacks.append(name)
            modules = tuple(Module(name=name, content=_read(path)) for name, path in chosen.items())
        return Selection(modules=modules, lacks=tuple(lacks))

    def _files(self) -> Mapping[str, Path]:
        """By the modules' names. Links are not followed."""
        found: dict[str, Path] = {}
        count = 0
        for parent, directories, files in os.walk(self._directory):
            directories.sort()
            count += len(files)
            if count > _MOST_FILES:
                raise ValueError(f"{self._directory} has more than {_MOST_FILES} files")
            for file in files:
                name, path = module_name(file), Path(parent, file)
                if name is not None and _is_plain(path):
                    found.setdefault(name, path)
        return found

    def _builtin(self) -> frozenset[str]:
        listed = self._directory / BUILTIN_LISTS[0]
        lines = listed.read_text(errors="replace").splitlines() if _is_plain(listed) else []
        return frozenset(name for line in lines if (name := module_name(line.rsplit("/", 1)[-1])))

    @contextmanager
    def _index(self, files: Mapping[str, Path], builtin: frozenset[str]) -> Iterator["_Index"]:
        with tempfile.TemporaryDirectory(prefix="hawker-modules-") as scratch:
            place = Path(scratch, "lib/modules", self._release)
            place.mkdir(parents=True)
            for path in (*files.values(), *(self._directory / name for name in BUILTIN_LISTS)):
                if path.name.endswith(_GZIP):
                    (place / path.name.removesuffix(".gz")).write_bytes(unpacked(path.read_bytes(), _MAX_BYTES))
                elif _is_plain(path):
                    (place / path.name).symlink_to(path.absolute())
            done = run_tool(["depmod", "-b", scratch, self._release])
            if done.returncode != 0:
                raise ValueError(f"the modules of {self._release} cannot be put in order: {complaint(done)}")
            yield _Index(root=Path(scratch), release=self._release, builtin=builtin)


class _Index(ValueObject, frozen=True):
    """What depmod made of the modules below `root`."""

    root: Path
    release: str
    builtin: frozenset[str]

    def load_order(self, name: str) -> dict[str, Path]:
        """The module and what it needs, by name, in the order to load them; empty when it is built in. Raises
        `LacksModules` when a part of it is not there, `ValueError` for one of another kernel, or that is none."""
        configuration = self.root / "no-configuration"  # of modprobe: the host's own does not count
        configuration.mkdir(exist_ok=True)
        done = run_tool(
            ["modprobe", "-C", str(configuration), "-d", str(self.root), "-S", self.release, "--show-depends", name]
        )
        if done.returncode != 0:
            raise LacksModules(f"kernel {self.release} has no {name}: {complaint(done)}")
        lines = done.stdout.decode("utf-8", "replace").splitlines()
        paths = [Path(line.removeprefix("insmod ").strip()) for line in lines if line.startswith("insmod ")]
        found = {module_name(path.name) or path.name: path for path in paths}
        self._check(found)
        return found

    def _check(self, order: Mapping[str, Path]) -> None:
        """depmod goes by symbols, and passes over one that nobody has: what a module says that it needs counts."""
        for name, path in order.items():
            info = _modinfo(path)
            release = info.get("vermagic", "?").split(" ")[0]
            if release != self.release:
                raise ValueError(f"{path.name} is of kernel {release}, not of {self.release}")
            for needed in map(_kernel_name, filter(None, info.get("depends", "").split(","))):
                if needed not in order and needed not in self.builtin:
                    raise LacksModules(f"kernel {self.release} has no {needed}, which {name} needs")


def _modinfo(path: Path) -> dict[str, str]:
    """What a module says about itself. Raises `ValueError` for what is no module."""
    done = run_tool(["modinfo", "-0", str(path)])
    if done.returncode != 0 or not done.stdout:
        raise ValueError(f"{path.name} is no kernel module: {complaint(done)}")
    fields = (field.partition("=") for field in done.stdout.decode("utf-8", "replace").split("\0"))
    return {key: value for key, _, value in fields}


def _read(path: Path) -> bytes:
    """Unpacked. Raises `ValueError` naming the file, `OSError`."""
    try:
        return unpacked(path.read_bytes(), _MAX_BYTES)
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _kernel_name(name: str) -> str:
    return name.replace("-", "_")
