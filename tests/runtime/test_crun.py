"""Facts about invoking crun, seen through a program that stands in for it; the real one runs in test_container.py."""

import json
from pathlib import Path

import pytest

from hawker.errors import CannotStart, Unavailable
from hawker.host.cgroup import Cgroups, Hierarchies
from hawker.ids import MachineId, NodeId
from hawker.runtime.crun import Crun, CrunBundle

pytestmark = pytest.mark.anyio

MACHINE = MachineId("0123456789abcd")


@pytest.fixture
def crun(tmp_path: Path) -> Crun:
    return Crun(tmp_path / "state", Cgroups(NodeId("ab12cd34"), Hierarchies({}, tmp_path / "cgroup")))


@pytest.fixture
def bundle(tmp_path: Path) -> CrunBundle:
    (tmp_path / "bundle").mkdir()
    return CrunBundle(tmp_path / "bundle")


def _stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = tmp_path / "bin/crun"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


async def test_the_pid_is_read_from_the_file_that_crun_wrote(
    crun: Crun, bundle: CrunBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stand_in(tmp_path, monkeypatch, f"echo 4711 > {bundle.pid}; test -e /proc/self/fd/3")
    with (tmp_path / "inherited").open("w") as inherited:
        assert await crun.run(MACHINE, bundle, [inherited.fileno()]) == 4711
    arguments = (tmp_path / "arguments").read_text()
    assert f"--root {tmp_path}/state" in arguments
    assert f"--preserve-fds 1 --pid-file {bundle.pid} --bundle {bundle.directory} {MACHINE}" in arguments


@pytest.mark.parametrize(
    "log, reason",
    [(json.dumps({"msg": "no room", "level": "error"}), "no room"), ("no json", "status 3"), ("", "status 3")],
)
async def test_a_failure_tells_the_last_line_of_the_log_and_is_forgotten(
    crun: Crun, bundle: CrunBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: str, reason: str
) -> None:
    bundle.log.write_text(log)
    _stand_in(tmp_path, monkeypatch, f"mkdir -p {tmp_path}/state/{MACHINE}; exit 3")
    with pytest.raises(Unavailable, match=f"machine {MACHINE}: {reason}"):
        await crun.run(MACHINE, bundle, [])
    assert not crun.knows(MACHINE)


def test_a_container_is_known_by_its_state_or_its_group(crun: Crun, tmp_path: Path) -> None:
    grouped, known = MachineId("00000000000001"), MachineId("00000000000002")
    (tmp_path / "cgroup/hawker-ab12" / grouped).mkdir(parents=True)
    (tmp_path / "state" / known).mkdir(parents=True)
    assert crun.list() == [grouped, known]
    assert (crun.knows(known), crun.knows(grouped)) == (True, False)
    crun.forget(grouped)
    crun.forget(known)
    assert crun.list() == []


def test_a_host_without_crun_is_told_what_to_install(crun: Crun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(CannotStart, match="apt-get install crun"):
        crun.find_program()
