"""What scenarios with volumes are made of: what is there before, and the calls. The scenarios themselves are in
`scenarios`.
"""

from hawker.chaos.scenario_context import SAMPLE, ScenarioContext, named
from hawker.config import MachineConfig
from hawker.ids import MachineId
from hawker.machine import State

LARGER_GB = 2


async def with_free_volume(context: ScenarioContext) -> None:
    """And no machine; the sample image is there."""
    await context.customer.pull(SAMPLE)
    await context.customer.volume(named(context.key))


async def running_with_volume(context: ScenarioContext) -> MachineId:
    return await _with_volume(context, context.samples.sample(), State.STARTED)


async def running_beside_volume(context: ScenarioContext) -> MachineId:
    """A machine, and a volume that it does not have."""
    before = f"{context.key} before"
    await context.customer.pull(SAMPLE)
    await context.customer.volume(named(before))
    return await context.created(context.samples.sample(), before, State.STARTED)


async def off_with_volume(context: ScenarioContext) -> MachineId:
    return await _with_volume(context, context.samples.sample(), State.STOPPED)


async def broken_with_volume(context: ScenarioContext) -> MachineId:
    return await _with_volume(context, context.samples.broken(), State.STOPPED)


async def _with_volume(context: ScenarioContext, config: MachineConfig, state: State) -> MachineId:
    before = f"{context.key} before"
    await context.customer.volume(named(before))
    return await context.created(context.samples.with_volume(config, before), before, state)


async def make_volume(context: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    """Beside a machine that has nothing to do with it."""
    assert machine_id is not None
    await context.customer.volume(named(context.key))
    return machine_id


async def destroy_volume(context: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    """Deleted, and gone as soon as the node looks, since this one keeps nothing that was deleted."""
    assert machine_id is not None
    name = named(f"{context.key} before")
    await context.customer.delete_volumes(name)

    async def is_gone() -> bool:
        return not await context.customer.volumes(name)

    await context.until(is_gone)
    return machine_id


async def create_with_volume(context: ScenarioContext, _: MachineId | None) -> MachineId:
    """Both are ordered, unless the volume is there; it is whole when its order is answered."""
    await context.customer.volume(named(context.key))
    return await context.order(context.samples.with_volume(context.samples.sample(), context.key), context.key)


async def create_broken_with_volume(context: ScenarioContext, _: MachineId | None) -> MachineId:
    return await context.order(context.samples.with_volume(context.samples.broken(), context.key), context.key)


async def extend_volume(context: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    assert machine_id is not None
    await context.customer.extend(await context.customer.volume(named(f"{context.key} before")), LARGER_GB)
    return machine_id
