import os
import threading
from pathlib import Path

import pytest

from hawker.errors import CannotStart
from hawker.runtime.kernel import initramfs
from hawker.runtime.kernel.kernel_modules import Module
from hawker.runtime.kernel.tools import MissingTool
from tests.runtime.kernel.crafted import read_cpio

PILOT = b"\x7fELF pilot"
MODULES = (Module("virtio", b"one"), Module("virtio_rng", b"two"))


def test_initramfs_is_the_pilot_the_modules_and_their_order_and_nothing_else(tmp_path: Path) -> None:
    initramfs.build(tmp_path / "deep/x.cpio", PILOT, MODULES)
    assert list(read_cpio((tmp_path / "deep/x.cpio").read_bytes())) == [
        ("init", 0o100755, PILOT),
        ("modules", 0o040755, b""),
        ("modules/order", 0o100644, b"virtio.ko\nvirtio_rng.ko\n"),
        ("modules/virtio.ko", 0o100644, b"one"),
        ("modules/virtio_rng.ko", 0o100644, b"two"),
    ]
    assert (tmp_path / "deep/x.cpio").stat().st_mode & 0o777 == 0o644, "a VMM has a user of its own"


def test_other_content_is_another_name() -> None:
    swapped, renamed = MODULES[::-1], (MODULES[0], Module("virtio_ring", b"two"))
    names = {initramfs.name_of(PILOT, initramfs.digest_of(each)) for each in (MODULES, swapped, renamed, ())}
    names |= {initramfs.name_of(b"another", initramfs.digest_of(MODULES))}
    assert len(names) == 5 and all(name.endswith(".cpio") and "/" not in name for name in names)
    assert initramfs.name_of(PILOT, initramfs.digest_of(MODULES)) in names


def test_builders_beside_each_other_make_one_file(tmp_path: Path) -> None:
    together = threading.Barrier(4)

    def build() -> None:
        together.wait()
        for _ in range(10):
            initramfs.build(tmp_path / "x.cpio", PILOT, MODULES)
            assert len(list(read_cpio((tmp_path / "x.cpio").read_bytes()))) == 5

    threads = [threading.Thread(target=build) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert os.listdir(tmp_path) == ["x.cpio"]


def test_those_that_nobody_needs_are_removed(tmp_path: Path) -> None:
    for name in ("used.cpio", "old.cpio"):
        initramfs.build(tmp_path / name, PILOT, ())
    initramfs.prune(tmp_path, ["used.cpio"])
    assert os.listdir(tmp_path) == ["used.cpio"]
    initramfs.prune(tmp_path / "nowhere", [])


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "other"):
        initramfs.build(tmp_path / name / "x.cpio", PILOT, MODULES)
        os.utime(tmp_path / name, (1, 1))
    assert (tmp_path / "one/x.cpio").read_bytes() == (tmp_path / "other/x.cpio").read_bytes()


def test_cpio_that_fails_or_is_missing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/cpio").write_text("#!/bin/sh\necho no such option >&2; exit 2\n")
    (tmp_path / "bin/cpio").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    with pytest.raises(CannotStart, match="cpio cannot pack the initramfs: no such option"):
        initramfs.build(tmp_path / "x.cpio", PILOT, MODULES)
    (tmp_path / "bin/cpio").unlink()
    with pytest.raises(MissingTool, match="install the Debian package cpio"):
        initramfs.build(tmp_path / "x.cpio", PILOT, MODULES)
    assert os.listdir(tmp_path) == ["bin"]
