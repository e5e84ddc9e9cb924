"""Facts about invoking crun, seen through a program that stands in for it; the real one runs in test_container.py."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.errors import CannotStart, Unavailable
from hawker.host.cgroup import Cgroups, Hierarchies, find_hierarchies
from hawker.host.mount import mounts
from hawker.ids import InstanceId, MachineId, NodeId
from hawker.runtime.crun import Crun, CrunBundle
from hawker.runtime.oci_bundle import ContainerPlacement, oci_config
from hawker.runtime.spec import InstanceLimits, InstanceSpec

pytestmark = pytest.mark.anyio

MACHINE = MachineId("0123456789abcd")
SPEC = InstanceSpec(
    machine_id=MACHINE,
    instance_id=InstanceId("I1"),
    hostname="web",
    processes=(),
    limits=InstanceLimits(cpus=1, cpu_weight=100, memory_mib=64, pids=40),
    rootfs="/nowhere",
)


@pytest.fixture
def crun(tmp_path: Path) -> Crun:
    return Crun(tmp_path / "state", Cgroups(NodeId("ab12cd34"), Hierarchies({}, tmp_path / "cgroup")))


@pytest.fixture
def grouped(tmp_path: Path, node_id: NodeId) -> Iterator[Crun]:
    """One with the host's control groups."""
    cgroups = Cgroups(node_id, find_hierarchies(mounts()))
    yield Crun(tmp_path / "state", cgroups)
    cgroups.remove(MACHINE)


@pytest.fixture
def bundle(tmp_path: Path, grouped: Crun) -> CrunBundle:
    bundle = CrunBundle(tmp_path / "bundle")
    bundle.directory.mkdir()
    placement = ContainerPlacement(Path("/pilot"), (), (), grouped.cgroups.path_of(MACHINE), cgroup_namespace=True)
    bundle.config.write_bytes(oci_config(SPEC, placement))
    return bundle


def _stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = tmp_path / "bin/crun"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


@pytest.mark.root
async def test_crun_runs_in_the_groups_and_its_pid_is_read_from_the_file_that_it_wrote(
    grouped: Crun, bundle: CrunBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = f"echo 4711 > {bundle.pid}; cp /proc/self/cgroup {tmp_path}/groups; test -e /proc/self/fd/3"
    _stand_in(tmp_path, monkeypatch, script)
    with (tmp_path / "inherited").open("w") as inherited:
        assert await grouped.run(MACHINE, bundle, [inherited.fileno()]) == 4711
    trees = grouped.cgroups.hierarchies.trees()
    assert (tmp_path / "groups").read_text().count(grouped.cgroups.path_of(MACHINE)) == len(trees)
    arguments = (tmp_path / "arguments").read_text()
    assert f"--root {tmp_path}/state" in arguments
    assert "--cgroup-manager disabled" in arguments
    assert f"--preserve-fds 1 --pid-file {bundle.pid} --bundle {bundle.directory} {MACHINE}" in arguments


@pytest.mark.root
@pytest.mark.parametrize(
    "log, reason",
    [(json.dumps({"msg": "no room", "level": "error"}), "no room"), ("no json", "status 3"), ("", "status 3")],
)
async def test_a_failure_tells_the_last_line_of_the_log_and_is_forgotten(
    grouped: Crun, bundle: CrunBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: str, reason: str
) -> None:
    bundle.log.write_text(log)
    _stand_in(tmp_path, monkeypatch, f"mkdir -p {tmp_path}/state/{MACHINE}; exit 3")
    with pytest.raises(Unavailable, match=f"machine {MACHINE}: {reason}"):
        await grouped.run(MACHINE, bundle, [])
    assert not grouped.knows(MACHINE)
    assert MACHINE not in grouped.list()


@pytest.mark.root
async def test_no_file_is_left_below_the_mount_that_is_hidden_from_crun(
    grouped: Crun, bundle: CrunBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stand_in(tmp_path, monkeypatch, f"echo 4711 > {bundle.pid}; mount > {tmp_path}/mounts")
    await grouped.run(MACHINE, bundle, [])
    seen = (tmp_path / "mounts").read_text()
    assert " on /sys/fs/cgroup" in seen
    assert grouped.hidden is None or f" on {grouped.hidden} " not in seen


def test_a_container_is_known_by_its_state_or_its_group(crun: Crun, tmp_path: Path) -> None:
    alone, known = MachineId("00000000000001"), MachineId("00000000000002")
    (tmp_path / "cgroup/hawker-ab12" / alone).mkdir(parents=True)
    (tmp_path / "state" / known).mkdir(parents=True)
    assert crun.list() == [alone, known]
    assert (crun.knows(known), crun.knows(alone)) == (True, False)
    crun.forget(alone)
    crun.forget(known)
    assert crun.list() == []


def test_a_host_without_crun_is_told_what_to_install(crun: Crun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(CannotStart, match="apt-get install crun"):
        crun.find_program()
