"""The PyPI package fly-python-sdk, unmodified, through its whole surface; the node is asked what it then really has.

What it answers was read into the package's own types (pydantic), so an answer is a check of our body too.
"""

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from hawker.api.client import Client
from hawker.api.contract.app import GET_APP, AppParams
from hawker.api.contract.volume import CREATE_VOLUME, CreateVolumeRequest
from hawker.errors import NotFound
from tests.clients.conftest import IS_ROOT
from tests.clients.program import Program, Refused
from tests.e2e.running_node import RunningNode
from tests.e2e.shop import HELLO, Shop

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        not IS_ROOT, reason="needs root: this client cannot send a command line, and without root no image is run"
    ),
]

BROKEN = {
    "Machine.stop": "it asks itself for `get_machine`, which it does not have",
}
"""Calls that cannot work anywhere, and why."""


@dataclass(frozen=True, slots=True)
class Sdk:
    """The client, with an app of the test's own, and the node beside it."""

    program: Program
    shop: Shop

    def org(self, call: str, **arguments: object) -> Any:
        return self._ask(["tests"], f"Org.{call}", arguments)

    def app(self, call: str, **arguments: object) -> Any:
        return self._ask(["tests", self.shop.app], f"App.{call}", arguments)

    def machine(self, machine_id: str, call: str, **arguments: object) -> Any:
        return self._ask(["tests", self.shop.app, machine_id], f"Machine.{call}", arguments)

    def _ask(self, at: list[str], name: str, arguments: dict[str, object]) -> Any:
        return self.program.ask({"at": at, "call": name.partition(".")[2], "arguments": arguments})

    async def run(self, **config: Any) -> dict[str, Any]:
        """Once it has started: the package cannot wait."""
        machine = {"region": "local", "config": {"image": HELLO, **config}}
        made: dict[str, Any] = self.app("create_machine", machine=machine)
        await self.shop.wait(made["id"], "started")
        return made


@pytest.fixture(scope="module")
def numbers() -> Iterator[int]:
    return count(1)


@pytest.fixture(scope="module")
def surface(fly_python_sdk: Program) -> set[str]:
    """Its first words."""
    return set(fly_python_sdk.answer())


@pytest.fixture
async def client(node: RunningNode) -> AsyncIterator[Client]:
    async with node.client() as client:
        yield client


@pytest.fixture
async def sdk(fly_python_sdk: Program, surface: set[str], client: Client, numbers: Iterator[int]) -> AsyncIterator[Sdk]:
    """Its app was made by the client and is ended by the node."""
    sdk = Sdk(fly_python_sdk, Shop(client, f"sdk-{next(numbers)}"))
    sdk.org("create_app", app_name=sdk.shop.app, network="sdk-net")
    yield sdk
    await sdk.shop.close()


async def test_an_app_is_made_listed_shown_and_deleted(sdk: Sdk) -> None:
    listed = sdk.org("list_apps", sort_by="machine_count")
    assert {"name": sdk.shop.app, "machine_count": 0, "network": "sdk-net"} in listed
    shown = sdk.app("inspect")
    assert (shown["name"], shown["status"], shown["organization"]["slug"]) == (sdk.shop.app, "pending", "tests")
    other = Sdk(sdk.program, Shop(sdk.shop.client, f"{sdk.shop.app}-other"))
    sdk.org("create_app", app_name=other.shop.app)
    assert other.app("delete") is None
    with pytest.raises(NotFound):
        await sdk.shop.client.call(GET_APP, params=AppParams(app_name=other.shop.app))
    with pytest.raises(Refused, match="Could not find"):
        other.app("inspect")


async def test_a_name_that_is_taken_is_refused(sdk: Sdk) -> None:
    with pytest.raises(Refused, match="Unable to create"):
        sdk.org("create_app", app_name=sdk.shop.app)


async def test_a_machine_runs_as_it_was_ordered(sdk: Sdk) -> None:
    guest = {"cpu_kind": "shared", "cpus": 2, "memory_mb": 512}
    made = await sdk.run(guest=guest, env={"COLOUR": "red"}, metadata={"role": "web"})
    there = await sdk.shop.get(made["id"])
    assert there.config is not None and there.config.guest is not None
    assert (there.state, there.private_ip, there.config.guest.cpus) == ("started", made["private_ip"], 2)
    shown = sdk.machine(made["id"], "inspect")
    assert (shown["state"], shown["instance_id"], shown["config"]["env"]) == (
        "started",
        there.version,
        {"COLOUR": "red"},
    )
    assert shown["image_ref"]["digest"] == there.image_ref.digest and shown["image_ref"]["tag"]


async def test_checks_metrics_and_processes_are_taken_as_it_sends_them(sdk: Sdk) -> None:
    """It sends what it has no value for as nothing at all, and reads the same config back."""
    check = {"type": "http", "port": 8080, "interval": "15s", "timeout": "2s", "path": "/"}
    made = await sdk.run(checks={"web": check}, metrics={"port": 8080, "path": "/metrics"})
    there = await sdk.shop.get(made["id"])
    assert there.config is not None and there.config.checks is not None
    assert there.config.checks["web"].path == "/"
    assert sdk.machine(made["id"], "inspect")["config"]["checks"]["web"]["method"] == "GET"


async def test_machines_are_made_listed_cloned_and_destroyed_together(sdk: Sdk) -> None:
    machine = {"region": "local", "config": {"image": HELLO, "env": {"COLOUR": "red"}}}
    made = [each["id"] for each in sdk.app("create_machines", machines=[machine, machine])]
    clone = sdk.machine(made[0], "clone", name="the-clone")
    assert (clone["name"], clone["config"]["env"]) == ("the-clone", {"COLOUR": "red"})
    ids = {*made, clone["id"]}
    assert len(ids) == 3 == len(await sdk.shop.machines())
    assert set(sdk.app("list_machines", ids_only=True)) == ids
    assert sdk.app("list_machines", regions=["nowhere"]) == []
    assert {each["id"] for each in sdk.app("list_machines", regions=["local"])} == ids
    for machine_id in ids:
        await sdk.shop.wait(machine_id, "started")
        await sdk.shop.stop(machine_id)
        await sdk.shop.wait(machine_id, "stopped")
    sdk.app("destroy_machines", machine_ids=sorted(ids))
    for machine_id in ids:
        await sdk.shop.gone(machine_id)
    assert await sdk.shop.machines() == []


async def test_a_stopped_machine_starts_and_its_events_are_read(sdk: Sdk) -> None:
    made = await sdk.run()
    with pytest.raises(Refused, match="Unable to delete"):
        sdk.machine(made["id"], "destroy")
    await sdk.shop.stop(made["id"])
    await sdk.shop.wait(made["id"], "stopped")
    assert sdk.machine(made["id"], "start") is None
    await sdk.shop.wait(made["id"], "started")
    events = sdk.machine(made["id"], "get_events")
    assert [event["id"] for event in events] == [event.id for event in (await sdk.shop.events(made["id"]))[::-1]]
    (ended,) = [event["request"] for event in events if event["type"] == "exit"]
    assert (ended["exit_event"]["requested_stop"], ended["restart_count"]) == (True, 0)
    assert {event["source"] for event in events} == {"user", "flyd"}


async def test_an_attached_volume_is_listed(sdk: Sdk) -> None:
    """The package reads a volume only while a machine has it: its types know no free one."""
    params, request = AppParams(app_name=sdk.shop.app), CreateVolumeRequest(name="data", size_gb=1, encrypted=False)
    volume = await sdk.shop.client.call(CREATE_VOLUME, params=params, body=request)
    with pytest.raises(Refused, match="attached_machine_id"):
        sdk.app("list_volumes", app_name=sdk.shop.app)
    user = await sdk.shop.run({"image": HELLO, "mounts": [{"volume": volume.id, "path": "/data"}]})
    (listed,) = sdk.app("list_volumes", app_name=sdk.shop.app)
    assert (listed["id"], listed["attached_machine_id"], listed["size_gb"]) == (volume.id, user.id, 1)


async def test_the_calls_that_cannot_work_fail_before_they_ask(sdk: Sdk) -> None:
    made = await sdk.run()
    with pytest.raises(Refused, match="AttributeError"):
        sdk.machine(made["id"], "stop")
    assert (await sdk.shop.get(made["id"])).state == "started"


def test_every_call_of_the_package_is_made_here(surface: set[str]) -> None:
    called = re.findall(r'\.(org|app|machine)\((?:[\w.\[\]"]+, )?"(\w+)"', Path(__file__).read_text())
    assert surface == {f"{kind.title()}.{name}" for kind, name in called}
    assert set(BROKEN) <= surface
