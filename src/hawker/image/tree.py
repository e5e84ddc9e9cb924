"""A root filesystem: the layers' entries merged in memory, and then written out as real files.

Merging is pure. Names are resolved in here, links and all, so no name in a layer can lead out of the tree or through
the host. Layers merge as overlayfs would show them: the last entry of a name wins, and whiteouts hide what lower layers
had. Writing goes below a fresh directory that nobody else can reach, in a worker thread: every name is made new,
relative to its parent's descriptor, no link is followed, and content is moved in from the pool, not copied.
"""

import errno
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from hawker.image.limits import ImageLimits
from hawker.value_object import ValueObject

_LINKS_LIMIT = 40  # as in Linux
_STEPS_PER_FILE = 64
_NAME_LIMIT = 255
_WHITEOUT = b".wh."
_AUFS = b".wh..wh."
_OPAQUE = b".wh..wh..opq"


class TreeError(ValueError):
    """An entry that no root filesystem can have."""


class FileMeta(ValueObject, frozen=True):
    """The data that an inode has beside its content."""

    mode: int
    """Permission bits, with set-user-id, set-group-id and sticky; no kind of file."""
    uid: int = 0
    """The owner within the image."""
    gid: int = 0
    """The group within the image."""
    mtime_ns: int = 0
    """The time of the last change in Unix nanoseconds."""
    xattrs: tuple[tuple[str, bytes], ...] = ()
    """Names and values of extended attributes."""


class TreeFile(ValueObject, frozen=True, eq=False):
    """`content` is the number under which its bytes are kept. Hard links are one `TreeFile` under several names."""

    meta: FileMeta
    content: int
    size: int
    """The size in bytes, holes counted."""


class Symlink(ValueObject, frozen=True, eq=False):
    meta: FileMeta
    target: bytes
    """The path as written; it is followed within the image alone."""


class Fifo(ValueObject, frozen=True, eq=False):
    meta: FileMeta


class TreeDirectory:
    """`children` are nodes by name, each with the number of the layer that it is from."""

    __slots__ = ("children", "meta", "opaque_in")

    def __init__(self, meta: FileMeta) -> None:
        self.meta = meta
        self.children: dict[bytes, tuple[Node, int]] = {}
        self.opaque_in = -1


Node: TypeAlias = TreeDirectory | TreeFile | Symlink | Fifo
_IMPLIED = FileMeta(mode=0o755)


class FileTree:
    """Layers are added one after the other, `layer` counting up. Raises `TreeError`."""

    def __init__(self, limits: ImageLimits) -> None:
        self.root = TreeDirectory(_IMPLIED)
        self._depth = limits.max_depth
        self._max_files = self._names_left = limits.max_files
        self._steps_left = _STEPS_PER_FILE * limits.max_files

    def add(self, layer: int, name: bytes, node: Node) -> None:
        """Put `node` at `name`. A directory over a directory keeps what is in it."""
        parts = split_name(name)
        if not parts:
            self._set_root(node)
        elif parts[-1].startswith(_WHITEOUT):
            self._white_out(layer, parts)
        else:
            self._put(self._reach(layer, parts[:-1]), parts[-1], node, layer)

    def link(self, layer: int, name: bytes, target: bytes) -> None:
        """A hard link: another name for what is at `target` now. Raises `TreeError` for a target that cannot be
        linked."""
        parts = split_name(name)
        if parts and parts[-1].startswith(_WHITEOUT):
            return self._white_out(layer, parts)
        node = self.find(target)
        if node is None or not parts:
            raise TreeError(f"a hard link to {shown(target)}, which is not there")
        if isinstance(node, TreeDirectory):
            raise TreeError(f"a hard link to the directory {shown(target)}")
        self._put(self._reach(layer, parts[:-1]), parts[-1], node, layer)

    def remove(self, layer: int, name: bytes) -> None:
        """Take away what is at `name`, whatever layer it is from; no error when nothing is."""
        parts = split_name(name)
        if parts and parts[-1].startswith(_WHITEOUT):
            self._white_out(layer, parts)
        elif parts and (parent := self._walk(parts[:-1], None)):
            parent.children.pop(parts[-1], None)

    def find(self, name: bytes) -> Node | None:
        """The node at `name`; links are followed on the way, not at the end."""
        parts = split_name(name)
        parent = self._walk(parts[:-1], None)
        found = parent.children.get(parts[-1]) if parent and parts else None
        return found[0] if found else None if parts else self.root

    def _set_root(self, node: Node) -> None:
        if not isinstance(node, TreeDirectory):
            raise TreeError("the root itself is not a directory")
        self.root.meta = node.meta

    def _put(self, parent: TreeDirectory, name: bytes, node: Node, layer: int) -> None:
        old = parent.children.get(name)
        if old and isinstance(node, TreeDirectory) and isinstance(old[0], TreeDirectory):
            old[0].meta = node.meta
            node = old[0]
        else:
            self._count_name()
        parent.children[name] = (node, layer)

    def _white_out(self, layer: int, parts: list[bytes]) -> None:
        """OCI image-spec, layer.md: `.wh.NAME` hides NAME of lower layers, `.wh..wh..opq` all siblings of them."""
        name = parts[-1]
        parent = self._walk(parts[:-1], None)
        if name == _OPAQUE:
            directory = self._reach(layer, parts[:-1])
            if directory.opaque_in != layer:
                directory.opaque_in = layer
                _hide_lower(directory, layer)
        elif name.startswith(_AUFS):
            return  # bookkeeping of aufs
        else:
            hidden = name[len(_WHITEOUT) :]
            if hidden in (b"", b".", b".."):
                raise TreeError("a whiteout of nothing")
            if parent and (old := parent.children.get(hidden)) and old[1] < layer:
                del parent.children[hidden]

    def _reach(self, layer: int, parts: list[bytes]) -> TreeDirectory:
        """The directory at `parts`. What is missing on the way is made, and what is in the way gives way."""
        directory = self._walk(parts, layer)
        assert directory is not None, "a walk that may make directories arrives"
        return directory

    def _walk(self, parts: list[bytes], make_in: int | None) -> TreeDirectory | None:
        """Follow names from the root; symbolic links stay below the root as in a chroot. `make_in`: the layer that
        missing directories are made in, or None to give up at the first."""
        way = [self.root]
        todo = parts[::-1]
        links = 0
        while todo:
            part = todo.pop()
            self._count_step()
            if part == b"..":
                del way[max(1, len(way) - 1) :]
                continue
            if part in (b"", b"."):
                continue
            found = way[-1].children.get(part)
            node = found[0] if found else None
            if isinstance(node, Symlink):
                links += 1
                if links > _LINKS_LIMIT:
                    raise TreeError("too many symbolic links on the way, or a loop of them")
                if node.target.startswith(b"/"):
                    del way[1:]
                todo.extend(node.target.split(b"/")[::-1])
                continue
            if not isinstance(node, TreeDirectory):
                if make_in is None:
                    return None
                node = TreeDirectory(_IMPLIED)
                self._put(way[-1], checked_name(part), node, make_in)
            way.append(node)
            if len(way) > self._depth:
                raise TreeError(f"directories nested deeper than {self._depth}")
        return way[-1]

    def _count_name(self) -> None:
        """Implied directories too: an entry of a few bytes once packed can ask for hundreds of them."""
        self._names_left -= 1
        if self._names_left < 0:
            raise TreeError(f"more than {self._max_files} files and directories")

    def _count_step(self) -> None:
        self._steps_left -= 1
        if self._steps_left < 0:
            raise TreeError("too many names and links to follow")


def split_name(name: bytes) -> list[bytes]:
    """The components of a name, from the image's root whether it is absolute or not. Raises `TreeError`."""
    parts = [part for part in name.split(b"/") if part not in (b"", b".")]
    for part in parts:
        if len(part) > _NAME_LIMIT:
            raise TreeError(f"a name of {len(part)} bytes; {_NAME_LIMIT} is the limit")
        if part == b"..":
            raise TreeError("a name that leads upwards with ..")
    if any(part.startswith(_WHITEOUT) for part in parts[:-1]):
        raise TreeError("an entry below a whiteout")
    return parts


def checked_name(part: bytes) -> bytes:
    """The name of a directory that only a link's target asks for. Raises `TreeError` for one that no entry may have."""
    if part.startswith(_WHITEOUT):
        raise TreeError("an entry below a whiteout")
    if len(part) > _NAME_LIMIT:
        raise TreeError(f"a name of {len(part)} bytes; {_NAME_LIMIT} is the limit")
    return part


def shown(name: bytes) -> str:
    """A name for a person to read."""
    return name[:200].decode("utf-8", "backslashreplace")


def _hide_lower(directory: TreeDirectory, layer: int) -> None:
    """Drop what lower layers put below `directory`, keeping directories that this layer put something into."""
    for name, (node, origin) in list(directory.children.items()):
        if isinstance(node, TreeDirectory):
            _hide_lower(node, layer)
            if origin < layer and not node.children:
                del directory.children[name]
        elif origin < layer:
            del directory.children[name]


_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class NoXattrs(Exception):
    """The filesystem here cannot hold an attribute that the image has."""


class RefusedNode(Exception):
    """The kernel refuses a node. `layer` is the number of the layer that it is from."""

    def __init__(self, layer: int, entry: bytes, reason: str) -> None:
        super().__init__(reason)
        self.layer = layer
        self.entry = shown(entry)


def write_tree(tree: FileTree, pool: Path, target: Path, check: Callable[[], None]) -> None:
    """`pool` has the numbered contents; `target` is a new directory on the same filesystem. Raises `NoXattrs`,
    `RefusedNode`, `OSError` for a full disk."""
    target.mkdir(mode=0o700)
    pool_fd = os.open(pool, _DIRECTORY)
    root_fd = os.open(target, _DIRECTORY)
    try:
        _Writer(pool_fd, _names_of(tree), check).fill(tree.root, root_fd, b"")
    finally:
        os.close(root_fd)
        os.close(pool_fd)


def _names_of(tree: FileTree) -> Counter[int]:
    """How many names each content has."""
    names: Counter[int] = Counter()
    ahead = [tree.root]
    while ahead:
        for node, _ in ahead.pop().children.values():
            if isinstance(node, TreeDirectory):
                ahead.append(node)
            elif isinstance(node, TreeFile):
                names[node.content] += 1
    return names


class _Writer:
    def __init__(self, pool: int, names: Counter[int], check: Callable[[], None]) -> None:
        self._pool = pool
        self._names = names
        self._check = check
        self._dressed: set[int] = set()  # contents that have their attributes, while more names follow

    def fill(self, directory: TreeDirectory, fd: int, path: bytes) -> None:
        """Children first: making them changes the directory's own time."""
        self._check()
        for name, (node, layer) in directory.children.items():
            try:
                self._make(node, name, fd, path)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ERANGE, errno.ENAMETOOLONG):
                    raise
                raise RefusedNode(layer, path + name, os.strerror(error.errno)) from error
        _dress_open(fd, directory.meta)

    def _make(self, node: Node, name: bytes, fd: int, path: bytes) -> None:
        match node:
            case TreeFile():
                self._place(node, name, fd)
            case Symlink():
                os.symlink(node.target, name, dir_fd=fd)
                os.chown(name, node.meta.uid, node.meta.gid, dir_fd=fd, follow_symlinks=False)
                os.utime(name, ns=_times(node.meta), dir_fd=fd, follow_symlinks=False)
            case Fifo():
                os.mkfifo(name, 0o600, dir_fd=fd)
                _dress(name, fd, node.meta)
            case TreeDirectory():
                os.mkdir(name, 0o700, dir_fd=fd)
                child = os.open(name, _DIRECTORY, dir_fd=fd)
                try:
                    self.fill(node, child, path + name + b"/")
                finally:
                    os.close(child)

    def _place(self, file: TreeFile, name: bytes, fd: int) -> None:
        """Link the content while more names of it follow; move it at the last."""
        content = b"%d" % file.content
        if file.content not in self._dressed:
            _dress(content, self._pool, file.meta)
        self._names[file.content] -= 1
        if self._names[file.content]:
            self._dressed.add(file.content)
            os.link(content, name, src_dir_fd=self._pool, dst_dir_fd=fd, follow_symlinks=False)
        else:
            os.rename(content, name, src_dir_fd=self._pool, dst_dir_fd=fd)


def _dress(name: bytes, fd: int, meta: FileMeta) -> None:
    """Attributes of a file or fifo. A change of owner clears set-id bits and capabilities, so it comes first."""
    if (meta.uid, meta.gid) != (0, 0):
        os.chown(name, meta.uid, meta.gid, dir_fd=fd, follow_symlinks=False)
    if meta.xattrs:
        opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=fd)
        try:
            _set_xattrs(opened, meta)
        finally:
            os.close(opened)
    if meta.mode != 0o600:
        os.chmod(name, meta.mode, dir_fd=fd)
    os.utime(name, ns=_times(meta), dir_fd=fd, follow_symlinks=False)


def _dress_open(fd: int, meta: FileMeta) -> None:
    os.fchown(fd, meta.uid, meta.gid)
    _set_xattrs(fd, meta)
    os.fchmod(fd, meta.mode)
    os.utime(fd, ns=_times(meta))


def _set_xattrs(fd: int, meta: FileMeta) -> None:
    for name, value in meta.xattrs:
        try:
            os.setxattr(fd, name, value)
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                raise NoXattrs(name) from error
            raise


def _times(meta: FileMeta) -> tuple[int, int]:
    return meta.mtime_ns, meta.mtime_ns
