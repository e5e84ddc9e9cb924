"""Where the server asks: after the token, before the body and the handler."""

from collections.abc import AsyncIterator, Mapping

import pytest

from hawker.api.client import Client
from hawker.api.contract.app import LIST_APPS
from hawker.api.contract.exec import MACHINE_LOGS, MACHINE_TERMINAL
from hawker.api.contract.machine import CREATE_MACHINE
from hawker.api.contract.node import HEALTH
from hawker.api.route import AnyRoute, subject_of
from hawker.api.routes import ROUTES
from hawker.errors import Forbidden, HawkerError, RateLimited, Unauthorized
from hawker.log import Secret
from tests.api.samples import params_of, sample
from tests.api.serving import NARROW, Fake, Served, served, use

pytestmark = pytest.mark.anyio


class Full:
    """Refuses all that can be counted, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []

    def spend(self, route: AnyRoute, params: Mapping[str, str], *, root: bool) -> None:
        self.asked.append((route.name, dict(params)))
        if subject_of(route, params):
            raise RateLimited("rate limit exceeded")


@pytest.fixture
def full() -> Full:
    return Full()


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
async def node(fake: Fake, full: Full) -> AsyncIterator[Served]:
    async with served(fake.handlers(ROUTES), limiter=full) as node:
        yield node


async def test_a_refused_call_reaches_no_handler_and_is_answered_as_the_contract_says(
    node: Served, fake: Fake, full: Full
) -> None:
    async with node.http.post("/v1/apps/shop/machines", data=b"no JSON at all") as response:
        assert response.status == 429 and response.headers["retry-after"] == "1"
        assert await response.json() == {"error": "rate limit exceeded", "status": "unknown"}
    assert fake.calls == [] and full.asked == [("create_machine", {"app_name": "shop"})]


async def test_a_caller_without_a_right_spends_nothing(node: Served, full: Full) -> None:
    for token, error in ((Secret("stolen"), Unauthorized), (NARROW, Forbidden)):
        async with Client(node.url, token) as client:
            with pytest.raises(error):
                await client.call(CREATE_MACHINE, params=params_of(CREATE_MACHINE), body=sample(CREATE_MACHINE.body))
    assert full.asked == []


@pytest.mark.parametrize("route", [HEALTH, LIST_APPS])
async def test_a_call_that_names_nothing_passes(route: AnyRoute, node: Served) -> None:
    await use(node, route, params=params_of(route))


@pytest.mark.parametrize("route", [MACHINE_LOGS, MACHINE_TERMINAL])
async def test_streams_and_conversations_are_asked_about_too(route: AnyRoute, node: Served, full: Full) -> None:
    with pytest.raises(HawkerError):
        await use(node, route, params=params_of(route))
    assert [name for name, _ in full.asked] == [route.name]
