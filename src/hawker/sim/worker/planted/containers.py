"""Drivers that do not keep what they promise of a machine's containers."""

from hawker.ids import MachineId
from hawker.runtime.driver import Exit, Features, ProcessState, Run
from hawker.runtime.fake import FakeDriver
from hawker.runtime.fake_host import FakeHost


class _Driver(FakeDriver):
    def __init__(self, host: FakeHost, features: Features) -> None:
        super().__init__(host, features)


class NeverConcludes(_Driver):
    """Says that it ended the machine, and leaves it."""

    async def conclude(self, machine_id: MachineId, index: int) -> Exit:
        states = await self.process_states(machine_id)
        exit = states[index].exit
        assert exit is not None
        return exit


class ForgetsRuns(_Driver):
    """Takes what ended before it was made for what never ran, and starts it once more."""

    def __init__(self, host: FakeHost, features: Features) -> None:
        super().__init__(host, features)
        seen = {machine_id: host.look(machine_id) for machine_id in host.machines()}
        self._missed = {
            (machine_id, process.index): process.run
            for machine_id, instance in seen.items()
            for process in (instance.processes if instance is not None else ())
            if process.state is Run.EXITED
        }

    async def process_states(self, machine_id: MachineId) -> tuple[ProcessState, ...]:
        states = await super().process_states(machine_id)
        return tuple(
            ProcessState(name=state.name) if self._missed.get((machine_id, index)) == state.run > 0 else state
            for index, state in enumerate(states)
        )

    async def start_process(self, machine_id: MachineId, index: int, run: int) -> ProcessState:
        missed = self._missed.pop((machine_id, index), 0)
        return await super().start_process(machine_id, index, run + missed)
