"""The order of modules, from directories made by hand. That a real kernel takes one is seen in test_guest_kernel.py."""

import gzip
import lzma
import os
from pathlib import Path

import pytest
import zstandard

from hawker.runtime.kernel import kernel_modules
from hawker.runtime.kernel.kernel_modules import OPTIONAL, LacksModules, ModuleTree
from tests.runtime.kernel.crafted import RELEASE, Module, lay, module, whole_tree


def names(directory: Path, *required: str, optional: tuple[str, ...] = ()) -> list[str]:
    return [each.name for each in ModuleTree(directory, RELEASE).select(required, optional).modules]


def test_needed_module_comes_first(tmp_path: Path) -> None:
    lay(tmp_path, {"d/a.ko": module(needs="b,c"), "b.ko": module(needs="c"), "e/f/c.ko": module(), "x.ko": module()})
    assert names(tmp_path, "a") == ["c", "b", "a"]
    assert names(tmp_path, "b", "a") == ["c", "b", "a"]


def test_builtin_module_is_not_loaded(tmp_path: Path) -> None:
    lay(tmp_path, {"a.ko": module(needs="b,ext4")}, builtin="b ext4")
    assert names(tmp_path, "ext4", "a") == ["a"]


def test_all_that_machines_need_is_found(tmp_path: Path) -> None:
    selection = ModuleTree(whole_tree(tmp_path), RELEASE).select()
    found = [each.name for each in selection.modules]
    assert selection.lacks == () and "ext4" not in found
    assert found.index("virtio") < found.index("virtio_mmio") and found.index("failover") < found.index("virtio_net")
    assert found.index("libcrc32c") < found.index("erofs") and set(OPTIONAL) <= set(found)


def test_a_packed_module_is_unpacked(tmp_path: Path) -> None:
    a, b, c = (module().built(name) for name in "abc")
    packed = {
        "a.ko.xz": lzma.compress(a),
        "b.ko.zst": zstandard.ZstdCompressor().compress(b),
        "c.ko.gz": gzip.compress(c),
    }
    selection = ModuleTree(lay(tmp_path, packed), RELEASE).select(("a", "b", "c"), ())
    assert [each.content for each in selection.modules] == [a, b, c]


def test_missing_module_is_named(tmp_path: Path) -> None:
    lay(tmp_path, {"a.ko": module(needs="lost")}, builtin="c")
    with pytest.raises(LacksModules, match=r"^kernel 6\.1\.0-test has no b, no d, which machines need$"):
        names(tmp_path, "a", "b", "c", "d")
    with pytest.raises(LacksModules, match="has no lost, which a needs"):
        names(tmp_path, "a")


def test_an_optional_module_that_lacks_anything_is_left_out_with_all_that_only_it_needs(tmp_path: Path) -> None:
    files = {"a.ko": module(), "half.ko": module(needs="part,lost"), "part.ko": module()}
    selection = ModuleTree(lay(tmp_path, files), RELEASE).select(("a",), ("nowhere", "half"))
    assert [each.name for each in selection.modules] == ["a"] and selection.lacks == ("nowhere", "half")


def test_modules_that_need_each_other_are_refused(tmp_path: Path) -> None:
    lay(tmp_path, {"a.ko": module(needs="b"), "b.ko": module(needs="c"), "c.ko": module(needs="a")})
    with pytest.raises(ValueError, match=r"cannot be put in order: .*Cycle detected: (a|b|c) -> "):
        names(tmp_path, "a")


def test_a_module_may_name_itself(tmp_path: Path) -> None:
    assert names(lay(tmp_path, {"a.ko": module(soft="pre: a")}), "a") == ["a"]


def test_a_soft_dependency_comes_first_where_it_is_there(tmp_path: Path) -> None:
    files = {"a.ko": module(soft="pre: b nowhere builtin"), "b.ko": module(), "lone.ko": module()}
    assert names(lay(tmp_path, files, builtin="builtin"), "a") == ["b", "a"]


def test_a_soft_dependency_may_be_an_alias(tmp_path: Path) -> None:
    files = {
        "libcrc32c.ko": module(soft="pre: crc32c"),
        "crc32c_generic.ko": module(aliases=("crypto-crc32c", "crc32c")),
    }
    assert names(lay(tmp_path / "module", files), "libcrc32c") == ["crc32c_generic", "libcrc32c"]
    del files["crc32c_generic.ko"]
    builtin = lay(tmp_path / "builtin", files, "crc32c_generic", "crc32c_generic.alias=crc32c\0")
    assert names(builtin, "libcrc32c") == ["libcrc32c"]


def test_soft_dependencies_may_go_in_a_circle(tmp_path: Path) -> None:
    lay(tmp_path, {"a.ko": module(soft="pre: b"), "b.ko": module(soft="pre: a")})
    assert names(tmp_path, "a") == ["b", "a"]


def test_a_chain_may_be_long(tmp_path: Path) -> None:
    count = 1100  # more than frames of Python
    lay(tmp_path, {f"m{n}.ko": module(needs=f"m{n + 1}" if n + 1 < count else "") for n in range(count)})
    assert names(tmp_path, "m0") == [f"m{n}" for n in reversed(range(count))]


def test_a_module_of_another_kernel_is_refused(tmp_path: Path) -> None:
    lay(tmp_path, {"a.ko": module("5.10.0")})
    with pytest.raises(ValueError, match=r"a\.ko is of kernel 5\.10\.0, not of 6\.1\.0-test"):
        names(tmp_path, "a")


def test_a_name_with_slashes_reaches_nothing_outside(tmp_path: Path) -> None:
    (tmp_path / "secret.ko").write_bytes(module().built("secret"))
    lay(tmp_path / "tree", {"a.ko": module(needs="../secret")})
    with pytest.raises(LacksModules, match=r"has no \.\./secret"):
        names(tmp_path / "tree", "a")


def test_links_are_not_followed(tmp_path: Path) -> None:
    lay(tmp_path / "elsewhere", {"a.ko": module()}, builtin="b")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a.ko").symlink_to(tmp_path / "elsewhere/a.ko")
    (tree / "folder").symlink_to(tmp_path / "elsewhere")
    (tree / "modules.builtin").symlink_to(tmp_path / "elsewhere/modules.builtin")
    with pytest.raises(LacksModules, match="no a, no b"):
        names(tree, "a", "b")


def test_fifo_is_no_module(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.ko")
    with pytest.raises(LacksModules):
        names(tmp_path, "a")


def test_a_directory_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_modules, "_MOST_FILES", 3)
    lay(tmp_path, {"a.ko": module(), "b.ko": module()})
    with pytest.raises(ValueError, match="more than 3 files"):
        names(tmp_path, "a")


def test_a_damaged_module_that_nobody_needs_is_no_matter(tmp_path: Path) -> None:
    files: dict[str, Module | bytes] = {
        "a.ko": module(soft="pre: by_alias"),
        "broken.ko": b"nothing",
        "b.ko": module(aliases=("by-alias",)),
    }
    assert names(lay(tmp_path, files), "a") == ["b", "a"]
    with pytest.raises(ValueError, match=r"broken\.ko is no kernel module: .*Exec format"):
        names(tmp_path, "broken")
