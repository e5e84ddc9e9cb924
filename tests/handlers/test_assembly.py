import pytest

from hawker.api.contract.app_log import APP_LOG_ROUTES
from hawker.api.contract.audit import AUDIT_ROUTES
from hawker.api.contract.machine import CREATE_MACHINE
from hawker.api.contract.market import MARKET_ROUTES
from hawker.api.contract.token import TOKEN_ROUTES
from hawker.api.routes import ROUTES
from hawker.sim.node.sim_worker import SimWorker
from hawker.up.wiring import node_handlers

pytestmark = pytest.mark.anyio


async def test_every_route_of_the_table_is_answered_but_for_those_of_the_gateway(worker: SimWorker) -> None:
    assert (
        node_handlers(worker.parts).missing(
            set(ROUTES) - {*TOKEN_ROUTES, *MARKET_ROUTES, *APP_LOG_ROUTES, *AUDIT_ROUTES, CREATE_MACHINE}
        )
        == ()
    )
