"""What holds of the containers of a machine at rest: they came in the order in which they depend on each other, none
ran more often than its policy has it, and a machine of which none runs is not started. Pure; yields sentences."""

from collections.abc import Iterator, Sequence

from hawker.config import Container
from hawker.config.effective_containers import container_restart
from hawker.machine import Policy
from hawker.record.machine import MachineRecord
from hawker.runtime.driver import ProcessPhase, ProcessState

_RUNS = (ProcessPhase.STARTING, ProcessPhase.RUNNING)


def wrong_containers(record: MachineRecord, states: Sequence[ProcessState]) -> Iterator[str]:
    """Of a started machine; `states` are those of its instance."""
    containers = record.config.containers or ()
    if [state.name for state in states] != [each.name for each in containers]:
        yield f"has the containers {[each.name for each in containers]}, and {[state.name for state in states]} run"
        return
    found = {state.name: state for state in states}
    if not any(state.state in _RUNS for state in states):
        yield "is started, and none of its containers runs"
    for each in containers:
        yield from _wrong(each, found)


def _wrong(container: Container, found: dict[str, ProcessState]) -> Iterator[str]:
    state = found[container.name or ""]
    policy, _ = container_restart(container)
    if policy is Policy.NO and state.run > 1:
        yield f"container {state.name} had {state.run} runs, and is never to be started again"
    for need in container.depends_on or ():
        other = found[need.name or ""]
        ended_well = other.exit is not None and other.exit.exit_code == 0
        if state.run > 0 and (other.run == 0 or (need.condition == "exited_successfully" and not ended_well)):
            yield f"container {state.name} was started before {other.name} was {need.condition or 'started'}"
