import io
import lzma
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from hawker.errors import CannotStart
from hawker.runtime.kernel import kernel_import
from hawker.runtime.kernel import kernel_import as packages
from hawker.runtime.kernel.kernel_import import (
    KernelSource,
    download,
    host_source,
    import_kernel,
    import_package,
    unpack_kernel,
    usual_package,
)
from hawker.runtime.kernel.kernel_store import KernelStore
from tests.runtime.kernel.crafted import RELEASE, bzimage, lay, module, vmlinux, whole_tree


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

    monkeypatch.setattr(kernel_import, "download", download)
    found = import_package(KernelStore(kernels), kernels, "linux-image-test", silent, 1.0)
    assert (found.release, found.record.origin) == (RELEASE, f"package linux-image-{RELEASE}_1.2-3_amd64")
    assert [path.name for path in kernels.iterdir()] == [found.directory.name]


def test_a_package_without_a_kernel_or_with_two(kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    releases: list[str] = []

    def download(package: str, into: Path, say: object) -> list[Path]:
        return [deb(into / "x.deb", *(plain(f"./boot/vmlinuz-{release}", b"x") for release in releases))]

    monkeypatch.setattr(kernel_import, "download", download)
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


pytestmark = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed: this is no Debian")

_CONTROL = "Package: linux-image-test\nVersion: 1\nArchitecture: all\nMaintainer: Nobody\nDescription: a test\n"


def plain(name: str, content: bytes) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    return info, content


def special(name: str, kind: bytes, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


def deb(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    """By hand: an ar archive of three (deb(5))."""
    parts = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": _packed(plain("./control", _CONTROL.encode())),
        "data.tar.xz": _packed(*members),
    }
    with path.open("wb") as file:
        file.write(b"!<arch>\n")
        for name, data in parts.items():
            file.write(f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode() + data)
            file.write(b"\n" * (len(data) % 2))
    return path


def _packed(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return lzma.compress(raw.getvalue())


def kernel_members(modules: str = "lib/modules") -> list[tuple[tarfile.TarInfo, bytes]]:
    return [
        plain(f"./boot/vmlinuz-{RELEASE}", vmlinux()),
        plain(f"./boot/config-{RELEASE}", b"CONFIG_PVH=y"),
        plain(f"./{modules}/{RELEASE}/modules.builtin", b"kernel/fs/ext4.ko\n"),
        plain(f"./{modules}/{RELEASE}/kernel/fs/erofs.ko.xz", lzma.compress(module().built("erofs"))),
        plain(f"./{modules}/{RELEASE}/build/Makefile", b"all:"),
    ]


def unpacked(package: Path, into: Path) -> list[str]:
    into.mkdir(exist_ok=True)
    unpack_kernel(package, into)
    return sorted(str(path.relative_to(into)) for path in into.rglob("*") if not path.is_dir())


@pytest.mark.parametrize("modules", ["lib/modules", "usr/lib/modules"])
def test_the_image_and_its_modules_are_taken_and_nothing_else(tmp_path: Path, modules: str) -> None:
    package = deb(tmp_path / "x.deb", *kernel_members(modules))
    assert unpacked(package, tmp_path / "out") == [
        f"modules/{RELEASE}/kernel/fs/erofs.ko.xz",
        f"modules/{RELEASE}/modules.builtin",
        f"vmlinuz-{RELEASE}",
    ]
    assert (tmp_path / f"out/vmlinuz-{RELEASE}").read_bytes() == vmlinux()


def test_a_package_that_dpkg_made(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN/control").write_text(_CONTROL)
    (root / "boot").mkdir()
    (root / f"boot/vmlinuz-{RELEASE}").write_bytes(vmlinux())
    subprocess.run(["dpkg-deb", "--build", str(root), str(tmp_path / "x.deb")], check=True, capture_output=True)
    assert unpacked(tmp_path / "x.deb", tmp_path / "out") == [f"vmlinuz-{RELEASE}"]


def test_nothing_is_written_outside(tmp_path: Path) -> None:
    hostile = (
        plain("../../vmlinuz-1.2.3", b"x"),
        plain("./boot/../../../vmlinuz-1.2.3", b"x"),
        plain("/boot/../etc/vmlinuz-1.2.3", b"x"),
        plain("./lib/modules/../../../../x.ko", b"x"),
        plain(f"./lib/modules/{RELEASE}/../../../../x.ko", b"x"),
        plain("./lib/modules/.hidden/x.ko", b"x"),
        plain("./boot/vmlinuz-..", b"x"),
        plain("./etc/passwd", b"x"),
        special(f"./boot/vmlinuz-{RELEASE}", tarfile.SYMTYPE, "/etc/passwd"),
        special(f"./lib/modules/{RELEASE}", tarfile.SYMTYPE, str(tmp_path / "victim")),
        special(f"./lib/modules/{RELEASE}/a.ko", tarfile.LNKTYPE, "/etc/passwd"),
        special(f"./lib/modules/{RELEASE}/b.ko", tarfile.CHRTYPE),
        special(f"./lib/modules/{RELEASE}/c.ko", tarfile.FIFOTYPE),
    )
    (tmp_path / "victim").mkdir()
    before = set(tmp_path.rglob("*"))
    assert unpacked(deb(tmp_path / "x.deb", *hostile), tmp_path / "out") == []
    assert set(tmp_path.rglob("*")) == before | {tmp_path / "x.deb", tmp_path / "out"}


def test_a_file_in_the_place_of_a_directory_is_an_error(tmp_path: Path) -> None:
    members = (plain(f"./lib/modules/{RELEASE}/k.ko", b"x"), plain(f"./lib/modules/{RELEASE}/k.ko/x.ko", b"x"))
    with pytest.raises(OSError, match=r"k\.ko"):
        unpacked(deb(tmp_path / "x.deb", *members), tmp_path / "out")


def test_file_that_is_no_package_is_refused_in_the_words_of_dpkg(tmp_path: Path) -> None:
    (tmp_path / "x.deb").write_bytes(b"no package")
    with pytest.raises(CannotStart, match=r"^x\.deb cannot be used: dpkg-deb: error"):
        unpacked(tmp_path / "x.deb", tmp_path / "out")
    deb(tmp_path / "x.deb", *kernel_members())
    (tmp_path / "x.deb").write_bytes((tmp_path / "x.deb").read_bytes()[:-60])
    with pytest.raises(CannotStart, match=r"^x\.deb cannot be used"):
        unpacked(tmp_path / "x.deb", tmp_path / "out")


def test_a_package_larger_than_any_kernel_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = deb(tmp_path / "x.deb", *kernel_members())
    for name in ("_MOST_MEMBERS", "_MOST_BYTES"):
        with monkeypatch.context() as patch, pytest.raises(CannotStart, match="more in it than a kernel"):
            patch.setattr(packages, name, 2)
            unpacked(package, tmp_path / "out")


def test_without_dpkg_it_says_what_else_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotStart, match=r"dpkg-deb is missing.* --image"):
        unpack_kernel(tmp_path / "x.deb", tmp_path)


_DEPENDS = """#!/bin/sh
case $3 in
linux-image-cloud-amd64) printf '%s\\n  Depends: linux-image-6.1.0-9\\n' $3 ;;
linux-image-6.1.0-9) printf '  PreDepends: linux-modules-6.1.0-9\\n  Depends: linux-base\\n |Depends: kmod\\n' ;;
linux-image-all) for i in 1 2 3 4 5 6 7; do echo "  Depends: linux-image-$i"; done ;;
linux-modules-6.1.0-9 | linux-image-[0-9] | plain) echo $3 ;;
*) echo "E: No packages found" >&2; exit 100 ;;
esac
"""
_GET = """#!/bin/sh
[ "$1" = download ] || exit 1
shift
for name; do echo package >"${name}_1_all.deb"; done
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{directory}:/bin:/usr/bin")
    script(directory / "apt-cache", _DEPENDS)
    script(directory / "apt-get", _GET)
    return directory


def script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def into(tmp_path: Path) -> Path:
    (tmp_path / "into").mkdir()
    return tmp_path / "into"


def test_a_name_that_stands_for_the_newest_is_followed_to_the_kernel_and_its_parts(tools: Path, into: Path) -> None:
    said: list[str] = []
    files = download("linux-image-cloud-amd64", into, said.append)
    names = ["linux-image-6.1.0-9", "linux-image-cloud-amd64", "linux-modules-6.1.0-9"]
    assert files == [into / f"{name}_1_all.deb" for name in names]
    assert said == ["downloading linux-image-cloud-amd64, linux-image-6.1.0-9, linux-modules-6.1.0-9"]


def test_a_package_that_needs_no_other(tools: Path, into: Path) -> None:
    assert download("plain", into, lambda line: None) == [into / "plain_1_all.deb"]


def test_a_package_that_apt_does_not_know(tools: Path, into: Path) -> None:
    with pytest.raises(CannotStart, match="apt knows no package linux-none: try `apt-get update`"):
        download("linux-none", into, lambda line: None)


@pytest.mark.parametrize("name", ["", "-o", "../x", "a b", "A", "x=1"])
def test_invalid_package_name_never_reaches_apt(tools: Path, into: Path, name: str) -> None:
    script(tools / "apt-cache", "#!/bin/sh\ntouch reached\n")
    with pytest.raises(CannotStart, match="is no name of a package"):
        download(name, into, lambda line: None)


def test_a_name_for_many_kernels_is_refused_with_their_names(tools: Path, into: Path) -> None:
    with pytest.raises(CannotStart, match="stands for too many kernels: name one of linux-image-1, linux-image-2"):
        download("linux-image-all", into, lambda line: None)


def test_without_network_it_says_what_apt_said(tools: Path, into: Path) -> None:
    script(tools / "apt-get", "#!/bin/sh\necho 'W: warned' >&2\necho 'E: Could not connect' >&2\nexit 100\n")
    with pytest.raises(CannotStart, match=r"cannot download plain: E: Could not connect; try `apt-get update`"):
        download("plain", into, lambda line: None)
    script(tools / "apt-get", "#!/bin/sh\nexit 0\n")
    with pytest.raises(CannotStart, match="cannot download plain: exit status 0"):
        download("plain", into, lambda line: None)


def test_apt_that_does_not_answer_is_not_waited_for(tools: Path, into: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(command: list[str], **options: object) -> None:
        raise subprocess.TimeoutExpired(command, 60)

    monkeypatch.setattr("subprocess.run", hang)
    with pytest.raises(CannotStart, match=r"apt-cache has not answered in 60 s"):
        download("plain", into, lambda line: None)


def test_without_apt_it_says_what_else_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotStart, match=r"apt-cache is missing: .* package apt, or name files with --image"):
        download("plain", tmp_path, lambda line: None)


def test_the_usual_package_is_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert usual_package() == "linux-image-cloud-arm64"
    monkeypatch.setattr("platform.machine", lambda: "m68k")
    with pytest.raises(CannotStart, match="for m68k: name one with --package"):
        usual_package()
