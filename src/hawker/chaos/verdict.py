"""What a scenario's machine must be once all is over, and what is found to be otherwise. Who played it only orders."""

from collections.abc import Iterator

import aiohttp

from hawker.api.contract.machine import Machine
from hawker.chaos.scenario_context import SampleMachines, ScenarioClient, ScenarioContext, exits_of
from hawker.chaos.scenarios import Scenario
from hawker.errors import HawkerError
from hawker.ids import MachineId
from hawker.machine import State

_PORT = 8080
_ANSWERS_WITHIN_S = 30.0
_MADE_HERE = "alive"


class ScenarioMachine:
    """What a scenario is played with once. `machine_id` is None while nobody knows it; `promised` once the order is
    committed, `acknowledged` once it was answered."""

    def __init__(self, key: str, machine_id: MachineId | None, *, promised: bool, acknowledged: bool) -> None:
        self.key = key
        self.machine_id = machine_id
        self.promised = promised
        self.acknowledged = acknowledged

    def answered(self, machine_id: MachineId) -> "ScenarioMachine":
        self.machine_id, self.acknowledged, self.promised = machine_id, True, True
        return self

    async def ended_at(self, customer: ScenarioClient) -> float:
        """When the last operation on it ended, Unix seconds; 0 when there was none."""
        if self.machine_id is None:
            return 0.0
        runs = await customer.runs(self.machine_id)
        return max((run.ended_at.timestamp() for run in runs if run.ended_at is not None), default=0.0)

    async def take_up(self, scenario: Scenario, context: ScenarioContext) -> list[str]:
        """Gives the order again, as a client does that was cut off. Gives what is wrong with what is there before, and
        with the answer."""
        if self.acknowledged or not scenario.asks:
            return []
        there = {machine.id: machine.state for machine in await context.customer.machines()}
        found = list(self._before(scenario, there))
        if scenario.undone is None or not self.promised:
            made = await scenario.act(context, self.machine_id)
            if self.promised and scenario.done is not State.DESTROYED and made not in there:
                found.append("what was committed was not there until it was ordered again")
            self.machine_id = made
        return found

    def _before(self, scenario: Scenario, there: dict[str, State]) -> Iterator[str]:
        if self.promised or self.machine_id is None:
            return
        if there.get(self.machine_id) is not scenario.undone:
            yield f"nothing was committed, and it is {there.get(self.machine_id)}"


async def check(
    scenario: Scenario, subject: ScenarioMachine, customer: ScenarioClient, samples: SampleMachines
) -> list[str]:
    """The machine as its node shows it, and as it answers itself."""
    assert subject.machine_id is not None, "the order was given"
    machine = await customer.machine(subject.machine_id)
    found = [*_states(scenario, machine), *_exits(scenario, machine)]
    if scenario.archives:
        found += _archived(machine, samples)
    if machine.state is State.STARTED:
        found += await _own_answer(customer, machine, scenario, samples)
    return found


def _states(scenario: Scenario, machine: Machine) -> Iterator[str]:
    if machine.state is not scenario.done:
        yield f"is {machine.state}, not {scenario.done}"
    last = machine.events[0] if machine.events else None
    if scenario.undoing and (last is None or "command" not in last.error):
        yield f"its history does not say why it failed: {last}"


def _exits(scenario: Scenario, machine: Machine) -> Iterator[str]:
    told = [(exit.exit_code, exit.requested_stop) for exit in exits_of(machine)]
    pairs = zip(scenario.exits, told, strict=False)
    if len(told) != len(scenario.exits) or not all(expected.is_told_by(*each) for expected, each in pairs):
        yield f"its history tells of the exits {told}, not of {list(scenario.exits)}"


def _archived(machine: Machine, samples: SampleMachines) -> Iterator[str]:
    """There is one file of it, and nothing half-written."""
    names = sorted(file.name for file in samples.archive.rglob("*") if machine.id in file.name)
    if len(names) != 1 or not names[0].endswith(".zst"):
        yield f"the archive has {names} of it"


async def _own_answer(
    customer: ScenarioClient, machine: Machine, scenario: Scenario, samples: SampleMachines
) -> list[str]:
    """From inside, through its pilot; of a container also over its network."""
    machine_id = MachineId(machine.id)
    try:
        said = await customer.said(machine_id, *samples.echo(_MADE_HERE))
        served = await _page(machine.private_ip) if samples.contained else machine_id
        environment = await customer.said(machine_id, *samples.environment())
    except (HawkerError, aiohttp.ClientError, TimeoutError) as error:
        return [f"does not answer: {type(error).__name__} {error}"]
    found = [] if said.strip() == _MADE_HERE else [f"answered with {said!r}"]
    found += [] if machine_id in served else [f"at its address another one answers: {served!r}"]
    missing = [f"{name}={value}" for name, value in scenario.env.items() if f"{name}={value}" not in environment]
    return found + [f"runs without {each}" for each in missing]


async def _page(address: str) -> str:
    timeout = aiohttp.ClientTimeout(total=_ANSWERS_WITHIN_S)
    async with aiohttp.ClientSession(timeout=timeout) as http, http.get(f"http://[{address}]:{_PORT}/") as answer:
        return await answer.text()
