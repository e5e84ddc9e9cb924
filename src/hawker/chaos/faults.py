"""The ways in which a node is hurt. Each fault does its damage, lasts a while and heals; healing is never left out,
also when the soak is interrupted. What the node makes of it is judged elsewhere.
"""

import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from anyio.to_thread import run_sync

from hawker.chaos.chance import SeededChance
from hawker.chaos.daemon_supervisor import DaemonSupervisor
from hawker.chaos.data_disk import DataDisk
from hawker.chaos.endings import ToldExits, kill, pilot_of, workload_of
from hawker.clock import Clock
from hawker.ids import MachineId
from hawker.value_object import ValueObject

FROZEN_S = 10.0
"""The longest time for which a daemon is stopped."""
_LONGEST_BOOT_S = 4.0
_JUMPS_S = (-21_600.0, -3_600.0, -90.0, -1.5, 0.0, 1.5, 90.0, 3_600.0, 21_600.0)


class FaultTargets(ValueObject, frozen=True):
    """What can be hurt. `data_disk` is None where the data directory has no filesystem of its own; `offset` is the file
    that says by how much the daemon's wall clock is wrong."""

    supervisor: DaemonSupervisor
    data_disk: DataDisk | None
    endings: ToldExits
    offset: Path
    chance: SeededChance
    clock: Clock

    async def while_it_lasts(self, low: float, high: float) -> None:
        await self.clock.sleep(self.chance.between(low, high))

    def pilots(self) -> dict[MachineId, int]:
        """The pilots of the machines that run."""
        machines = self.supervisor.daemon.place.machines
        names = [MachineId(name) for name in sorted(os.listdir(machines))] if machines.is_dir() else []
        return {each: pid for each in names if (pid := pilot_of(machines, each)) is not None}

    def any_pilot(self) -> tuple[MachineId, int] | None:
        found = self.pilots()
        return self.chance.choice(sorted(found.items())) if found else None


class FaultKind(ValueObject, frozen=True):
    """One kind of damage. `grounded`: it needs a filesystem for the data directory alone."""

    name: str
    """As reports have it."""
    inflict: Callable[[FaultTargets], Coroutine[Any, Any, None]]
    grounded: bool = False


# The daemon.


async def _kill_daemon(targets: FaultTargets) -> None:
    await targets.supervisor.kill()
    await targets.while_it_lasts(0, 1.5)
    await targets.supervisor.start()


async def _kill_booting_daemon(targets: FaultTargets) -> None:
    """Again and again, while it takes up what the last one left: that is late in a boot, however slow the host is."""
    usual_s = min(_LONGEST_BOOT_S, (targets.supervisor.tally.boots_ms or [1000.0])[-1] / 1000)
    await targets.supervisor.kill()
    for _ in range(3):
        await run_sync(targets.supervisor.daemon.launch)
        await targets.while_it_lasts(0.3 * usual_s, 1.1 * usual_s)
        await targets.supervisor.kill()
    await targets.supervisor.start()


async def _restart_daemon(targets: FaultTargets) -> None:
    await targets.supervisor.stop()
    await targets.while_it_lasts(0, 1.5)
    await targets.supervisor.start()


async def _freeze_daemon(targets: FaultTargets) -> None:
    """Stops the daemon's process for a while, as a laptop's lid or a hypervisor does. It must not end for it on
    waking."""
    targets.supervisor.signal(signal.SIGSTOP)
    try:
        await targets.while_it_lasts(FROZEN_S / 5, FROZEN_S)
    finally:
        targets.supervisor.signal(signal.SIGCONT)


async def _cut_connections(targets: FaultTargets) -> None:
    for _ in range(3):
        await targets.supervisor.cut()
        await targets.while_it_lasts(0.1, 0.5)


async def _jump(targets: FaultTargets) -> None:
    """To another time, and stay there. Pilots' clocks stay as they were."""
    offset_s = targets.chance.choice(_JUMPS_S)
    draft = targets.offset.with_suffix(".new")
    draft.write_text(str(offset_s))
    draft.rename(targets.offset)
    await targets.while_it_lasts(0.5, 2)


# Machines.


async def _kill_workload(targets: FaultTargets) -> None:
    for machine_id, pilot in targets.pilots().items():
        workload = workload_of(pilot)
        if workload is not None and targets.chance.happens(0.5):
            targets.endings.interfere(machine_id)
            kill(workload, targets.chance.choice((signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM)))
    await targets.while_it_lasts(0, 1)


async def _kill_pilot(targets: FaultTargets) -> None:
    found = targets.any_pilot()
    if found is not None:
        targets.endings.spoilt.add(found[0])
        kill(found[1], signal.SIGKILL)
    await targets.while_it_lasts(0, 1)


async def _freeze_pilot(targets: FaultTargets) -> None:
    found = targets.any_pilot()
    if found is None:
        return
    targets.endings.spoilt.add(found[0])
    kill(found[1], signal.SIGSTOP)
    try:
        await targets.while_it_lasts(1, 8)
    finally:
        if pilot_of(targets.supervisor.daemon.place.machines, found[0]) == found[1]:
            kill(found[1], signal.SIGCONT)


# The disk.


@asynccontextmanager
async def _full(targets: FaultTargets) -> AsyncIterator[None]:
    assert targets.data_disk is not None
    await run_sync(targets.data_disk.fill)
    try:
        yield
    finally:
        targets.data_disk.drain()


@asynccontextmanager
async def _read_only(targets: FaultTargets) -> AsyncIterator[None]:
    assert targets.data_disk is not None
    await run_sync(targets.data_disk.freeze)
    try:
        yield
    finally:
        targets.data_disk.thaw()


async def _fill_disk(targets: FaultTargets) -> None:
    async with _full(targets):
        await targets.while_it_lasts(2, 8)


async def _make_read_only(targets: FaultTargets) -> None:
    async with _read_only(targets):
        await targets.while_it_lasts(2, 8)


async def _stall_disk(targets: FaultTargets) -> None:
    """Every write waits. Reads go on, and so must the calls that need no more."""
    assert targets.data_disk is not None
    await run_sync(targets.data_disk.stall)
    try:
        await targets.while_it_lasts(0.5, 5)
    finally:
        targets.data_disk.go_on()


async def _boot_on_full_disk(targets: FaultTargets) -> None:
    async with _full(targets):
        await _boot_in_need(targets)
    await _back(targets)


async def _boot_on_read_only(targets: FaultTargets) -> None:
    async with _read_only(targets):
        await _boot_in_need(targets)
    await _back(targets)


async def _boot_in_need(targets: FaultTargets) -> None:
    await targets.while_it_lasts(0.5, 1.5)
    await targets.supervisor.kill()
    if await targets.supervisor.try_start():
        await targets.while_it_lasts(1, 4)


async def _boot_under_cover(targets: FaultTargets) -> None:
    """A data directory that was mounted read-only."""
    assert targets.data_disk is not None
    await targets.supervisor.kill()
    await run_sync(targets.data_disk.cover)
    try:
        if await targets.supervisor.try_start():
            targets.supervisor.note("began on a data directory that is mounted read-only")
            await targets.supervisor.kill()
    finally:
        targets.data_disk.uncover()
    await _back(targets)


async def _back(targets: FaultTargets) -> None:
    if not targets.supervisor.wanted:
        await targets.supervisor.start()


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
