import os
from pathlib import Path

import pytest

from hawker.errors import CannotStart
from hawker.runtime.kernel import kernel_package
from hawker.runtime.kernel.kernel_import import KernelSource, host_source, import_kernel, import_package
from hawker.runtime.kernel.kernel_store import KernelStore
from tests.runtime.kernel.crafted import RELEASE, bzimage, lay, module, vmlinux, whole_tree
from tests.runtime.kernel.test_kernel_package import deb, plain


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    return tmp_path / "kernels"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    (tmp_path / "bzImage").write_bytes(bzimage(payload=vmlinux()))
    return tmp_path / "bzImage"


def silent(line: str) -> None:
    assert line


def test_files_become_a_kernel(kernels: Path, image: Path, tmp_path: Path) -> None:
    said: list[str] = []
    source = KernelSource(image, whole_tree(tmp_path / "modules"), "file bzImage")
    found = import_kernel(KernelStore(kernels), source, said.append, 7.0)
    assert (found.release, found.record.origin, found.record.imported_at) == (RELEASE, "file bzImage", 7.0)
    assert {"virtio_net", "erofs", "vmw_vsock_virtio_transport"} <= {each.name for each in found.modules()}
    assert said == [f"reading {image}"]


def test_the_directory_may_be_that_of_all_kernels(kernels: Path, image: Path, tmp_path: Path) -> None:
    whole_tree(tmp_path / "modules" / RELEASE)
    whole_tree(tmp_path / "modules/5.10.0", "5.10.0")
    assert (
        import_kernel(KernelStore(kernels), KernelSource(image, tmp_path / "modules", "x"), silent, 1.0).release
        == RELEASE
    )


def test_kernel_that_cannot_be_imported_is_named_and_nothing_is_left(
    kernels: Path, image: Path, tmp_path: Path
) -> None:
    def refused(image: Path, modules: Path) -> str:
        with pytest.raises(CannotStart) as caught:
            import_kernel(KernelStore(kernels), KernelSource(image, modules, "x"), silent, 1.0)
        assert KernelStore(kernels).list() == []
        return str(caught.value)

    other = whole_tree(tmp_path / "other", "5.10.0")
    assert f"is of kernel 5.10.0, not of {RELEASE}" in refused(image, other)
    assert "has no virtio_mmio, no virtio_blk" in refused(image, lay(tmp_path / "poor", {"a.ko": module()}))
    (tmp_path / "text").write_text("text")
    assert f"cannot import {tmp_path}/text: not a kernel" in refused(tmp_path / "text", other)
    assert "No such file" in refused(tmp_path / "none", other)


def test_the_hosts_own_kernel_is_taken_where_it_has_what_machines_need(tmp_path: Path) -> None:
    release = os.uname().release
    boot, modules = tmp_path / "boot", tmp_path / "modules"
    assert host_source(boot, modules) is None
    boot.mkdir()
    (boot / f"vmlinuz-{release}").write_bytes(b"x")
    assert host_source(boot, modules) is None
    lay(modules / release, {"a.ko": module(release)})
    assert host_source(boot, modules) is None
    whole_tree(modules / release, release)
    found = host_source(boot, modules)
    assert found is not None and found.image == boot / f"vmlinuz-{release}" and found.modules == modules / release


def test_a_package_becomes_a_kernel_and_is_not_kept(
    kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = whole_tree(tmp_path / "tree")
    members = [
        plain(f"./lib/modules/{RELEASE}/{path.relative_to(tree)}", path.read_bytes())
        for path in tree.rglob("*")
        if path.is_file()
    ]

    def download(package: str, into: Path, say: object) -> list[Path]:
        image = plain(f"./boot/vmlinuz-{RELEASE}", bzimage(payload=vmlinux()))
        return [
            deb(into / f"linux-image-{RELEASE}_1.2-3_amd64.deb", image),
            deb(into / f"linux-modules-{RELEASE}_1.2-3_amd64.deb", *members),
        ]

    monkeypatch.setattr(kernel_package, "download", download)
    found = import_package(KernelStore(kernels), kernels, "linux-image-test", silent, 1.0)
    assert (found.release, found.record.origin) == (RELEASE, f"package linux-image-{RELEASE}_1.2-3_amd64")
    assert [path.name for path in kernels.iterdir()] == [found.directory.name]


def test_a_package_without_a_kernel_or_with_two(kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    releases: list[str] = []

    def download(package: str, into: Path, say: object) -> list[Path]:
        return [deb(into / "x.deb", *(plain(f"./boot/vmlinuz-{release}", b"x") for release in releases))]

    monkeypatch.setattr(kernel_package, "download", download)
    with pytest.raises(CannotStart, match="linux-doc has no kernel in it: name another package with --package"):
        import_package(KernelStore(kernels), kernels, "linux-doc", silent, 1.0)
    releases += ["6.1.0", "6.2.0"]
    with pytest.raises(CannotStart, match="linux-doc has 2 kernels in it"):
        import_package(KernelStore(kernels), kernels, "linux-doc", silent, 1.0)
    assert list(kernels.iterdir()) == []


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CannotStart, match=r"cannot import linux-doc: .*Not a directory"):
        import_package(KernelStore(tmp_path / "file/kernels"), tmp_path / "file/kernels", "linux-doc", silent, 1.0)
