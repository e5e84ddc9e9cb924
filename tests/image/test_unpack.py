"""Facts about hostile layers: each is refused by name, and no byte lands outside the place that is meant for it."""

import gzip
import os
import tarfile
from pathlib import Path

import pytest

from hawker.ids import Digest
from hawker.image.failure import BadLayer
from hawker.image.limits import MIB, ImageLimits
from hawker.image.manifest import Compression
from hawker.image.tar import EntryKind, TarEntry
from hawker.image.tree import TreeError, TreeFile
from hawker.image.unpack import LayerBlob, PoolFull, Unpacker, kept_xattrs
from tests.fixtures.parts import Member, directory, entry, hard_link, sha256, symlink, tar
from tests.image.layers import blobs, unpack

_SMALL = ImageLimits(
    max_layer_bytes=MIB, max_image_bytes=3 * MIB // 2, max_files=50, max_names_bytes=20_000, max_depth=20
)


def _xattrs(count: int) -> dict[str, str]:
    return {f"SCHILY.xattr.user.{number}": "v" for number in range(count)}


@pytest.mark.parametrize(
    ("members", "says", "culprit"),
    [
        ([("../../evil", b"x")], r"leads upwards with \.\.", "../../evil"),
        ([("a/../../evil", b"x")], "leads upwards", "a/../../evil"),
        ([("/../evil", b"x")], "leads upwards", "/../evil"),
        ([hard_link("shadow", "../../etc/shadow")], "leads upwards", "shadow"),
        ([hard_link("shadow", "/etc/shadow")], "hard link to /etc/shadow, which is not there", "shadow"),
        ([directory("d"), hard_link("e", "d")], "hard link to the directory d", "e"),
        ([symlink("a", "b"), symlink("b", "a"), ("a/f", b"")], "a loop of them", "a/f"),
        ([symlink("s", "")], "a symbolic link of 0 bytes", "s"),
        ([entry("t", type=b"Z")], "unknown type", "t"),
        ([("n" * 300, b"")], "a name of 300 bytes", "nnn"),
        ([("d/" * 30 + "f", b"")], "nested deeper than 20", "d/d/"),
        ([(".wh.x/y", b"")], "below a whiteout", ".wh.x/y"),
        ([(str(number), b"") for number in range(51)], "more than 50 entries", "49"),
        ([(f"{number}/" + "d/" * 15 + "f", b"") for number in range(4)], "more than 50 files and directories", "2/d"),
        ([("big", bytes(MIB + 1))], f"more than {MIB} bytes in one layer", "big"),
        ([symlink(str(number), "t" * 1000) for number in range(30)], "bytes of names and attributes", ""),
        ([entry("x", pax_headers={"SCHILY.xattr.user.big": "v" * 3000})], "extended attributes of more than", "x"),
        ([entry(str(n), pax_headers=_xattrs(60)) for n in range(3)], "bytes of names and attributes", "2"),
        ([entry("x", pax_headers={"SCHILY.xattr.user.a\0b": "v"})], "a zero byte in its name", "x"),
        ([entry("x", pax_headers=_xattrs(65))], "more than 64 extended attributes", "x"),
        ([(tarfile.TarInfo(""), b"")], "root itself", ""),
    ],
)
def test_bad_layer_is_refused_by_name(tmp_path: Path, members: list[Member], says: str, culprit: str) -> None:
    archive = tar(*members)
    with pytest.raises(BadLayer, match=says) as caught:
        unpack(tmp_path, [tar(("good", b"")), archive], _SMALL)
    assert caught.value.layer == sha256(archive)
    assert culprit in caught.value.entry
    assert not (tmp_path / "root").exists()


def test_image_of_many_layers_is_limited_as_a_whole(tmp_path: Path) -> None:
    layers = [tar((f"f{number}", bytes(MIB - 1))) for number in range(2)]
    with pytest.raises(BadLayer, match=f"more than {3 * MIB // 2} bytes in one image"):
        unpack(tmp_path, layers, _SMALL)


def test_sparse_file_counts_as_large_as_it_seems(tmp_path: Path) -> None:
    info = entry("holes", pax_headers={"GNU.sparse.map": "0,1", "GNU.sparse.size": str(10**15)})
    with pytest.raises(BadLayer, match="bytes in one layer") as caught:
        unpack(tmp_path, [tar((info, b"x"))])
    assert caught.value.entry == "holes"


@pytest.mark.root
def test_honest_sparse_file_keeps_its_holes(tmp_path: Path) -> None:
    info = entry("holes", pax_headers={"GNU.sparse.map": "4096,1", "GNU.sparse.size": str(8 * MIB)})
    found = unpack(tmp_path, [tar((info, b"x"))]) / "holes"
    assert found.read_bytes() == bytes(4096) + b"x" + bytes(8 * MIB - 4097)
    assert found.stat().st_blocks * 512 < MIB


def test_decompression_bomb_is_refused_by_name(tmp_path: Path) -> None:
    blob = tmp_path / "bomb"
    blob.write_bytes(gzip.compress(tar(("zeros", bytes(50 * MIB)))))
    (tmp_path / "pool").mkdir()
    limits = ImageLimits(ratio_free_bytes=MIB, max_ratio=5)
    layer = LayerBlob(Digest("sha256:bomb"), blob, Compression.GZIP)
    with pytest.raises(BadLayer, match=r"layer sha256:bomb: unpacks to .*: a decompression bomb \(entry 'zeros'\)"):
        Unpacker(tmp_path / "pool", 1 << 40, limits, lambda: None).unpack([layer])


@pytest.mark.parametrize("cut", [100, 700, 5000])
def test_cut_off_layer_is_refused(tmp_path: Path, cut: int) -> None:
    with pytest.raises(BadLayer, match="cut off"):
        unpack(tmp_path, [tar(("a", b"x"), ("b", bytes(9000)))[:cut]])


@pytest.mark.root
def test_link_to_the_host_is_only_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    members: list[Member] = [
        symlink("out", str(tmp_path)),
        ("out/victim", b"evil"),
        symlink("leaf", str(victim)),
        ("leaf", b"evil"),
    ]
    root = unpack(tmp_path, [tar(*members)])
    assert victim.read_text() == "untouched"
    assert (root / "leaf").read_bytes() == b"evil"
    inside = root / str(tmp_path).lstrip("/") / "victim"
    assert inside.read_bytes() == b"evil"


@pytest.mark.root
def test_device_nodes_are_dropped_and_hide_what_was_there(tmp_path: Path) -> None:
    null = entry("dev/null", type=tarfile.CHRTYPE, devmajor=1, devminor=3)
    whiteout = entry("gone", type=tarfile.CHRTYPE)
    disk = entry("dev/sda", type=tarfile.BLKTYPE, devmajor=8)
    root = unpack(tmp_path, [tar(("gone", b""), ("kept", b"")), tar(directory("dev"), null, disk, whiteout)])
    assert sorted(os.listdir(root)) == ["dev", "kept"]
    assert os.listdir(root / "dev") == []


def test_place_that_is_too_small_is_told_before_it_is_filled(tmp_path: Path) -> None:
    unpacker = Unpacker(tmp_path, 1000, ImageLimits(), lambda: None)
    with pytest.raises(PoolFull):
        unpacker.unpack(blobs(tmp_path / "blobs", tar(("a", bytes(600)), ("b", bytes(600)))))
    assert sum(file.stat().st_size for file in tmp_path.iterdir() if file.is_file()) == 600


def test_content_is_kept_under_numbers_only(tmp_path: Path) -> None:
    pool = tmp_path / "pool"
    pool.mkdir()
    [layer] = blobs(tmp_path / "blobs", tar(directory("d"), ("d/evil; rm", b"content")))
    found = Unpacker(pool, 1 << 20, ImageLimits(), lambda: None).unpack([layer]).find(b"d/evil; rm")
    assert isinstance(found, TreeFile)
    assert os.listdir(pool) == [str(found.content)]


def _with_xattrs(*names: str) -> TarEntry:
    return TarEntry(b"x", EntryKind.FILE, 0, 0, 0, 0, 0, 0, (), b"", tuple((name, b"v") for name in names))


def test_only_harmless_attributes_are_kept() -> None:
    found = kept_xattrs(
        _with_xattrs("user.mime", "security.capability", "trusted.overlay.opaque", "user.overlay.whiteout",
                     "security.selinux", "system.posix_acl_access", "security.ima")
    )  # fmt: skip
    assert [name for name, _ in found] == ["user.mime", "security.capability"]
    with pytest.raises(TreeError):
        kept_xattrs(_with_xattrs("user." + "x" * 3000))
