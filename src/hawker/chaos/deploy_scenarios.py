"""What scenarios of deploys are made of: a machine of a process group, and the calls that bring it to a release,
replace it, or are taken back. The scenarios themselves are in `scenarios`.
"""

from typing import Any

import msgspec

from hawker.chaos.scenario_context import NEW_ENV, SAMPLE, ScenarioContext
from hawker.flytoml.machines import GROUP, PLATFORM
from hawker.ids import MachineId
from hawker.machine import State
from hawker.proof.promises import ClientCall

_GROUP = "app"
_OWN = {"deploy": {"smoke": "0s", "smoke_rest": "0s"}}
_PORT = 8080


async def running_in_group(context: ScenarioContext) -> MachineId:
    """A machine that a deploy finds. Its client changes it no more: what it is from here on, no answer promises."""
    await context.customer.prune()
    config = msgspec.structs.replace(context.samples.sample(), metadata={**PLATFORM, GROUP: _GROUP})
    machine_id = await context.created(config, f"{context.key} before", State.STARTED)
    context.promises.ask(machine_id, ClientCall.UPDATE)
    return machine_id


async def deploy_with_canary(context: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    """After a release command and a canary the machine has another environment."""
    assert machine_id is not None
    definition = _definition(env=NEW_ENV, deploy={"release_command": "exit 0"})
    await context.customer.deploy(definition, SAMPLE, "canary")
    return machine_id


async def deploy_bluegreen(context: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    """Another machine takes its place."""
    assert machine_id is not None
    check = {"type": "tcp", "port": _PORT, "interval": "2s", "timeout": "1s"}
    ordered = context.customer.deploy(_definition(checks={"up": check}), SAMPLE, "bluegreen")
    await context.ask(ClientCall.DESTROY, machine_id, ordered)
    return machine_id


async def deploy_in_vain(context: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    """Of an image that does not start: the machine gets back what it had."""
    assert machine_id is not None
    await context.customer.deploy(_definition(), context.samples.commandless, "rolling")
    return machine_id


def _definition(**sections: Any) -> dict[str, Any]:
    return {"restart": [{"policy": "never"}], "hawker": _OWN, **sections}
