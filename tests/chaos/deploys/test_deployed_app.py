"""What a trial asks of its app: patience, and which broker."""

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from hawker.api.contract.app import AppParams
from hawker.api.contract.machine import LIST_MACHINES
from hawker.chaos.deploys.deployed_app import APP, DeployedApp, definition
from hawker.clock import SystemClock
from hawker.errors import BadRequest, Unavailable
from hawker.flytoml.reader import read_app_config
from hawker.ids import NodeId

pytestmark = pytest.mark.anyio
IDS = [NodeId(f"0000000{number}") for number in range(3)]


class Answering:
    """A node's client."""

    def __init__(self, number: int, error: Exception | None = None) -> None:
        self.number, self.error = number, error

    async def call(self, route: Any, **options: Any) -> int:
        if self.error is not None:
            raise self.error
        return self.number


def asking(errors: dict[int, Exception], dead: tuple[int, ...] = ()) -> DeployedApp:
    stalls = [
        SimpleNamespace(id=IDS[n], host=SimpleNamespace(has_power=True), daemon=SimpleNamespace(alive=n not in dead))
        for n in range(3)
    ]
    clients = {IDS[n]: Answering(n, errors.get(n)) for n in range(3)}
    fleet: Any = SimpleNamespace(stalls=stalls)
    return DeployedApp(fleet, cast("Any", clients), ("mad",) * 3, SystemClock())


async def asked(app: DeployedApp, **options: Any) -> Any:
    return await app.call(LIST_MACHINES, params=AppParams(app_name=APP), **options)


async def test_the_last_node_that_can_be_reached_is_asked() -> None:
    away = Unavailable("it is away")
    assert await asked(asking({})) == 2
    assert await asked(asking({2: away})) == 1
    assert await asked(asking({}, dead=(2,)), avoid={IDS[1]}) == 0
    with pytest.raises(Unavailable, match="away"):
        await asked(asking(dict.fromkeys(range(3), away)))


async def test_patience_ends_with_an_error_that_no_other_try_mends() -> None:
    app, tries = asking({}), []

    async def ask() -> str | None:
        tries.append(1)
        if len(tries) < 3:
            raise Unavailable("not yet")
        return "there"

    assert await app.patiently(ask) == "there"

    async def wrong() -> None:
        raise BadRequest("never")

    with pytest.raises(BadRequest):
        await app.patiently(wrong)


@pytest.mark.parametrize("bad", [True, False])
def test_the_file_of_a_release_is_one_that_hawker_reads(bad: bool) -> None:
    reading = read_app_config(msgspec.json.encode(definition(3, bad=bad)).decode(), ".json", lax=False)
    assert [each.text for each in reading.problems if not each.warning] == []
