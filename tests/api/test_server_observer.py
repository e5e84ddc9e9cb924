"""What an observer of the server hears: routes by their paths in the table, whatever clients ask for."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from hawker.api.contract.exec import MACHINE_TERMINAL
from hawker.api.contract.machine import GET_MACHINE
from hawker.api.contract.node import METRICS
from hawker.api.route import AnyRoute
from hawker.errors import NotFound
from tests.api.serving import Fake, Served, served, use
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
MACHINE = "/v1/apps/{app_name}/machines/{machine_id}"


class Ears:
    def __init__(self) -> None:
        self.heard: list[tuple[str, str, int]] = []

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        assert seconds >= 0
        self.heard.append((method, route, status))


@pytest.fixture
def ears() -> Ears:
    return Ears()


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
async def node(ears: Ears, fake: Fake) -> AsyncIterator[Served]:
    routes: list[AnyRoute] = [GET_MACHINE, MACHINE_TERMINAL, METRICS]
    async with served(fake.handlers(routes), routes, ears) as node:
        yield node


async def test_a_call_is_told_by_its_route_and_never_by_what_it_names(node: Served, fake: Fake, ears: Ears) -> None:
    await use(node, GET_MACHINE)
    fake.error = NotFound("machine not found")
    with pytest.raises(NotFound):
        await use(node, GET_MACHINE)
    assert ears.heard == [("GET", MACHINE, 200), ("GET", MACHINE, 404)]


@pytest.mark.parametrize(
    ("method", "path", "told"),
    [
        ("GET", "/admin.php", ("GET", "-", 404)),
        ("PROPFIND", "/v1/apps/a/machines/m", ("PROPFIND", "-", 405)),
        ("GET", "/openapi.json", ("GET", "/openapi.json", 200)),
    ],
)
async def test_a_path_that_is_not_in_the_table_has_no_name(
    node: Served, ears: Ears, method: str, path: str, told: tuple[str, str, int]
) -> None:
    async with node.http.request(method, path) as response:
        await response.read()
    assert ears.heard == [told]


async def test_a_caller_without_a_token_is_told_too(node: Served, ears: Ears) -> None:
    async with aiohttp.ClientSession(node.url) as stranger, stranger.get("/metrics") as response:
        assert response.status == 401
    assert ears.heard == [("GET", "/metrics", 401)]


async def test_a_conversation_is_told_once_it_is_over(node: Served, ears: Ears) -> None:
    await use(node, MACHINE_TERMINAL)
    await eventually(lambda: ears.heard)
    assert ears.heard == [("SOCKET", MACHINE_TERMINAL.path, 200)]


async def test_an_answer_that_is_text_goes_out_as_it_stands(node: Served) -> None:
    async with node.http.get("/metrics") as response:
        assert response.headers["content-type"] == METRICS.media
        assert await response.text() == "x"
