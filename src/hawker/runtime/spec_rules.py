"""What every driver refuses of a machine's containers and of calls about one process, in the same words. Pure."""

import re

from hawker.errors import BadRequest, NotServed, WrongState
from hawker.ids import MachineId
from hawker.runtime.driver import Features, ProcessPhase, ProcessState
from hawker.runtime.spec import InstanceSpec, ProcessSpec

_ROOTS = "/.hawker/containers"
MAX_PROCESSES = 32  # of one machine, containers or not
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def refuse_containers(spec: InstanceSpec, driver: str, features: Features) -> None:
    """Raises for what this driver cannot serve, and for what none can."""
    if not 1 <= len(spec.processes) <= MAX_PROCESSES:
        raise BadRequest(f"a machine has 1 to {MAX_PROCESSES} processes, not {len(spec.processes)}")
    if not features.containers and any(process.root is not None for process in spec.processes):
        raise NotServed(f"the {driver} driver cannot serve `containers`: start the node with the container driver")
    names = [process.name for process in spec.processes if process.name or process.root is not None]
    for process in spec.processes:
        if process.root is None and (process.mounts or process.files):
            raise BadRequest("a process without a root filesystem of its own has no mounts or files of its own")
    for name in names:
        if not _NAME.fullmatch(name):
            raise BadRequest(f"no name of a container: {name!r}")
    if len(set(names)) < len(names):
        raise BadRequest("two containers of a machine have the same name")


def container_root(name: str) -> str:
    """Where a container's root filesystem is seen inside its machine."""
    return f"{_ROOTS}/{name}"


def process_of(spec: InstanceSpec, index: int) -> ProcessSpec:
    """Raises `BadRequest` for a number that the machine has no process for."""
    if not 0 <= index < len(spec.processes):
        raise BadRequest(f"machine {spec.machine_id} has no process number {index}")
    return spec.processes[index]


def may_begin(machine_id: MachineId, state: ProcessState, run: int) -> bool:
    """Whether that run is the next; False when it has begun already. Raises `WrongState`."""
    if run < 1:
        raise BadRequest("runs count from 1")
    if run <= state.run:
        return False
    if state.state in (ProcessPhase.STARTING, ProcessPhase.RUNNING):
        raise WrongState(f"run {state.run} of {_called(state)} of machine {machine_id} goes on")
    if run > state.run + 1:
        raise WrongState(f"{_called(state)} of machine {machine_id} had {state.run} runs; {run} is not the next")
    return True


def refuse_conclusion(machine_id: MachineId, state: ProcessState) -> None:
    """Raises `WrongState` unless the process has ended."""
    if state.exit is None:
        raise WrongState(f"{_called(state)} of machine {machine_id} is {state.state}, and has not ended")


def _called(state: ProcessState) -> str:
    return f"container {state.name}" if state.name else "a process"
