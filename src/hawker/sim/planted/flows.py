"""Tables of flows with a wrong row, and an engine that takes them up at the wrong one."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import anyio
import msgspec
from anyio.abc import TaskStatus

from hawker.fsm import journal
from hawker.fsm.contract import Done, Flow, Outcome, Step
from hawker.fsm.run import State
from hawker.fsm.runner import Runner
from hawker.record.machine import MACHINES, machine_id_of
from hawker.store.contract import Tx
from hawker.worker.lifecycle import FLOWS
from hawker.worker.lifecycle.deps import Context, FlowDeps

Change = Callable[[Flow[Any], Step], Step | None]


def _flows(change: Change) -> Sequence[Flow[Any]]:
    """The flows, each row as `change` has it; None leaves it out."""
    return [
        replace(flow, steps=tuple(row for step in flow.steps if (row := change(flow, step)) is not None))
        for flow in FLOWS
    ]


def without_undo() -> Sequence[Flow[Any]]:
    return _flows(lambda flow, step: replace(step, undo=None, points=()))


def without_release() -> Sequence[Flow[Any]]:
    return _flows(lambda flow, step: None if flow.name == "stop" and step.name == "release" else step)


def undoes_for_all() -> Sequence[Flow[Any]]:
    """A start that is undone ends whatever instance the machine has."""

    async def undo(context: Context[msgspec.Struct]) -> None:
        await context.deps.driver.destroy(machine_id_of(context))

    return _flows(lambda flow, step: replace(step, undo=undo) if step.name in ("rootfs", "launch") else step)


def records_first() -> Sequence[Flow[Any]]:
    """The network of a machine is recorded as removed, and removed when there is time."""
    late: list[Callable[[], Awaitable[Outcome]]] = []

    async def unplug(context: Context[Any]) -> Outcome:
        late.append(lambda: _named(FLOWS, "destroy", "unplug").do(context))
        return Done()

    async def forget(context: Context[Any]) -> Outcome:
        await context.clock.sleep(2.0)
        while late:
            await late.pop()()
        return await _named(FLOWS, "destroy", "forget").do(context)

    calls = {"unplug": unplug, "forget": forget}
    return _flows(lambda flow, step: replace(step, do=calls[step.name]) if step.name in calls else step)


def launches_unawaited() -> Sequence[Flow[Any]]:
    """A start that was overtaken is done all the same."""

    async def rootfs(context: Context[Any]) -> Outcome:
        def await_it(tx: Tx) -> None:
            record = tx.get(MACHINES, machine_id_of(context))
            if record is not None and context.input.launch:
                tx.put(MACHINES, record.id, msgspec.structs.replace(record, awaited=context.input.instance_id))

        await context.deps.store.write(await_it)
        return await _named(FLOWS, "start", "rootfs").do(context)

    return _flows(lambda flow, step: replace(step, do=rootfs) if step.name == "rootfs" else step)


def _named(flows: Sequence[Flow[Any]], flow: str, step: str) -> Step:
    row = next(each for each in flows if each.name == flow).find(step)
    assert row is not None
    return row


class SkipsAStep(Runner[FlowDeps]):
    """Takes the step that was under way when the daemon died for one that was done."""

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        await self._store.write(self._skip)
        await super().serve(task_status=task_status)

    def _skip(self, tx: Tx) -> None:
        for run in list(journal.open_runs(tx)):
            flow = self._engine.flows.get(run.flow)
            following = flow.following(run.step) if flow is not None and run.state is State.RUNNING else None
            if following is not None:
                journal.save(tx, msgspec.structs.replace(run, step=following.name, finished=(*run.finished, run.step)))
