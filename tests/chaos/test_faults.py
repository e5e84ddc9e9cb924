"""What is inflicted heals, also when it is interrupted; a stand-in takes the daemon's place."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import anyio
import pytest

from hawker.chaos.chance import SeededChance
from hawker.chaos.daemon_supervisor import DaemonSupervisor
from hawker.chaos.endings import ToldExits
from hawker.chaos.faults import HURTS, FaultKind, FaultTargets
from hawker.clock import ShiftedClock, SystemClock
from hawker.place import Place
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


class Patient:
    """As much of a keeper as a fault needs that touches one process."""

    def __init__(self, directory: Path, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.daemon = self
        self.place = Place(directory)
        self.cuts = 0

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def cut(self) -> None:
        self.cuts += 1

    @property
    def state(self) -> str:
        """proc(5): R, S, T for stopped."""
        return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(") ")[2][0]


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Patient]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield Patient(tmp_path, process)
        process.kill()


@pytest.fixture
def targets(tmp_path: Path, patient: Patient) -> FaultTargets:
    endings = ToldExits(tmp_path, SeededChance(1), networked=False)
    return FaultTargets(
        cast(DaemonSupervisor, patient), None, endings, tmp_path / "offset", SeededChance(1), SystemClock()
    )


def hurt(name: str) -> FaultKind:
    return next(hurt for hurt in HURTS if hurt.name == name)


async def test_a_daemon_goes_on_though_the_soak_is_interrupted_while_it_stands(
    targets: FaultTargets, patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hawker.chaos.faults.FROZEN_S", 3600.0)  # so that it is seen to stand
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hurt("daemon stopped for a while").inflict, targets)
        await eventually(lambda: patient.state == "T")
        tasks.cancel_scope.cancel()
    await eventually(lambda: patient.state != "T")


async def test_a_clock_jumps_and_stays_there(targets: FaultTargets) -> None:
    moved, host = ShiftedClock(targets.offset), SystemClock()
    seen = set()
    for _ in range(6):
        with anyio.move_on_after(0.01):
            await hurt("clock jumps").inflict(targets)
        seen.add(round(moved.now() - host.now(), 1))
    assert len(seen) > 2 and max(map(abs, seen)) > 60


async def test_connections_are_cut(targets: FaultTargets, patient: Patient) -> None:
    await hurt("connections cut").inflict(targets)
    assert patient.cuts == 3


async def test_fault_without_target_is_no_error(targets: FaultTargets) -> None:
    for name in ("pilot killed", "pilot stopped for a while", "workloads killed"):
        await hurt(name).inflict(targets)
    assert targets.endings.spoilt == set()


def test_all_that_was_asked_for_is_there_and_only_the_disk_needs_a_ground() -> None:
    names = [hurt.name for hurt in HURTS]
    assert len(set(names)) == len(names) == 15
    assert all(hurt.grounded == any(word in hurt.name for word in ("disk", "read-only", "written")) for hurt in HURTS)
