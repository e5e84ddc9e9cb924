import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hawker.errors import CannotStart, NotFound
from hawker.runtime.kernel import kernel_store
from hawker.runtime.kernel import kernel_store as drafts
from hawker.runtime.kernel.kernel_image import KernelImage, read_image
from hawker.runtime.kernel.kernel_modules import Module, Selection
from hawker.runtime.kernel.kernel_store import Kernel, KernelStore, draft, is_draft, put_directory, put_file, sweep
from hawker.runtime.kernel.tools import MissingTool
from tests.runtime.kernel.crafted import bzimage, read_cpio, vmlinux


def listed(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def test_file_that_is_put_is_there_and_the_draft_is_not(tmp_path: Path) -> None:
    with draft(tmp_path) as work:
        assert is_draft(work.name) and listed(tmp_path) == [work.name]
        (work / "file").write_text("whole")
        (work / "left over").write_text("x")
        put_file(work / "file", tmp_path / "place")
    assert listed(tmp_path) == ["place"] and (tmp_path / "place").read_text() == "whole"


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), draft(tmp_path) as work:
        (work / "half").mkdir()
        raise RuntimeError
    assert listed(tmp_path) == []


def test_a_directory_is_put_once(tmp_path: Path) -> None:
    for content in ("first", "second"):
        with draft(tmp_path) as work:
            (work / "made/deep").mkdir(parents=True)
            (work / "made/deep/file").write_text(content)
            if content == "first":
                put_directory(work / "made", tmp_path / "place")
            else:
                with pytest.raises(OSError, match="not empty"):
                    put_directory(work / "made", tmp_path / "place")
    assert listed(tmp_path) == ["place"] and (tmp_path / "place/deep/file").read_text() == "first"


def test_a_draft_that_somebody_works_in_is_not_swept(tmp_path: Path) -> None:
    with draft(tmp_path) as first, draft(tmp_path) as second:
        sweep(tmp_path)
        assert listed(tmp_path) == sorted([first.name, second.name])


def test_draft_of_a_killed_process_is_swept_by_the_next(tmp_path: Path) -> None:
    code = (
        "import os, sys, pathlib\nfrom hawker.runtime.kernel.kernel_store import draft\n"
        "with draft(pathlib.Path(sys.argv[1])) as work:\n"
        "    (work / 'half').write_text('x')\n    os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == -9 and len(listed(tmp_path)) == 1
    with draft(tmp_path) as work:
        assert listed(tmp_path) == [work.name]


def test_only_drafts_are_swept_and_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").write_text("x")
    (tmp_path / ".draft-link").symlink_to(tmp_path / "kept")
    sweep(tmp_path)
    assert (tmp_path / "kept/file").exists()


def test_a_draft_swept_before_it_was_locked_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its making and its locking it looks abandoned."""
    opened: list[Path] = []

    def swept_first(path: Path) -> int:
        if not opened:
            os.rmdir(path)
        opened.append(path)
        return os.open(path, os.O_RDONLY)

    monkeypatch.setattr(drafts, "_open", swept_first)
    with draft(tmp_path) as work:
        assert work.is_dir() and opened[0] != work == opened[1]


PILOT = b"\x7fELF pilot"
MODULES = (Module("virtio", b"one"), Module("virtio_rng", b"two"))


def test_initramfs_is_the_pilot_the_modules_and_their_order_and_nothing_else(tmp_path: Path) -> None:
    kernel_store.build_initramfs(tmp_path / "deep/x.cpio", PILOT, MODULES)
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
    names = {
        kernel_store.initramfs_name(PILOT, kernel_store.initramfs_digest(each))
        for each in (MODULES, swapped, renamed, ())
    }
    names |= {kernel_store.initramfs_name(b"another", kernel_store.initramfs_digest(MODULES))}
    assert len(names) == 5 and all(name.endswith(".cpio") and "/" not in name for name in names)
    assert kernel_store.initramfs_name(PILOT, kernel_store.initramfs_digest(MODULES)) in names


def test_builders_beside_each_other_make_one_file(tmp_path: Path) -> None:
    together = threading.Barrier(4)

    def build() -> None:
        together.wait()
        for _ in range(10):
            kernel_store.build_initramfs(tmp_path / "x.cpio", PILOT, MODULES)
            assert len(list(read_cpio((tmp_path / "x.cpio").read_bytes()))) == 5

    threads = [threading.Thread(target=build) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert os.listdir(tmp_path) == ["x.cpio"]


def test_those_that_nobody_needs_are_removed(tmp_path: Path) -> None:
    for name in ("used.cpio", "old.cpio"):
        kernel_store.build_initramfs(tmp_path / name, PILOT, ())
    kernel_store.prune_initramfs(tmp_path, ["used.cpio"])
    assert os.listdir(tmp_path) == ["used.cpio"]
    kernel_store.prune_initramfs(tmp_path / "nowhere", [])


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "other"):
        kernel_store.build_initramfs(tmp_path / name / "x.cpio", PILOT, MODULES)
        os.utime(tmp_path / name, (1, 1))
    assert (tmp_path / "one/x.cpio").read_bytes() == (tmp_path / "other/x.cpio").read_bytes()


def test_cpio_that_fails_or_is_missing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/cpio").write_text("#!/bin/sh\necho no such option >&2; exit 2\n")
    (tmp_path / "bin/cpio").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    with pytest.raises(CannotStart, match="cpio cannot pack the initramfs: no such option"):
        kernel_store.build_initramfs(tmp_path / "x.cpio", PILOT, MODULES)
    (tmp_path / "bin/cpio").unlink()
    with pytest.raises(MissingTool, match="install the Debian package cpio"):
        kernel_store.build_initramfs(tmp_path / "x.cpio", PILOT, MODULES)
    assert os.listdir(tmp_path) == ["bin"]


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
    with pytest.raises(NotFound, match=r"no kernel 6\.1\.0 here, and no other: `hawker kernel import`"):
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
