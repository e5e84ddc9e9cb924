"""The package's build compiles the guest programs when they are not those of the sources, and only then."""

import os
import subprocess
from pathlib import Path

import pytest

import hatch_build

ROOT = Path(hatch_build.__file__).parent
FOREIGN = pytest.mark.long(
    reason="compiles a libc for another architecture, a minute of a core; the compiler has no short form"
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of four small programs, and a compiler that notes each call."""
    compiler = tmp_path / "cc"
    compiler.write_text(
        f'#!/bin/sh\necho "$@" >>{tmp_path}/calls\nwhile [ "$1" != -o ]; do shift; done\necho made >"$2"\n'
    )
    compiler.chmod(0o755)
    (tmp_path / "guest/launcher").mkdir(parents=True)
    one_file = ("pilot.c", "wire.c", "wire.h", "hello.c", "keeper.c", "userns.c")
    for name in (*one_file, "launcher/launcher.c", "launcher/plan.c"):
        (tmp_path / "guest" / name).touch()
    monkeypatch.setenv("HAWKER_GUEST_CC", str(compiler))
    return tmp_path


def calls(project: Path) -> list[str]:
    return (project / "calls").read_text().splitlines()


def test_each_program_is_made_of_its_sources(project: Path) -> None:
    hatch_build.build_guest(project, "x86_64")
    pilot, hello, keeper, userns, launcher = calls(project)
    assert pilot.endswith(f"{project}/guest/pilot.c {project}/guest/wire.c")
    assert hello.endswith(f"-o {project}/src/hawker/_guest/hello.new {project}/guest/hello.c")
    assert keeper.endswith(f"-o {project}/src/hawker/_guest/keeper.new {project}/guest/keeper.c")
    assert userns.endswith(f"-o {project}/src/hawker/_guest/userns.new {project}/guest/userns.c")
    assert launcher.endswith(f"{project}/guest/launcher/launcher.c {project}/guest/launcher/plan.c")
    assert os.access(project / "src/hawker/_guest/pilot", os.X_OK)


def test_a_guest_up_to_date_is_left_alone(project: Path) -> None:
    for _ in range(3):
        hatch_build.build_guest(project, "x86_64")
    assert len(calls(project)) == 5


@pytest.mark.parametrize("change", ["guest/wire.h", "guest/new.c", "guest/launcher/plan.h", "src/hawker/_guest/hello"])
def test_a_changed_source_or_a_missing_program_is_built_again(project: Path, change: str) -> None:
    hatch_build.build_guest(project, "x86_64")
    changed = project / change
    changed.unlink() if "_guest" in change else changed.write_text("// new\n")
    hatch_build.build_guest(project, "x86_64")
    assert len(calls(project)) == 10


def test_an_unknown_target_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAWKER_GUEST_TARGET", "vax")
    with pytest.raises(SystemExit, match="x86_64 and aarch64, not for vax"):
        hatch_build.guest_target()


@pytest.mark.slow
@pytest.mark.parametrize(
    "target", [pytest.param(each, marks=[] if each == os.uname().machine else FOREIGN) for each in hatch_build.TARGETS]
)
def test_the_programs_compile_for_every_target(tmp_path: Path, target: str) -> None:
    compiler = hatch_build.compiler_for(ROOT, target)
    for name in hatch_build.program_names():
        hatch_build.compile_program(ROOT, compiler, hatch_build.sources_of(ROOT, name), tmp_path / name)
        machine = int.from_bytes((tmp_path / name).read_bytes()[18:20], "little")
        assert machine == {"x86_64": 62, "aarch64": 183}[target]
    if target == os.uname().machine:
        assert subprocess.run([tmp_path / "hello", "exit", "3"], check=False).returncode == 3
