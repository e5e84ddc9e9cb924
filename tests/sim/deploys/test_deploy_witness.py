"""The witness of played deploys: what a coordinator sends is held to what a majority has."""

import pytest

from hawker.api.contract.machine import UPDATE_MACHINE, MachineParams
from hawker.proof.violation import Invariant
from hawker.sim.node.sim_worker import APP
from tests.sim.deploys.fleets import played_deploys
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


async def test_a_change_in_a_term_that_nobody_granted_is_seen() -> None:
    async with played_deploys() as fleet:
        await fleet.deploy()
        await fleet.changes()
        machine = (await fleet.shown(0)).slots[-1].machine_id
        options = {"params": MachineParams(app_name=APP, machine_id=machine), "deploy_term": "1/99"}
        assert fleet.found() == []
        fleet.sends(0, UPDATE_MACHINE, options)
        assert Invariant.KEPT_BEFORE in [each.invariant for each in fleet.found()]
