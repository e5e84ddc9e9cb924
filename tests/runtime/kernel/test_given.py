import os
from pathlib import Path

import pytest

from hawker.errors import CannotStart
from hawker.runtime.kernel import given
from hawker.runtime.kernel.given import given_kernel
from hawker.runtime.kernel.modules import Module, Selection
from hawker.runtime.kernel.shelf import Shelf
from tests.runtime.kernel.crafted import bzimage, vmlinux
from tests.runtime.kernel.test_shelf import SELECTION, put


@pytest.fixture
def imported(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "kernels")


@pytest.fixture
def kept(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "kernels/given")


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_a_kernel_of_its_own_has_what_it_needs_built_in(tmp_path: Path, kept: Shelf, imported: Shelf) -> None:
    file = written(tmp_path / "bzImage", bzimage("6.6.6", payload=vmlinux("6.6.6")))
    found = given_kernel(file, kept, imported, 1.0)
    assert (found.release, found.modules(), found.file("vmlinux").read_bytes()) == ("6.6.6", (), vmlinux("6.6.6"))
    assert found.file("bzImage").read_bytes() == file.read_bytes() and imported.list() == []


def test_modules_are_those_of_the_imported_kernel_of_its_release(tmp_path: Path, kept: Shelf, imported: Shelf) -> None:
    put(imported, "6.1.0")
    file = written(tmp_path / "vmlinux", vmlinux("6.1.0", pvh=False))
    assert given_kernel(file, kept, imported, 1.0).modules() == SELECTION.modules
    put(imported, "6.1.0", Selection(modules=(Module("new", b"x"),), lacks=()))
    assert [each.name for each in given_kernel(file, kept, imported, 2.0).modules()] == ["new"]
    imported.remove("6.1.0")
    assert given_kernel(file, kept, imported, 3.0).modules() == ()


def test_it_is_read_once_for_as_long_as_it_is_the_same_file(
    tmp_path: Path, kept: Shelf, imported: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path / "vmlinux", vmlinux("6.1.0"))
    first = given_kernel(file, kept, imported, 1.0)
    with monkeypatch.context() as patch:
        patch.setattr(given, "read_given", pytest.fail)
        assert given_kernel(file, kept, imported, 2.0) == first
    written(file, vmlinux("6.2.0"))
    os.utime(file, (1, 1))
    assert given_kernel(file, kept, imported, 3.0).release == "6.2.0"


def test_a_file_that_cannot_be_used_is_named(
    tmp_path: Path, kept: Shelf, imported: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CannotStart, match=r"setting `kernel` names .*/none, which cannot be used: .*No such file"):
        given_kernel(tmp_path / "none", kept, imported, 1.0)
    with pytest.raises(CannotStart, match="not a kernel"):
        given_kernel(written(tmp_path / "text", b"text"), kept, imported, 1.0)
    monkeypatch.setattr(given, "MAX_BYTES", 3)
    with pytest.raises(CannotStart, match="larger than"):
        given_kernel(tmp_path / "text", kept, imported, 1.0)
