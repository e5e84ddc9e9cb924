from pathlib import Path

import pytest

from hawker.runtime.kernel import modinfo
from hawker.runtime.kernel.modinfo import module_name, read_modinfo, read_module
from tests.runtime.kernel.crafted import elf, module


def test_a_module_says_what_it_is_of_and_what_it_needs() -> None:
    soft = "pre: crc32c-intel crc32c post: later pre: xxhash"
    info = read_modinfo(module("6.1.0", needs="virtio,virtio-ring", soft=soft, aliases=("fs-erofs", "crypto-*")))
    assert info.release == "6.1.0"
    assert info.needs == ("virtio", "virtio_ring")
    assert info.first == ("crc32c_intel", "crc32c", "xxhash")
    assert info.aliases == ("fs-erofs", "crypto-*")


def test_a_module_that_needs_nothing() -> None:
    info = read_modinfo(module())
    assert (info.needs, info.first, info.aliases) == ((), (), ())


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("virtio-rng.ko", "virtio_rng"),
        ("erofs.ko.xz", "erofs"),
        ("erofs.ko.zst", "erofs"),
        ("erofs.ko.gz", "erofs"),
        ("erofs.o", None),
        (".ko", None),
        ("a\nb.ko", None),
        ("a b.ko", None),
        ("ä.ko", None),
        ("n" * 56 + ".ko", None),
    ],
)
def test_a_files_name_is_its_modules(file: str, name: str | None) -> None:
    assert module_name(file) == name


@pytest.mark.parametrize("data", [b"", b"text", elf(sections={b".text": b"a=b"})])
def test_what_is_no_module_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"no kernel module|not an ELF file"):
        read_modinfo(data)


def test_a_file_that_cannot_be_unpacked_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.ko.xz").write_bytes(b"\xfd7zXZ\0" + b"damaged")
    with pytest.raises(ValueError, match=r"bad\.ko\.xz: damaged"):
        read_module(tmp_path / "bad.ko.xz")
    monkeypatch.setattr(modinfo, "MAX_BYTES", 10)
    with pytest.raises(ValueError, match=r"bad\.ko\.xz is larger"):
        read_module(tmp_path / "bad.ko.xz")
