"""Addresses of apps over the API."""

from typing import Any

import pytest

from hawker.api.contract.app import AppParams
from hawker.api.contract.ip_assignment import ASSIGN_IP, LIST_IPS, RELEASE_IP, AssignIpRequest, IpNetwork, IpParams
from hawker.api.grant import Everything
from hawker.api.route import Call
from hawker.errors import Forbidden, NotFound
from hawker.permission import Attempt
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.sim.node.world import HOST_ADDRESSES
from hawker.worker.handlers.ip_assignments import IpHandlers

pytestmark = pytest.mark.anyio
HERE = AppParams(app_name=APP)


class AppOnly(Everything):
    """The grant of a token that is good for apps and for no org."""

    def check(self, attempt: Attempt) -> None:
        if attempt.app is None:
            raise Forbidden("not for you")


async def assigned(worker: SimWorker, **given: Any) -> Any:
    return await worker.api.call(ASSIGN_IP, params=HERE, body=AssignIpRequest(**given))


async def test_an_address_is_given_listed_and_taken(worker: SimWorker) -> None:
    made = await assigned(worker, type="shared_v4", region="", network="", org_slug="", service_name="")
    assert (made.ip, made.type, made.shared, made.region) == (HOST_ADDRESSES[4], "shared_v4", True, "global")
    assert (await worker.api.call(LIST_IPS, params=HERE)).ips == (made,)
    await worker.api.call(RELEASE_IP, params=IpParams(app_name=APP, ip=made.ip))
    assert (await worker.api.call(LIST_IPS, params=HERE)).ips == ()


async def test_a_private_one_says_where_it_is(worker: SimWorker) -> None:
    assert (await assigned(worker, type="private_v6")).network == IpNetwork(name="default", org_slug="personal")


async def test_an_app_that_is_not_there_has_none(worker: SimWorker) -> None:
    with pytest.raises(NotFound, match="app not found"):
        await worker.api.call(LIST_IPS, params=AppParams(app_name="ghost"))


async def test_a_network_of_another_org_needs_a_right_there(worker: SimWorker) -> None:
    handlers = IpHandlers(worker.store, worker.parts.apps, worker.parts.ips)

    def call(org: str) -> Call[Any, Any, Any]:
        body = AssignIpRequest(type="private_v6", org_slug=org)
        return Call(params=HERE, query=ASSIGN_IP.query(), body=body, grant=AppOnly(), request_id="r")

    await handlers.assign(call("personal"))
    with pytest.raises(Forbidden):
        await handlers.assign(call("acme"))
