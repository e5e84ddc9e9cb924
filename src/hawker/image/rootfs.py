"""Writes a tree out as real files, below a fresh directory that nobody else can reach. Runs in a worker thread.

Every name is made new, relative to its parent's descriptor, and no link is ever followed. Content is moved in from the
pool, not copied.
"""

import errno
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from hawker.image.tree import Fifo, FileMeta, FileTree, Node, Symlink, TreeDirectory, TreeFile, shown

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
