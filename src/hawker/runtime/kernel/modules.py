"""Which modules of a kernel a machine needs, and the order in which they are loaded.

Read from a directory as distributions have it (/lib/modules/RELEASE), which is not trusted: what it lists is bounded,
and only regular files in it are read. Nothing is loaded or written here.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from hawker.runtime.kernel.modinfo import Modinfo, canonical, module_name, read_modinfo, read_module

REQUIRED = ("virtio_mmio", "virtio_blk", "virtio_net", "virtio_console", "erofs", "overlay", "ext4")
OPTIONAL = ("virtio_pci", "virtio_balloon", "virtio_rng", "vmw_vsock_virtio_transport")

_MOST_FILES = 50_000
_LARGEST_LIST = 16 << 20


class LacksModules(ValueError):
    """The text says which."""


@dataclass(frozen=True, slots=True)
class Module:
    """`name` is the kernel's ("virtio_rng"), `content` the plain file."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Selection:
    """Modules in the order to load them; the optional ones that this kernel does not have."""

    modules: tuple[Module, ...]
    lacks: tuple[str, ...]


class ModuleTree:
    """The modules of one kernel. `release` is that kernel's: a module of another one is refused."""

    def __init__(self, directory: Path, release: str) -> None:
        self._directory = directory
        self._release = release
        self._loaded: dict[str, tuple[Module, Modinfo]] = {}

    def select(self, required: tuple[str, ...] = REQUIRED, optional: tuple[str, ...] = OPTIONAL) -> Selection:
        """With all that they need. Raises `LacksModules` for a required one that is not there, `ValueError` for files
        that cannot be used, `OSError`."""
        missing = [name for name in required if not self._has(name)]
        if missing:
            raise LacksModules(f"kernel {self._release} has no {', no '.join(missing)}, which machines need")
        order = _Order(self)
        for name in required:
            order.add(name)
        lacks = tuple(name for name in optional if not self._add_whole(order, name))
        return Selection(modules=tuple(order.modules.values()), lacks=lacks)

    def _add_whole(self, order: "_Order", name: str) -> bool:
        """Whether it is there with everything it needs; else the order is as before."""
        if not self._has(name):
            return False
        before = dict(order.modules)
        try:
            order.add(name)
        except LacksModules:
            order.modules.clear()
            order.modules.update(before)
            return False
        return True

    def _has(self, name: str) -> bool:
        return name in self._builtin or name in self._files

    def is_builtin(self, name: str) -> bool:
        return name in self._builtin

    def load(self, name: str, for_whom: str) -> tuple[Module, Modinfo]:
        if name not in self._loaded:
            if name not in self._files:
                raise LacksModules(f"kernel {self._release} has no {name}, which {for_whom} needs")
            self._loaded[name] = self._read(name)
        return self._loaded[name]

    def _read(self, name: str) -> tuple[Module, Modinfo]:
        path = self._files[name]
        content = read_module(path)
        try:
            info = read_modinfo(content)
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from error
        if info.release != self._release:
            raise ValueError(f"{path.name} is of kernel {info.release or '?'}, not of {self._release}")
        return Module(name=name, content=content), info

    def named(self, wish: str) -> str | None:
        """The module that a soft dependency means, by name or alias; None when it is built in or not there."""
        if self._has(wish):
            return None if wish in self._builtin else wish
        if any(fnmatchcase(wish, alias) for alias in self._builtin_aliases):
            return None
        return next((name for alias, name in self._aliases if fnmatchcase(wish, canonical(alias))), None)

    @cached_property
    def _files(self) -> Mapping[str, Path]:
        found: dict[str, Path] = {}
        count = 0
        for parent, directories, files in os.walk(self._directory):
            directories.sort()
            for file in files:
                count += 1
                if count > _MOST_FILES:
                    raise ValueError(f"{self._directory} has more than {_MOST_FILES} files")
                name, path = module_name(file), Path(parent, file)
                if name is not None and not path.is_symlink() and path.is_file():
                    found.setdefault(name, path)
        return found

    @cached_property
    def _builtin(self) -> frozenset[str]:
        lines = self._list("modules.builtin").decode("utf-8", "replace").splitlines()
        return frozenset(name for line in lines if (name := module_name(line.rsplit("/", 1)[-1])))

    @cached_property
    def _builtin_aliases(self) -> tuple[str, ...]:
        """From lines such as "crc32c_generic.alias=crc32c"."""
        entries = self._list("modules.builtin.modinfo").decode("utf-8", "replace").split("\0")
        parts = (entry.partition(".alias=") for entry in entries)
        return tuple(canonical(alias) for _, found, alias in parts if found)

    @cached_property
    def _aliases(self) -> tuple[tuple[str, str], ...]:
        """Of every module: reading them all takes a second or two, which only a rare kernel needs."""
        return tuple(self._all_aliases())

    def _all_aliases(self) -> Iterator[tuple[str, str]]:
        for name in sorted(self._files):
            try:
                _, info = self._read(name)
            except ValueError:
                continue  # another's damage; a needed one is found out when it is loaded
            for alias in info.aliases:
                yield alias, name

    def _list(self, name: str) -> bytes:
        """A file that is missing lists nothing."""
        path = self._directory / name
        if path.is_symlink() or not path.is_file():
            return b""
        if path.stat().st_size > _LARGEST_LIST:
            raise ValueError(f"{name} is larger than {_LARGEST_LIST >> 20} MiB")
        return path.read_bytes()


@dataclass(frozen=True, slots=True)
class _Order:
    """What is needed comes before what needs it."""

    tree: ModuleTree
    modules: dict[str, Module] = field(default_factory=dict)

    def add(self, wanted: str) -> None:
        """No recursion, as a hostile directory may be of any depth. A module stays on `open` while what it needs is
        added; one that needs itself by way of others is refused."""
        open_modules: list[str] = []
        waiting = [(wanted, "a machine")]
        while waiting:
            name, for_whom = waiting[-1]
            if name in self.modules or self.tree.is_builtin(name):
                waiting.pop()
                continue
            module, info = self.tree.load(name, for_whom)
            if open_modules and open_modules[-1] == name:
                self.modules[name] = module
                open_modules.pop()
                waiting.pop()
                continue
            if name in open_modules:
                raise ValueError(f"the modules {', '.join([*open_modules, name])} need each other in a circle")
            open_modules.append(name)
            wishes = (self.tree.named(wish) for wish in info.first)
            needs = [*(wish for wish in wishes if wish is not None and wish not in open_modules), *info.needs]
            waiting += [(need, name) for need in reversed(needs)]
