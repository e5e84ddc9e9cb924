import os
import subprocess
import sys
from pathlib import Path

import pytest

from hawker.errors import NotFound
from hawker.runtime.kernel.kernel_image import KernelImage, read_image
from hawker.runtime.kernel.kernel_modules import Module, Selection
from hawker.runtime.kernel.kernel_store import Kernel, KernelStore
from tests.runtime.kernel.crafted import bzimage, vmlinux

SELECTION = Selection(modules=(Module("virtio", b"one"), Module("erofs", b"two")), lacks=("virtio_rng",))


def kernel(release: str) -> KernelImage:
    return read_image(bzimage(release, payload=vmlinux(release)))


def put(store: KernelStore, release: str, selection: Selection = SELECTION, now: float = 1.0) -> Kernel:
    return store.put(kernel(release), selection, "a test", now)


def releases(store: KernelStore) -> list[str]:
    return [each.release for each in store.list()]


@pytest.fixture
def store(tmp_path: Path) -> KernelStore:
    return KernelStore(tmp_path / "kernels")


def test_kernel_that_was_put_is_read_back(store: KernelStore) -> None:
    put(store, "6.1.0")
    [found] = store.list()
    assert (found.release, found.record.origin, found.record.imported_at) == ("6.1.0", "a test", 1.0)
    assert found.file("bzImage").read_bytes() == kernel("6.1.0").boot
    assert found.file("vmlinux").read_bytes() == vmlinux("6.1.0") and found.record.pvh
    assert found.modules() == SELECTION.modules and found.record.lacks == ("virtio_rng",)
    files = [path for path in found.directory.rglob("*") if path.is_file()]
    assert found.size() == sum(path.stat().st_size for path in files)
    assert {path.stat().st_mode & 0o777 for path in files} == {0o644}


def test_an_image_that_is_both_is_kept_once(store: KernelStore) -> None:
    found = store.put(read_image(vmlinux("6.1.0")), SELECTION, "a test", 1.0)
    assert found.file("vmlinux") == found.file("bzImage") and found.file("vmlinux").read_bytes() == vmlinux("6.1.0")


def test_the_same_again_is_no_change(store: KernelStore) -> None:
    first = put(store, "6.1.0")
    before = first.file("bzImage").stat()
    assert put(store, "6.1.0").directory == first.directory
    after = first.file("bzImage").stat()  # its time of reading may change
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns) and releases(store) == ["6.1.0"]


def test_another_of_the_same_release_takes_its_place(store: KernelStore, tmp_path: Path) -> None:
    put(store, "6.1.0")
    second = put(store, "6.1.0", Selection(modules=(), lacks=()), now=2.0)
    assert [each.directory for each in store.list()] == [second.directory]
    assert os.listdir(tmp_path / "kernels") == [second.directory.name]


def test_the_newest_release_is_the_current_one_as_people_count(store: KernelStore) -> None:
    assert store.current() is None and store.list() == []
    for release in ("6.9.12-amd64", "6.10.2-amd64", "6.10-rc1", "5.99.0", "6.10.2-1-amd64"):
        put(store, release)
    assert releases(store)[-2:] == ["6.9.12-amd64", "5.99.0"] and releases(store)[0].startswith("6.10.2")
    current = store.current()
    assert current is not None and current.release == releases(store)[0]


def test_a_chosen_one_is_the_current_one_until_it_is_removed(store: KernelStore) -> None:
    put(store, "6.1.0")
    put(store, "6.2.0")
    store.choose("6.1.0")
    assert (store.chosen(), getattr(store.current(), "release", None)) == ("6.1.0", "6.1.0")
    store.remove("6.1.0")
    assert (store.chosen(), getattr(store.current(), "release", None)) == (None, "6.2.0")
    store.choose("6.2.0")
    store.choose(None)
    store.choose(None)
    assert store.chosen() is None


def test_one_that_is_not_there(store: KernelStore) -> None:
    with pytest.raises(NotFound, match=r"no kernel 6\.1\.0 here; there is: none"):
        store.remove("6.1.0")
    put(store, "6.2.0")
    for change in (store.choose, store.remove):
        with pytest.raises(NotFound, match=r"there is: 6\.2\.0"):
            change("6.1.0")
    assert releases(store) == ["6.2.0"]


def test_a_damaged_record_costs_its_own_kernel_only(store: KernelStore, caplog: pytest.LogCaptureFixture) -> None:
    damaged = put(store, "6.3.0").directory
    put(store, "6.2.0")
    (damaged / "record.json").write_text("{")
    assert releases(store) == ["6.2.0"] and "kernel cannot be read" in caplog.text
    put(store, "6.3.0")
    assert releases(store) == ["6.3.0", "6.2.0"]


def test_a_damaged_kernel_is_mended_by_importing_it_again(store: KernelStore) -> None:
    found = put(store, "6.1.0", now=1.0)
    found.file("vmlinux").write_bytes(b"short")
    assert put(store, "6.1.0", now=2.0).record.imported_at == 2.0
    assert found.file("vmlinux").read_bytes() == vmlinux("6.1.0")
    (found.directory / "modules/erofs.ko").unlink()
    assert put(store, "6.1.0").modules() == SELECTION.modules


_PUT = """
import os, sys, pathlib
from hawker.runtime.kernel.kernel_store import KernelStore
from tests.runtime.kernel.test_kernel_store import put
calls = 0
def dying(real):
    def call(*arguments, **options):
        global calls
        calls += 1
        if calls == int(sys.argv[2]):
            os.kill(os.getpid(), 9)
        return real(*arguments, **options)
    return call
os.fsync, os.rename, os.mkdir = dying(os.fsync), dying(os.rename), dying(os.mkdir)
put(KernelStore(pathlib.Path(sys.argv[1])), "6.1.0", now=float(calls))
print("whole")
"""


def test_an_import_that_is_killed_anywhere_is_whole_or_not_there(tmp_path: Path) -> None:
    """Killed at every directory that is made, every sync and every rename, in turn."""
    said = b""
    for moment in range(1, 40):
        directory = tmp_path / str(moment)
        command = [sys.executable, "-c", _PUT, str(directory), str(moment)]
        said = subprocess.run(command, check=False, capture_output=True).stdout
        store = KernelStore(directory)
        assert all(each.modules() == SELECTION.modules for each in store.list())
        put(store, "6.1.0")
        assert releases(store) == ["6.1.0"] and len(os.listdir(directory)) == 1, f"killed at {moment}"
        if said:
            break
    assert said == b"whole\n" and moment > 8


def test_a_removal_that_is_cut_short_leaves_no_kernel(store: KernelStore, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store, "6.1.0")
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
    store.remove("6.1.0")
    assert releases(store) == []
    monkeypatch.undo()
    put(store, "6.1.0")
    assert releases(store) == ["6.1.0"]
