"""Our launcher makes the box that crun makes: the same machine under both, compared from outside and from inside.

crun is here as it is by itself, with the control groups that it makes, so that nothing of ours judges itself.
"""

import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import msgspec
import pytest

import hatch_build
from hawker import guest
from hawker.clock import SystemClock
from hawker.host.cgroup import Cgroups
from hawker.host.spawn import reap, spawn
from hawker.ids import MachineId, new_machine_id
from hawker.runtime.crun import Crun, CrunBundle, make_stage
from hawker.runtime.launcher.launch import BoxLauncher
from hawker.runtime.launcher.launcher_trial import (
    LauncherTrial,
    Observation,
    differences,
    fill_trial_directory,
    observe,
)

pytestmark = [pytest.mark.root, pytest.mark.anyio]

CLOCK = SystemClock()
DEADLINE_S = 240.0


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that tries every system call."""
    place = tmp_path_factory.mktemp("probe") / "probe"
    root = Path(hatch_build.__file__).parent
    compiler = hatch_build.compiler_for(root, hatch_build.guest_target())
    hatch_build.compile_program(root, compiler, [Path(__file__).with_name("probe.c")], place)
    return place


@dataclass(slots=True)
class Machine:
    """One that runs in a directory, with the given program as its first."""

    machine_id: MachineId
    directory: Path
    pid: int

    async def report(self) -> list[str]:
        with anyio.fail_after(DEADLINE_S):
            while not (self.directory / "root/report").exists():
                await CLOCK.sleep(0.05)
        return (self.directory / "root/report").read_text().splitlines()

    async def observed(self, cgroups: Cgroups) -> Observation:
        with anyio.fail_after(DEADLINE_S):
            while not os.readlink(f"/proc/{self.pid}/exe").endswith("/bin/first"):
                await CLOCK.sleep(0.005)
        group = cgroups.path_of(self.machine_id)
        found = observe(self.pid, cgroups.hierarchies, group)
        return {
            about: tuple(line.replace(group, "GROUP").replace(str(self.directory), "HERE") for line in lines)
            for about, lines in found.items()
        }


@asynccontextmanager
async def _running(trial: LauncherTrial, place: Path, program: Path, *, ours: bool) -> AsyncIterator[Machine]:
    machine_id = new_machine_id(CLOCK)
    directory = place / machine_id
    fill_trial_directory(directory, trial.first_id)
    shutil.copy2(program, directory / "root/bin/first")
    try:
        start = _by_us if ours else _by_crun_alone
        yield Machine(machine_id, directory, await start(trial, machine_id, directory, program))
    finally:
        trial.cgroups.remove(machine_id)
        Crun(place / "crun", trial.cgroups).forget(machine_id)


def _with_first(config: bytes, program: Path) -> bytes:
    found = msgspec.json.decode(config)
    found["process"]["args"] = ["/bin/first", *(["sleep", "60"] if program == guest.hello_path() else [])]
    return msgspec.json.encode(found)


async def _by_us(trial: LauncherTrial, machine_id: MachineId, directory: Path, program: Path) -> int:
    launcher = BoxLauncher(trial.cgroups)
    launcher.lay_out(_with_first(trial.machine(machine_id, directory).ours, program), directory)
    return await launcher.run(machine_id, directory, ())


async def _by_crun_alone(trial: LauncherTrial, machine_id: MachineId, directory: Path, program: Path) -> int:
    make_stage()
    crun, bundle = Crun(directory.parent / "crun", trial.cgroups), CrunBundle(directory)
    machine = trial.machine(machine_id, directory)
    bundle.config.write_bytes(_with_first(machine.theirs, program))
    pid = spawn(crun.run_argv(machine_id, bundle, 0), hidden=crun.hidden, stage=machine.stage)
    assert await reap(pid) == 0, bundle.log.read_text()
    return int(bundle.pid.read_text())


async def _answers(trial: LauncherTrial, place: Path, probe: Path) -> tuple[list[str], list[str]]:
    """In our box and in crun's."""
    async with _running(trial, place, probe, ours=True) as ours, _running(trial, place, probe, ours=False) as theirs:
        return await ours.report(), await theirs.report()


def _different(mine: list[str], others: list[str]) -> set[int]:
    return {number for number, (one, other) in enumerate(zip(mine, others, strict=True)) if one != other}


@pytest.fixture
def hung_up() -> Iterator[None]:
    """This process ignores a signal, as a daemon that was started by nohup does."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hung_up")
async def test_from_outside_both_boxes_are_the_same(trial: LauncherTrial, tmp_path: Path) -> None:
    async with (
        _running(trial, tmp_path, guest.hello_path(), ours=True) as ours,
        _running(trial, tmp_path, guest.hello_path(), ours=False) as theirs,
    ):
        mine, others = await ours.observed(trial.cgroups), await theirs.observed(trial.cgroups)
    assert differences(mine, others) == []
    assert len(mine["mounts"]) > 20 and len(mine["limits of the control groups"]) > 4
    assert mine["environment"] == ("HOME=/root", "")


@pytest.mark.slow
async def test_from_inside_every_system_call_and_device_answers_the_same(
    trial: LauncherTrial, tmp_path: Path, probe: Path
) -> None:
    mine, others = await _answers(trial, tmp_path / "once", probe)
    assert len(mine) > 1000
    if different := _different(mine, others):  # one that stood still for a second has no answer: it is asked again
        different &= _different(*await _answers(trial, tmp_path / "again", probe))
    assert [(mine[number], others[number]) for number in sorted(different)] == []
    of_devices = {"mem made 1 opened 2", "null made 1 opened 2"}  # a user namespace makes none
    assert set(mine) >= (of_devices if trial.first_id else {"mem made 0 opened 1", "null made 0 opened 0"})


async def test_a_difference_is_said_in_a_sentence(trial: LauncherTrial, tmp_path: Path) -> None:
    async with _running(trial, tmp_path, guest.hello_path(), ours=True) as ours:
        mine = await ours.observed(trial.cgroups)
    wider = {**mine, "status": (*mine["status"], "CapEff:\tffff")}
    assert differences(mine, wider) == ["status: ours lacks 'CapEff:\\tffff'"]
    reversed_order = {**mine, "mounts": mine["mounts"][::-1]}
    assert differences(mine, reversed_order) == ["mounts: another order or number"]
