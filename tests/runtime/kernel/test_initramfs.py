import os
import threading
from pathlib import Path

from hawker.runtime.kernel import initramfs
from hawker.runtime.kernel.modules import Module
from tests.runtime.kernel.test_cpio import read

PILOT = b"\x7fELF pilot"
MODULES = (Module("virtio", b"one"), Module("virtio_rng", b"two"))


def test_it_is_the_pilot_the_modules_and_their_order_and_nothing_else(tmp_path: Path) -> None:
    initramfs.build(tmp_path / "deep/x.cpio", PILOT, MODULES)
    assert list(read((tmp_path / "deep/x.cpio").read_bytes())) == [
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
            assert len(list(read((tmp_path / "x.cpio").read_bytes()))) == 5

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
