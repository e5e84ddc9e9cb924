"""Facts about writing a tree out: what is on disk is what the layers said. Compared with GNU tar where it can be."""

import os
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest

from hawker.image.limits import ImageLimits
from hawker.image.tree import Fifo, FileMeta, FileTree, RefusedNode, Symlink, TreeDirectory, TreeFile, write_tree
from tests.fixtures.parts import directory, entry, hard_link, symlink, tar
from tests.image.layers import unpack

pytestmark = pytest.mark.root


def test_modes_owners_times_and_links_are_kept(tmp_path: Path) -> None:
    root = unpack(tmp_path, [
        tar(
            directory("bin", 0o2755, uid=5, gid=6, mtime=1_600_000_000),
            (entry("bin/sudo", mode=0o4755, uid=7, gid=8, mtime=1_500_000_000), b"#!"),
            hard_link("bin/su", "bin/sudo"),
            symlink("sh", "/bin/sudo"),
            entry("pipe", mode=0o640, type=tarfile.FIFOTYPE),
            directory("locked", 0o000),
            ("locked/inside", b"x"),
        )
    ])  # fmt: skip
    sudo = (root / "bin/sudo").stat()
    assert (stat.S_IMODE(sudo.st_mode), sudo.st_uid, sudo.st_gid, sudo.st_mtime) == (0o4755, 7, 8, 1_500_000_000)
    assert sudo.st_nlink == 2
    assert os.path.samefile(root / "bin/sudo", root / "bin/su")
    folder = (root / "bin").stat()
    assert (stat.S_IMODE(folder.st_mode), folder.st_uid, folder.st_mtime) == (0o2755, 5, 1_600_000_000)
    assert os.readlink(root / "sh") == "/bin/sudo"
    pipe = (root / "pipe").stat()
    assert stat.S_ISFIFO(pipe.st_mode) and stat.S_IMODE(pipe.st_mode) == 0o640
    assert stat.S_IMODE((root / "locked").stat().st_mode) == 0
    assert (root / "locked/inside").read_bytes() == b"x"
    assert os.listdir(tmp_path / "pool") == []


def test_capabilities_survive_a_change_of_owner(tmp_path: Path) -> None:
    capability = bytes.fromhex("0100000200040000000000000000000000000000")  # cap_net_bind_service+ep
    headers = {"SCHILY.xattr.security.capability": capability.decode("latin-1"), "SCHILY.xattr.trusted.x": "y"}
    info = entry("server", mode=0o755, uid=33, pax_headers=headers)
    root = unpack(tmp_path, [tar((info, b"x"))])
    assert os.listxattr(root / "server") == ["security.capability"]
    assert os.getxattr(root / "server", "security.capability") == capability


def test_real_directory_comes_out_as_gnu_tar_unpacks_it(tmp_path: Path) -> None:
    archive, theirs = tmp_path / "etc.tar", tmp_path / "theirs"
    theirs.mkdir()
    subprocess.run(["tar", "-C", "/", "--exclude=*.sock", "-cf", archive, "etc"], check=True, stderr=subprocess.PIPE)
    subprocess.run(["tar", "-C", theirs, "-xpf", archive], check=True)
    ours = unpack(tmp_path, [archive.read_bytes()])
    assert describe(ours / "etc") == describe(theirs / "etc")


def describe(root: Path) -> dict[str, tuple[object, ...]]:
    """Everything below `root` that an image can hold."""
    found: dict[str, tuple[object, ...]] = {}
    for folder, folders, files in os.walk(root):
        for name in [*folders, *files]:
            path = Path(folder) / name
            info = path.lstat()
            content: object = None
            if path.is_symlink():
                content = os.readlink(path)
            elif path.is_file():
                content = path.read_bytes()
            found[str(path.relative_to(root))] = (info.st_mode, info.st_uid, info.st_gid, int(info.st_mtime), content)
    return found


def test_three_names_of_one_file_leave_no_fourth_in_the_pool(tmp_path: Path) -> None:
    root = unpack(tmp_path, [tar(("a", b"x"), hard_link("d/b", "a"), hard_link("e/c", "d/b"))])
    assert (root / "a").stat().st_nlink == 3
    assert os.listdir(tmp_path / "pool") == []


def test_node_that_the_kernel_refuses_is_told_with_its_layer(tmp_path: Path) -> None:
    tree = FileTree(ImageLimits())
    (tmp_path / "pool").mkdir()
    (tmp_path / "pool/1").touch()
    meta = FileMeta(mode=0o644, xattrs=(("security.capability", b"nonsense"),))
    tree.add(0, b"d", TreeDirectory(FileMeta(mode=0o755)))
    tree.add(3, b"d/f", TreeFile(meta, 1, 0))
    with pytest.raises(RefusedNode, match="Invalid argument") as caught:
        write_tree(tree, tmp_path / "pool", tmp_path / "root", lambda: None)
    assert (caught.value.layer, caught.value.entry) == (3, "d/f")


def test_hard_links_to_links_and_pipes_are_copies(tmp_path: Path) -> None:
    tree = FileTree(ImageLimits())
    (tmp_path / "pool").mkdir()
    tree.add(0, b"l", Symlink(FileMeta(mode=0o777), b"x"))
    tree.add(0, b"p", Fifo(FileMeta(mode=0o600)))
    tree.link(0, b"l2", b"l")
    tree.link(0, b"p2", b"p")
    write_tree(tree, tmp_path / "pool", tmp_path / "root", lambda: None)
    assert os.readlink(tmp_path / "root/l2") == "x"
    assert (tmp_path / "root/p2").is_fifo()


def test_target_must_be_new(tmp_path: Path) -> None:
    (tmp_path / "pool").mkdir()
    (tmp_path / "root").symlink_to("/tmp")
    with pytest.raises(FileExistsError):
        write_tree(FileTree(ImageLimits()), tmp_path / "pool", tmp_path / "root", lambda: None)
