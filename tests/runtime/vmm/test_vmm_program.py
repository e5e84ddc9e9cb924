"""Whether the program of a VMM is one that can be spoken to, and what to do when not."""

from pathlib import Path

import pytest

from hawker.errors import CannotStart
from hawker.runtime.vmm.cloud_hypervisor import CLOUD_HYPERVISOR
from hawker.runtime.vmm.firecracker import FIRECRACKER
from hawker.runtime.vmm.vmm_program import VmmProgram

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def install(path: Path, name: str, script: str) -> None:
    (path / name).write_text(f"#!/bin/sh\n{script}\n")
    (path / name).chmod(0o755)


async def test_one_that_is_missing_says_what_to_install(path: Path) -> None:
    with pytest.raises(
        CannotStart, match=r"firecracker is missing: install Firecracker 1\.16, see docs/firecracker\.md"
    ):
        await FIRECRACKER.check(lambda: "")


@pytest.mark.parametrize(
    ("program", "said", "why"),
    [
        (FIRECRACKER, "Firecracker v1.16.1", ""),
        (FIRECRACKER, "Firecracker v1.14.0-dev", ""),
        (FIRECRACKER, "Firecracker v2.0.0", ""),
        (FIRECRACKER, "Firecracker v1.9.1", r"Firecracker 1\.9 is too old: install 1\.16, or 1\.14 at least"),
        (FIRECRACKER, "usage: hello", "firecracker is no Firecracker: it says 'usage: hello'"),
        (CLOUD_HYPERVISOR, "cloud-hypervisor v53.0", ""),
        (CLOUD_HYPERVISOR, "cloud-hypervisor v50.2", r"Cloud Hypervisor 50\.2 is too old"),
    ],
)
async def test_its_version_has_all_that_is_asked_of_it(path: Path, program: VmmProgram, said: str, why: str) -> None:
    install(path, program.command, f"echo '{said}'; echo more")
    assert await program.version() == said
    if not why:
        await program.check(lambda: "")
        return
    with pytest.raises(CannotStart, match=why):
        await program.check(lambda: "")


async def test_one_that_does_not_run_says_so(path: Path) -> None:
    install(path, "firecracker", "exit 3")
    with pytest.raises(CannotStart, match="does not tell its version"):
        await FIRECRACKER.check(lambda: "")


async def test_without_kvm_another_driver_is_named(path: Path) -> None:
    install(path, "firecracker", "echo Firecracker v1.16.1")
    with pytest.raises(CannotStart, match="needs KVM: no /dev/kvm; choose --driver qemu"):
        await FIRECRACKER.check(lambda: "no /dev/kvm")
