"""Facts about what a program needs of the host to run elsewhere."""

import shutil
from pathlib import Path

import pytest

from hawker import guest
from hawker.errors import CannotStart
from hawker.runtime.vmm.contract import JailGrant
from hawker.runtime.vmm.crun_jail import ProgramFiles

SHELL = Path("/bin/sh")


def test_a_program_needs_itself_its_libraries_and_nothing_more() -> None:
    needed = {grant.source for grant in ProgramFiles().of(SHELL)}
    assert SHELL in needed
    assert any(path.name.startswith(("libc.", "libc-", "ld-musl")) for path in needed)
    assert all(path.exists() for path in needed)
    assert len(needed) < 10


def test_everything_is_read_only_and_where_the_program_looks_for_it() -> None:
    assert all(
        grant == JailGrant(grant.source, str(grant.source), writable=False) for grant in ProgramFiles().of(SHELL)
    )


def test_a_static_program_needs_itself_alone() -> None:
    assert [grant.source for grant in ProgramFiles().of(guest.pilot_path())] == [guest.pilot_path()]


@pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="QEMU is not on this host")
def test_qemu_has_its_firmware() -> None:
    program = Path(shutil.which("qemu-system-x86_64") or "")
    needed = [grant.source for grant in ProgramFiles().of(program)]
    assert any((path / "bios-microvm.bin").exists() for path in needed if path.is_dir())
    assert not any(path in (Path("/"), Path("/usr"), Path("/usr/lib"), Path("/etc")) for path in needed)


def test_a_trial_is_made_again_when_a_file_is_another_one(tmp_path: Path) -> None:
    program, needs = tmp_path / "program", ProgramFiles()
    shutil.copy(guest.pilot_path(), program)
    assert len(needs.of(program)) == 1
    program.unlink()
    shutil.copy(SHELL.resolve(), program)
    assert len(needs.of(program)) > 1


def test_a_missing_library_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ldd = tmp_path / "ldd"
    ldd.write_text("#!/bin/sh\necho '\tlibfoo.so.1 => not found'\n")
    ldd.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotStart, match=r"lacks a library.*libfoo"):
        ProgramFiles().of(SHELL)


def test_a_host_without_ldd_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(CannotStart, match="apt-get install libc-bin"):
        ProgramFiles().of(SHELL)
