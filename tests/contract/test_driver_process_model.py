"""The fake driver and a real one, given the same calls about a machine's processes in any order, say the same."""

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import anyio
import msgspec
from hypothesis import given
from hypothesis import strategies as st

from hawker.clock import SystemClock
from hawker.errors import HawkerError
from hawker.ids import InstanceId, MachineId
from hawker.runtime.driver import Driver, ProcessPhase
from hawker.runtime.fake_driver import FakeDriver
from hawker.runtime.fake_host import FakeHost
from hawker.runtime.process import process_driver
from hawker.runtime.spec import Ends, InstanceLimits, InstanceSpec, ProcessSpec

CLOCK = SystemClock()
MACHINE = MachineId("0123456789abcd")
SHELL = ("/bin/sh", "-c")
PROCESSES = (
    ProcessSpec(argv=("sleep", "1000"), env={}),
    ProcessSpec(argv=(*SHELL, "exit 3"), env={}),
    ProcessSpec(argv=("/nope",), env={}, held=True),
    ProcessSpec(argv=(*SHELL, "exit 0"), env={}, held=True),
    ProcessSpec(argv=("sleep", "1000"), env={}, held=True),
)
SPEC = InstanceSpec(
    machine_id=MACHINE,
    instance_id=InstanceId(f"I{os.getpid()}"),  # its processes bear it, and another run on this host looks for its own
    hostname="unused",
    processes=PROCESSES,
    limits=InstanceLimits(cpus=1, cpu_weight=1, memory_mib=1, pids=1),
    ends=Ends.TOLD,
)
ENDLESS = (0, 4)


@dataclass(frozen=True, slots=True)
class Call:
    """`later` is how many runs past the latest the asked-for one is."""

    name: str
    index: int
    later: int = 0


STARTS = st.builds(Call, st.just("start"), st.integers(0, 5), st.integers(-1, 2))
OTHERS = st.builds(Call, st.sampled_from(["stop", "conclude"]), st.integers(0, 5))
CALLS = st.lists(st.one_of(STARTS, STARTS, OTHERS), max_size=9)


@given(CALLS)
def test_any_calls_have_the_same_answers(calls: list[Call]) -> None:
    with tempfile.TemporaryDirectory() as place:
        host = FakeHost(CLOCK)
        fake = anyio.run(_story, lambda: FakeDriver(host), calls)
        real = anyio.run(_story, lambda: process_driver(Path(place) / "machines", CLOCK), calls)
    assert real == fake


async def _story(renew: Callable[[], Driver], calls: list[Call]) -> list[object]:
    """Each call is that of a new daemon."""
    told: list[object] = []
    with anyio.fail_after(120):
        try:
            await renew().start(SPEC)
            told.append(await _settled(renew()))
            for call in calls:
                told.append((call, await _answer(renew(), call), await _settled(renew())))
        finally:
            await renew().destroy(MACHINE)
    return told


async def _answer(driver: Driver, call: Call) -> object:
    states = await driver.process_states(MACHINE)
    run = (states[call.index].run if call.index < len(states) else 0) + call.later
    try:
        match call.name:
            case "start":
                return (await driver.start_process(MACHINE, call.index, run)).run
            case "stop":
                return (await driver.stop_process(MACHINE, call.index, "SIGTERM", 60)).state
            case _:
                exit = await driver.conclude(MACHINE, call.index)
                return msgspec.structs.replace(exit, exited_at=0)
    except HawkerError as error:
        return type(error)


async def _settled(driver: Driver) -> object:
    """What is so once all that ends by itself has ended. How the others fell at the machine's end may differ."""
    states = await driver.process_states(MACHINE)
    while any(
        state.state in (ProcessPhase.STARTING, ProcessPhase.RUNNING)
        for index, state in enumerate(states)
        if index not in ENDLESS
    ):
        states = await driver.await_process_change(MACHINE, states)
    phase = (await driver.inspect(MACHINE)).phase
    return phase, [
        (state.state, state.run, index not in ENDLESS and state.last_exit and state.last_exit.exit_code)
        for index, state in enumerate(states)
    ]
