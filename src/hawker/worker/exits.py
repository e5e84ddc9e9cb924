"""What follows when an instance has ended: the exit recorded once, and the machine's next state.

Both the supervisor and the flows that stop an instance come here; whoever is first records the exit, the other finds it
recorded. Runs inside the transaction of whoever calls.
"""

import msgspec

from hawker.config import restart_policy
from hawker.ids import InstanceId
from hawker.machine import Restart, State, after_exit
from hawker.record.machine import Detail, MachineRecord
from hawker.runtime.driver import Exit
from hawker.store.contract import Tx
from hawker.value_object import ValueObject
from hawker.worker.capacity import at_rest
from hawker.worker.table import Happened, MachineTable

HELD = frozenset({State.SUSPENDING, State.SUSPENDED})
"""States in which the instance cannot end by itself: it was lost, with its host or by somebody's hand. The machine was
to be off, so it stays off."""

_COLD = "it was suspended: the next start is a cold one"
_COLD_NOW = "it could not be resumed and is started cold: its disks are as they were, its memory is lost"

ON_PURPOSE = frozenset({State.STOPPING, State.RESTARTING, State.UPDATING, State.REPLACING, State.DESTROYING})
"""States in which a flow ends the instance; its exit is a requested stop and the flow decides what is next."""


class Followup(ValueObject, frozen=True):
    """The decision about an exit: nothing (a flow is at it), start again after a delay, destroy, or tidy up and
    rest."""

    record: MachineRecord
    restart_after_s: float | None = None
    """The seconds until the next start, 0 or more; None for no start."""
    destroy: bool = False
    """The config says `auto_destroy`, and no start follows."""
    rest: bool = False
    """No start follows, and the machine stays: what its instance had on the host goes."""


def already_recorded(record: MachineRecord, instance_id: InstanceId) -> bool:
    running = record.running
    return running is None or running.instance_id != instance_id or running.exit is not None


def record_exit(
    tx: Tx, table: MachineTable, record: MachineRecord, instance_id: InstanceId, exit: Exit
) -> Followup | None:
    """Record how an instance ended and decide what is next; None when that was done before."""
    if already_recorded(record, instance_id):
        return None
    assert record.running is not None
    running = msgspec.structs.replace(record.running, exit=exit, pid=None)
    if record.state in ON_PURPOSE:
        event = _event(exit, requested=True, restart=None, count=record.restarts)
        return Followup(record=table.change(tx, record, event, running=running))
    if record.state in HELD:
        event = _event(exit, requested=False, restart=None, count=record.restarts, error=_COLD)
        rested = table.change(tx, record, event, running=running, state=State.STOPPED, holds=at_rest(record))
        return Followup(record=rested, rest=True)
    if is_resuming(record) and exit.fault:
        restart = Restart(delay_s=0.0, count=record.restarts)  # a start was asked for, whatever the policy
        event = _event(exit, requested=False, restart=restart, count=restart.count, error=_COLD_NOW)
        return Followup(record=table.change(tx, record, event, running=running), restart_after_s=0.0)
    restart = _decide(record, exit)
    event = _event(exit, requested=False, restart=restart, count=restart.count)
    if restart.delay_s is not None:
        changed = table.change(tx, record, event, running=running, restarts=restart.count, state=State.STARTING)
        return Followup(record=changed, restart_after_s=restart.delay_s)
    destroy = bool(record.config.auto_destroy)
    changed = table.change(
        tx,
        record,
        event,
        running=running,
        restarts=restart.count,
        state=State.DESTROYING if destroy else State.STOPPED,
        holds=at_rest(record),
    )
    return Followup(record=changed, destroy=destroy, rest=not destroy)


def is_resuming(record: MachineRecord) -> bool:
    """Whether it is being started with the instance that it was suspended with: that of any other start is another."""
    running = record.running
    began = running is not None and running.exit is None and running.started_at is not None
    return began and record.state is State.STARTING and record.awaited is None


def _decide(record: MachineRecord, exit: Exit) -> Restart:
    policy, max_retries = restart_policy(record.config)
    running = record.running
    started_at = running.started_at if running is not None and running.started_at is not None else exit.exited_at
    ran_s = max(0.0, exit.exited_at - started_at)
    failed = exit.exit_code or bool(exit.fault)  # a machine that was ended by its host's or its kernel's fault
    return after_exit(policy, max_retries, exit_code=int(failed), ran_s=ran_s, count=record.restarts)


def _event(exit: Exit, *, requested: bool, restart: Restart | None, count: int, error: str = "") -> Happened:
    restarting = restart is not None and restart.delay_s is not None
    detail = Detail(exit=exit, requested_stop=requested, restarting=restarting, restart_count=count, error=error)
    return Happened("exit", "stopped", detail=detail)
