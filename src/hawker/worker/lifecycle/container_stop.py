"""How a machine's containers are stopped with it: each in its own way, all at the same time. What is left is ended with
the machine, so nothing here needs to succeed."""

from contextlib import suppress

import anyio

from hawker.config import stop_config
from hawker.config.effective_containers import container_stop
from hawker.errors import HawkerError
from hawker.ids import MachineId
from hawker.record.machine import MachineRecord
from hawker.runtime.driver import Driver, Phase, ProcessPhase


async def stop_containers(driver: Driver, record: MachineRecord, signal: str, timeout_s: float) -> None:
    """Nothing when there are none, or when the caller asked for another way to stop than the config's. During an update
    the config of what runs is the previous one."""
    config = record.config if record.previous is None else record.previous.config
    if not config.containers or (signal, timeout_s) != stop_config(config):
        return
    ways = {each.name: container_stop(config, each) for each in config.containers}
    with suppress(HawkerError):
        seen = await driver.inspect(record.id)
        if seen.phase is Phase.SUSPENDED:
            await driver.resume(record.id)
        states = await driver.process_states(record.id)
        async with anyio.create_task_group() as tasks:
            for index, state in enumerate(states):
                if state.state in (ProcessPhase.STARTING, ProcessPhase.RUNNING) and state.name in ways:
                    tasks.start_soon(_stop, driver, record.id, index, *ways[state.name])


async def _stop(driver: Driver, machine_id: MachineId, index: int, signal: str, timeout_s: float) -> None:
    with suppress(HawkerError):
        await driver.stop_process(machine_id, index, signal, timeout_s)
