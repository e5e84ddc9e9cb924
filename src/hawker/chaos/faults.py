"""The ways in which a node is hurt. Each fault does its damage, lasts a while and heals; healing is never left out,
also when the soak is interrupted. What the node makes of it is judged elsewhere.
"""

import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyio.to_thread import run_sync

from hawker.chaos.chance import SeededChance
from hawker.chaos.daemon_supervisor import DaemonSupervisor
from hawker.chaos.data_disk import DataDisk
from hawker.chaos.endings import ToldExits, kill, pilot_of, workload_of
from hawker.clock import Clock
from hawker.ids import MachineId

FROZEN_S = 10.0
"""The longest time for which a daemon is stopped."""
_LONGEST_BOOT_S = 4.0
_JUMPS_S = (-21_600.0, -3_600.0, -90.0, -1.5, 0.0, 1.5, 90.0, 3_600.0, 21_600.0)


@dataclass(frozen=True, slots=True)
class FaultTargets:
    """What can be hurt. `ground` is None where the data directory has no filesystem of its own; `offset` is the file
    that says by how much the daemon's wall clock is wrong."""

    keeper: DaemonSupervisor
    ground: DataDisk | None
    endings: ToldExits
    offset: Path
    chance: SeededChance
    clock: Clock

    async def while_it_lasts(self, low: float, high: float) -> None:
        await self.clock.sleep(self.chance.between(low, high))

    def pilots(self) -> dict[MachineId, int]:
        """Of the machines that run."""
        machines = self.keeper.daemon.place.machines
        names = [MachineId(name) for name in sorted(os.listdir(machines))] if machines.is_dir() else []
        return {each: pid for each in names if (pid := pilot_of(machines, each)) is not None}

    def any_pilot(self) -> tuple[MachineId, int] | None:
        found = self.pilots()
        return self.chance.choice(sorted(found.items())) if found else None


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One kind of damage. `grounded`: it needs a filesystem for the data directory alone."""

    name: str
    inflict: Callable[[FaultTargets], Coroutine[Any, Any, None]]
    grounded: bool = False


# The daemon.


async def _kill_daemon(scene: FaultTargets) -> None:
    await scene.keeper.kill()
    await scene.while_it_lasts(0, 1.5)
    await scene.keeper.start()


async def _kill_booting_daemon(scene: FaultTargets) -> None:
    """Again and again, while it takes up what the last one left: that is late in a boot, however slow the host is."""
    usual_s = min(_LONGEST_BOOT_S, (scene.keeper.tally.boots_ms or [1000.0])[-1] / 1000)
    await scene.keeper.kill()
    for _ in range(3):
        await run_sync(scene.keeper.daemon.launch)
        await scene.while_it_lasts(0.3 * usual_s, 1.1 * usual_s)
        await scene.keeper.kill()
    await scene.keeper.start()


async def _restart_daemon(scene: FaultTargets) -> None:
    await scene.keeper.stop()
    await scene.while_it_lasts(0, 1.5)
    await scene.keeper.start()


async def _freeze_daemon(scene: FaultTargets) -> None:
    """As a laptop's lid or a hypervisor's pause would. It must not end for it on waking."""
    scene.keeper.signal(signal.SIGSTOP)
    try:
        await scene.while_it_lasts(FROZEN_S / 5, FROZEN_S)
    finally:
        scene.keeper.signal(signal.SIGCONT)


async def _cut_connections(scene: FaultTargets) -> None:
    for _ in range(3):
        await scene.keeper.cut()
        await scene.while_it_lasts(0.1, 0.5)


async def _jump(scene: FaultTargets) -> None:
    """To another time, and stay there. Pilots' clocks stay as they were."""
    offset_s = scene.chance.choice(_JUMPS_S)
    draft = scene.offset.with_suffix(".new")
    draft.write_text(str(offset_s))
    draft.rename(scene.offset)
    await scene.while_it_lasts(0.5, 2)


# Machines.


async def _kill_workload(scene: FaultTargets) -> None:
    for machine_id, pilot in scene.pilots().items():
        workload = workload_of(pilot)
        if workload is not None and scene.chance.happens(0.5):
            scene.endings.interfere(machine_id)
            kill(workload, scene.chance.choice((signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM)))
    await scene.while_it_lasts(0, 1)


async def _kill_pilot(scene: FaultTargets) -> None:
    found = scene.any_pilot()
    if found is not None:
        scene.endings.spoilt.add(found[0])
        kill(found[1], signal.SIGKILL)
    await scene.while_it_lasts(0, 1)


async def _freeze_pilot(scene: FaultTargets) -> None:
    found = scene.any_pilot()
    if found is None:
        return
    scene.endings.spoilt.add(found[0])
    kill(found[1], signal.SIGSTOP)
    try:
        await scene.while_it_lasts(1, 8)
    finally:
        if pilot_of(scene.keeper.daemon.place.machines, found[0]) == found[1]:
            kill(found[1], signal.SIGCONT)


# The disk.


@asynccontextmanager
async def _full(scene: FaultTargets) -> AsyncIterator[None]:
    assert scene.ground is not None
    await run_sync(scene.ground.fill)
    try:
        yield
    finally:
        scene.ground.drain()


@asynccontextmanager
async def _read_only(scene: FaultTargets) -> AsyncIterator[None]:
    assert scene.ground is not None
    await run_sync(scene.ground.freeze)
    try:
        yield
    finally:
        scene.ground.thaw()


async def _fill_disk(scene: FaultTargets) -> None:
    async with _full(scene):
        await scene.while_it_lasts(2, 8)


async def _make_read_only(scene: FaultTargets) -> None:
    async with _read_only(scene):
        await scene.while_it_lasts(2, 8)


async def _stall_disk(scene: FaultTargets) -> None:
    """Every write waits. Reads go on, and so must the calls that need no more."""
    assert scene.ground is not None
    await run_sync(scene.ground.stall)
    try:
        await scene.while_it_lasts(0.5, 5)
    finally:
        scene.ground.go_on()


async def _boot_on_full_disk(scene: FaultTargets) -> None:
    async with _full(scene):
        await _boot_in_need(scene)
    await _back(scene)


async def _boot_on_read_only(scene: FaultTargets) -> None:
    async with _read_only(scene):
        await _boot_in_need(scene)
    await _back(scene)


async def _boot_in_need(scene: FaultTargets) -> None:
    await scene.while_it_lasts(0.5, 1.5)
    await scene.keeper.kill()
    if await scene.keeper.try_start():
        await scene.while_it_lasts(1, 4)


async def _boot_under_cover(scene: FaultTargets) -> None:
    """A data directory that was mounted read-only."""
    assert scene.ground is not None
    await scene.keeper.kill()
    await run_sync(scene.ground.cover)
    try:
        if await scene.keeper.try_start():
            scene.keeper.note("began on a data directory that is mounted read-only")
            await scene.keeper.kill()
    finally:
        scene.ground.uncover()
    await _back(scene)


async def _back(scene: FaultTargets) -> None:
    if not scene.keeper.wanted:
        await scene.keeper.start()


HURTS: tuple[FaultKind, ...] = (
    FaultKind("daemon killed", _kill_daemon),
    FaultKind("daemon killed while it boots", _kill_booting_daemon),
    FaultKind("daemon restarted", _restart_daemon),
    FaultKind("daemon stopped for a while", _freeze_daemon),
    FaultKind("connections cut", _cut_connections),
    FaultKind("clock jumps", _jump),
    FaultKind("workloads killed", _kill_workload),
    FaultKind("pilot killed", _kill_pilot),
    FaultKind("pilot stopped for a while", _freeze_pilot),
    FaultKind("disk stalls", _stall_disk, grounded=True),
    FaultKind("disk full", _fill_disk, grounded=True),
    FaultKind("boot on a full disk", _boot_on_full_disk, grounded=True),
    FaultKind("data directory read-only", _make_read_only, grounded=True),
    FaultKind("boot on files that cannot be written", _boot_on_read_only, grounded=True),
    FaultKind("boot on a read-only mount", _boot_under_cover, grounded=True),
)
