"""Which files a machine gets, and a real boot of them: a real kernel unpacks our archive, loads our order of modules,
and starts the pilot, which answers on a serial port."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from hawker.clock import ManualClock
from hawker.errors import CannotStart
from hawker.runtime.kernel import guest_kernel
from hawker.runtime.kernel.guest_kernel import GuestKernel, given_kernel
from hawker.runtime.kernel.kernel_modules import Module, Selection
from hawker.runtime.kernel.kernel_store import KernelStore
from hawker.runtime.pilot.frames import VERSION
from tests.kernel import boot_files, emulation, own_kernels
from tests.runtime.kernel.crafted import bzimage, read_cpio, vmlinux
from tests.runtime.kernel.test_kernel_store import SELECTION, put

_BOOTS_WITHIN_S = 240
_NONCE = b"\xfe\x01ABCDEFGH"
_HELLO = b"\x01\0\0\0\0HWKP" + VERSION.to_bytes(2, "little")


@pytest.fixture
def pilot(tmp_path: Path) -> Path:
    (tmp_path / "pilot").write_bytes(b"\x7fELF pilot")
    return tmp_path / "pilot"


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    return tmp_path / "kernels"


def packed(kernels: Path) -> list[str]:
    return sorted(path.name for path in (kernels / "initramfs").iterdir())


def test_without_a_kernel_it_says_what_to_do(kernels: Path, pilot: Path) -> None:
    with pytest.raises(CannotStart, match="run `hawker kernel import`"):
        GuestKernel(kernels, None, pilot, ManualClock()).files("bzImage")
    assert not kernels.exists()


def test_an_import_counts_from_the_next_start_on(kernels: Path, pilot: Path) -> None:
    guest, store = GuestKernel(kernels, None, pilot, ManualClock()), KernelStore(kernels)
    put(store, "6.1.0")
    assert guest.files("bzImage").release == "6.1.0"
    put(store, "6.2.0")
    assert guest.files("vmlinux").release == "6.2.0" and guest.files("vmlinux").kernel.name == "vmlinux"
    store.choose("6.1.0")
    assert guest.files("bzImage").release == "6.1.0"


def test_kernels_with_the_same_modules_share_an_initramfs(kernels: Path, pilot: Path) -> None:
    guest, store = GuestKernel(kernels, None, pilot, ManualClock()), KernelStore(kernels)
    names = set()
    for release in ("6.1.0", "6.2.0"):
        put(store, release)
        names.add(guest.files("bzImage").initramfs)
    [initramfs] = names
    assert [name for name, _, _ in read_cpio(initramfs.read_bytes())][-1] == "modules/erofs.ko"


def test_an_initramfs_goes_when_neither_pilot_nor_kernel_needs_it(kernels: Path, pilot: Path) -> None:
    guest, store = GuestKernel(kernels, None, pilot, ManualClock()), KernelStore(kernels)
    put(store, "6.1.0")
    first = guest.files("bzImage").initramfs
    put(store, "6.2.0", Selection(modules=SELECTION.modules[:1], lacks=()))
    second = guest.files("bzImage").initramfs
    assert packed(kernels) == sorted([first.name, second.name])
    pilot.write_bytes(b"\x7fELF another")
    third = guest.files("bzImage").initramfs
    assert packed(kernels) == [third.name] and third.name not in (first.name, second.name)


def test_a_kernel_that_is_named_comes_before_all_others(kernels: Path, pilot: Path, tmp_path: Path) -> None:
    put(KernelStore(kernels), "6.2.0")
    (tmp_path / "vmlinux").write_bytes(vmlinux("6.1.0"))
    found = GuestKernel(kernels, tmp_path / "vmlinux", pilot, ManualClock()).files("vmlinux")
    assert (found.release, found.kernel.read_bytes()) == ("6.1.0", vmlinux("6.1.0"))
    assert [each.release for each in KernelStore(kernels).list()] == ["6.2.0"]


def test_lent_files_stay_when_the_kernel_goes(kernels: Path, pilot: Path, tmp_path: Path) -> None:
    guest, store, run = GuestKernel(kernels, None, pilot, ManualClock()), KernelStore(kernels), tmp_path / "run"
    run.mkdir()
    put(store, "6.1.0")
    lent, again = guest.lend("vmlinux", run), guest.lend("vmlinux", run)
    assert lent == again and lent.kernel.samefile(guest.files("vmlinux").kernel)
    initramfs = lent.initramfs.read_bytes()
    store.remove("6.1.0")
    shutil.rmtree(kernels)
    assert (lent.kernel.read_bytes(), lent.initramfs.read_bytes()) == (vmlinux("6.1.0"), initramfs)


def test_files_lent_to_another_disk_are_copies(
    kernels: Path, pilot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    put(KernelStore(kernels), "6.1.0")
    lent = GuestKernel(kernels, None, pilot, ManualClock()).lend("vmlinux", tmp_path)
    assert lent.kernel.read_bytes() == vmlinux("6.1.0") and lent.kernel.stat().st_nlink == 1


def test_a_real_kernel_starts_the_pilot_from_it(tmp_path: Path) -> None:
    qemu = shutil.which("qemu-system-x86_64")
    if qemu is None:
        pytest.skip("qemu-system-x86_64 is not installed")
    files = boot_files("bzImage")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "port"))
        listener.listen()
        command = [qemu, *_machine(tmp_path), "-kernel", str(files.kernel), "-initrd", str(files.initramfs)]
        line = f"console=ttyS0 quiet panic=-1 reboot=t hawker.disks=ledger {emulation()}"
        with subprocess.Popen([*command, "-append", line]) as vm:
            try:
                listener.settimeout(_BOOTS_WITHIN_S)
                with listener.accept()[0] as port:
                    port.settimeout(_BOOTS_WITHIN_S)
                    port.sendall(_NONCE)
                    said = b""
                    while _HELLO not in said and (piece := port.recv(4096)):
                        said += piece
            finally:
                vm.kill()
    assert said.startswith(_NONCE) and _HELLO in said, (tmp_path / "console").read_text(errors="replace")[-2000:]


def _machine(directory: Path) -> list[str]:
    """With the disk and the port that the pilot looks for, which it finds by modules only."""
    (directory / "ledger").write_bytes(bytes(1 << 20))
    return [
        *("-M", "microvm,acpi=on,rtc=on,isa-serial=on,pic=off", "-accel", "tcg,tb-size=64", "-cpu", "max", "-m", "192"),
        *("-nodefaults", "-no-user-config", "-nographic", "-no-reboot", "-serial", f"file:{directory}/console"),
        *("-blockdev", f"driver=raw,node-name=ledger,file.driver=file,file.filename={directory}/ledger"),
        *("-device", "virtio-blk-device,drive=ledger,serial=ledger"),
        *("-device", "virtio-serial-device,id=ports,max_ports=2", "-chardev", f"socket,id=port,path={directory}/port"),
        *("-device", "virtserialport,bus=ports.0,nr=1,chardev=port,name=hawker.0"),
    ]


def test_a_copy_for_one_test_is_its_own(tmp_path: Path) -> None:
    """Of `tests/kernel.py`: what others share is not touched."""
    shared = boot_files("bzImage").kernel
    KernelStore(own_kernels(tmp_path / "own")).remove(shared.parent.name.split("+")[0])
    assert shared.exists() and KernelStore(tmp_path / "own").list() == []


@pytest.fixture
def imported(tmp_path: Path) -> KernelStore:
    return KernelStore(tmp_path / "kernels")


@pytest.fixture
def kept(tmp_path: Path) -> KernelStore:
    return KernelStore(tmp_path / "kernels/given")


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_a_kernel_of_its_own_has_what_it_needs_built_in(
    tmp_path: Path, kept: KernelStore, imported: KernelStore
) -> None:
    file = written(tmp_path / "bzImage", bzimage("6.6.6", payload=vmlinux("6.6.6")))
    found = given_kernel(file, kept, imported, 1.0)
    assert (found.release, found.modules(), found.file("vmlinux").read_bytes()) == ("6.6.6", (), vmlinux("6.6.6"))
    assert found.file("bzImage").read_bytes() == file.read_bytes() and imported.list() == []


def test_modules_are_those_of_the_imported_kernel_of_its_release(
    tmp_path: Path, kept: KernelStore, imported: KernelStore
) -> None:
    put(imported, "6.1.0")
    file = written(tmp_path / "vmlinux", vmlinux("6.1.0", pvh=False))
    assert given_kernel(file, kept, imported, 1.0).modules() == SELECTION.modules
    put(imported, "6.1.0", Selection(modules=(Module("new", b"x"),), lacks=()))
    assert [each.name for each in given_kernel(file, kept, imported, 2.0).modules()] == ["new"]
    imported.remove("6.1.0")
    assert given_kernel(file, kept, imported, 3.0).modules() == ()


def test_named_kernel_is_read_once_while_its_file_is_the_same(
    tmp_path: Path, kept: KernelStore, imported: KernelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path / "vmlinux", vmlinux("6.1.0"))
    first = given_kernel(file, kept, imported, 1.0)
    with monkeypatch.context() as patch:
        patch.setattr(guest_kernel, "read_given", pytest.fail)
        assert given_kernel(file, kept, imported, 2.0) == first
    written(file, vmlinux("6.2.0"))
    os.utime(file, (1, 1))
    assert given_kernel(file, kept, imported, 3.0).release == "6.2.0"


def test_a_file_that_cannot_be_used_is_named(
    tmp_path: Path, kept: KernelStore, imported: KernelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CannotStart, match=r"setting `kernel` names .*/none, which cannot be used: .*No such file"):
        given_kernel(tmp_path / "none", kept, imported, 1.0)
    with pytest.raises(CannotStart, match="not a kernel"):
        given_kernel(written(tmp_path / "text", b"text"), kept, imported, 1.0)
    monkeypatch.setattr(guest_kernel, "MAX_BYTES", 3)
    with pytest.raises(CannotStart, match="larger than"):
        given_kernel(tmp_path / "text", kept, imported, 1.0)
