"""A deploy of an app whose machines are on several nodes: its home coordinates it, through its own broker."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from hawker.api.contract.deploy import (
    CREATE_DEPLOY,
    GET_DEPLOY,
    CreateDeployRequest,
    DeployInfo,
    DeployParams,
    GetDeployQuery,
)
from hawker.api.contract.machine import CREATE_MACHINE, CreateMachineRequest
from hawker.api.contract.machine_operation import WAIT_MACHINE, WaitQuery
from hawker.errors import Forbidden
from hawker.flytoml.machines import GROUP, PLATFORM
from hawker.permission import Action, Attempt
from hawker.record.machine import MACHINES
from hawker.sim.node.sim_worker import config_of
from tests.gateway.town import APP, FAR, HERE, SHOP, Broker, Client, Host, Town, of_machine, town_of
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time

OF_GROUP = {**PLATFORM, GROUP: "app"}


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    """With one machine of the app at each of three nodes; the first one is the app's home."""
    async with town_of(tmp_path, HERE, HERE, FAR) as town:
        for host in town.hosts.values():
            host.worker.parts.deps.fleet.meet(Broker(town, host).api)
        api = Broker(town, home(town)).api
        await api.app()
        for region in (HERE, HERE, FAR):
            body = CreateMachineRequest(config=config_of(metadata=OF_GROUP), region=region)
            made = await api.call(CREATE_MACHINE, params=SHOP, body=body)
            await api.call(WAIT_MACHINE, params=of_machine(made.id), query=WaitQuery())
        yield town


def home(town: Town) -> Host:
    return next(iter(town.hosts.values()))


async def deployed(api: Client, **settings: Any) -> DeployInfo:
    """By a client of any broker, to its end."""
    definition = {"env": {"A": "2"}, "hawker": {"deploy": {"smoke": "0s", "smoke_rest": "0s"}}, **settings}
    body = CreateDeployRequest(definition=definition, image="hawker/hello")
    found: DeployInfo = await api.call(CREATE_DEPLOY, params=SHOP, body=body)
    params = DeployParams(app_name=APP, version=str(found.version))
    with anyio.fail_after(3600):
        while found.ended_at is None:
            found = await api.call(GET_DEPLOY, params=params, query=GetDeployQuery(after=found.serial, wait=20.0))
    return found


def releases(host: Host) -> list[str]:
    found = [record.config.metadata or {} for _, record in host.worker.store.scan(MACHINES)]
    return [each.get("fly_release_version", "") for each in found]


async def test_machines_of_every_node_come_to_the_release(town: Town) -> None:
    *_, far = town.hosts.values()
    found = await deployed(Broker(town, far).api)
    assert (found.status, [slot.state for slot in found.slots]) == ("complete", ["done"] * 3)
    assert [releases(host) for host in town.hosts.values()] == [["1"]] * 3


async def test_a_release_that_crashes_is_taken_back_at_every_node(town: Town) -> None:
    bad = {"experimental": {"cmd": ["exit", "1"]}, "restart": [{"policy": "always"}], "deploy": {"max_unavailable": 3}}
    found = await deployed(Broker(town, home(town)).api, **bad)
    assert found.status == "rolled_back"
    assert [releases(host) for host in town.hosts.values()] == [[""]] * 3


async def test_a_machine_whose_host_is_away_does_not_stop_a_deploy(town: Town) -> None:
    *_, far = town.hosts.values()
    far.cut = True
    found = await deployed(Broker(town, home(town)).api, deploy={"wait_timeout": "10s"})
    assert found.status == "complete" and releases(far) == [""]
    assert all(releases(host) == ["1"] for host in town.hosts.values() if host is not far)


async def test_a_token_that_may_not_destroy_machines_deploys_nothing(town: Town) -> None:
    class NoDeletes:
        name, root, token_ids = "bob", False, ()

        def check(self, attempt: Attempt) -> None:
            if attempt.action is Action.DELETE:
                raise Forbidden("not for you")

        def permits(self, attempt: Attempt) -> bool:
            return attempt.action is not Action.DELETE

    with pytest.raises(Forbidden):
        await deployed(Broker(town, home(town), grant=NoDeletes()).api)


async def test_an_image_that_only_operators_name_is_refused_where_the_token_is(town: Town) -> None:
    class OfApp:
        name, root, token_ids = "bob", False, ()

        def check(self, attempt: Attempt) -> None:
            return None

        def permits(self, attempt: Attempt) -> bool:
            return attempt.app is not None

    narrow = Broker(town, home(town), grant=OfApp()).api
    inside: tuple[tuple[str | None, dict[str, Any]], ...] = (
        ("oci:/etc", {}),
        (None, {"build": {"image": "127.0.0.1:5000/a:1"}}),
        ("hawker/hello", {"machine_checks": [{"command": ["x"], "image": "oci:/etc"}]}),
        (
            "hawker/hello",
            {"http_service": {"internal_port": 80, "machine_checks": [{"command": ["x"], "image": "10.0.0.7/a"}]}},
        ),
    )
    for image, definition in inside:
        with pytest.raises(Forbidden):
            body = CreateDeployRequest(definition=definition, image=image)
            await narrow.call(CREATE_DEPLOY, params=SHOP, body=body)
