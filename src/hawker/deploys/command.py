"""The release command: a machine of its own, ordered once for each deploy, whose program must exit with 0 before any
machine is changed. Its output is in the app's logs.
"""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from msgspec.structs import replace

from hawker.api.contract.machine import Machine
from hawker.deploys.health_gates import exit_of
from hawker.deploys.moves import LOOK_S, Moves, SlotFailed, SlotSkipped
from hawker.deploys.plan import COMMAND_GROUP
from hawker.machine import GONE, State
from hawker.record.deploy import ReleaseCommand, SlotKind, SlotRecord

Work: TypeAlias = Callable[[Moves], Awaitable[None]]

KILLED = 137
_BESIDE = -1
"""The number of what is no slot."""


async def run_release_command(deploy: Moves) -> None:
    """Raises `SlotFailed` unless it exits with 0. What became of it is written down before its machine goes."""
    command = deploy.record.command
    if command is None:
        return
    await deploy.until_resumed()
    slot = _slot(command, deploy.clock.now())
    if command.exit_code is None:
        await deploy.say("the release command runs")
        if not command.machine:
            config, region = command.config, command.region
            made = await deploy.again(slot, lambda: deploy.order_beside(config, region, "command"))
            command = await _noted(deploy, replace(command, machine=made.id))
            deploy.reach("ordered")
        exit_code = await _ended(deploy, _slot(command, deploy.clock.now()), command.timeout_s)
        command = await _noted(deploy, replace(command, exit_code=exit_code))
    await _remove(deploy, _slot(command, deploy.clock.now()))
    if command.exit_code:
        said = f"timed out after {command.timeout_s:g} s" if command.exit_code == KILLED else "failed"
        raise SlotFailed(slot, f"the release command {said}, with status {command.exit_code}: see the app's logs")


async def _ended(deploy: Moves, slot: SlotRecord, timeout_s: float) -> int:
    """Its exit status. Raises `SlotFailed` when that will never be known."""
    deadline = deploy.clock.monotonic() + timeout_s
    while True:
        try:
            machine = await deploy.again(slot, lambda: deploy.get(slot))
        except SlotSkipped as lost:
            raise SlotFailed(slot, f"the release command's outcome is not known: {lost.text}") from lost
        found = _exit_status(machine)
        if found is not None:
            return found
        if machine.state in GONE:
            raise SlotFailed(slot, "the release command's outcome is not known: its machine is gone")
        if machine.state is State.FAILED:
            why = next((event.error for event in machine.events if event.error), "its machine did not start")
            raise SlotFailed(slot, f"the release command was not run: {why}")
        if deploy.clock.monotonic() >= deadline:
            return KILLED
        await deploy.clock.sleep(LOOK_S)


def _exit_status(machine: Machine) -> int | None:
    for event in machine.events:
        ended = exit_of(event)
        if ended is not None:
            return ended.exit_code or (1 if ended.reason or ended.fault else 0)
    return None


async def _remove(deploy: Moves, slot: SlotRecord) -> None:
    try:
        await deploy.again(slot, lambda: deploy.delete(slot))
    except SlotSkipped:
        return


async def _noted(deploy: Moves, command: ReleaseCommand) -> ReleaseCommand:
    await deploy.table.store.write(lambda tx: deploy.table.change(tx, deploy.app, deploy.version, command=command))
    await deploy.term.keep()
    return command


def _slot(command: ReleaseCommand, now: float) -> SlotRecord:
    return SlotRecord(
        number=_BESIDE,
        kind=SlotKind.UPDATE if command.machine else SlotKind.CREATE,
        group=COMMAND_GROUP,
        region=command.region,
        machine=command.machine,
        at=now,
    )
