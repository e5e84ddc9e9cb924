"""What scenes with volumes are made of: what is there before, and the calls. The scenes themselves are in `scenes`."""

from hawker.chaos.scenario_context import SAMPLE, ScenarioContext, named
from hawker.config import MachineConfig
from hawker.ids import MachineId
from hawker.machine import State

LARGER_GB = 2


async def with_free_volume(stage: ScenarioContext) -> None:
    """And no machine; the sample image is there."""
    await stage.customer.pull(SAMPLE)
    await stage.customer.volume(named(stage.key))


async def running_with_volume(stage: ScenarioContext) -> MachineId:
    return await _with_volume(stage, stage.wares.sample(), State.STARTED)


async def running_beside_volume(stage: ScenarioContext) -> MachineId:
    """A machine, and a volume that it does not have."""
    before = f"{stage.key} before"
    await stage.customer.pull(SAMPLE)
    await stage.customer.volume(named(before))
    return await stage.created(stage.wares.sample(), before, State.STARTED)


async def off_with_volume(stage: ScenarioContext) -> MachineId:
    return await _with_volume(stage, stage.wares.sample(), State.STOPPED)


async def broken_with_volume(stage: ScenarioContext) -> MachineId:
    return await _with_volume(stage, stage.wares.broken(), State.STOPPED)


async def _with_volume(stage: ScenarioContext, config: MachineConfig, state: State) -> MachineId:
    before = f"{stage.key} before"
    await stage.customer.volume(named(before))
    return await stage.created(stage.wares.with_volume(config, before), before, state)


async def make_volume(stage: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    """Beside a machine that has nothing to do with it."""
    assert machine_id is not None
    await stage.customer.volume(named(stage.key))
    return machine_id


async def destroy_volume(stage: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    """Deleted, and gone as soon as the node looks, since this one keeps nothing that was deleted."""
    assert machine_id is not None
    name = named(f"{stage.key} before")
    await stage.customer.delete_volumes(name)

    async def is_gone() -> bool:
        return not await stage.customer.volumes(name)

    await stage.until(is_gone)
    return machine_id


async def create_with_volume(stage: ScenarioContext, _: MachineId | None) -> MachineId:
    """Both are ordered, unless the volume is there; it is whole when its order is answered."""
    await stage.customer.volume(named(stage.key))
    return await stage.order(stage.wares.with_volume(stage.wares.sample(), stage.key), stage.key)


async def create_broken_with_volume(stage: ScenarioContext, _: MachineId | None) -> MachineId:
    return await stage.order(stage.wares.with_volume(stage.wares.broken(), stage.key), stage.key)


async def extend_volume(stage: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    assert machine_id is not None
    await stage.customer.extend(await stage.customer.volume(named(f"{stage.key} before")), LARGER_GB)
    return machine_id
