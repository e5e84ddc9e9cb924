"""The npm package fly-admin, unmodified, through its whole surface; the node is asked what it then really has.

Answers are read into what the package's own declarations promise its callers (`fly_admin_types.py`).
"""

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from hawker.api.client import Client
from hawker.api.contract.app import GET_APP, AppParams
from hawker.api.contract.machine_operation import GET_LEASE
from hawker.api.contract.secret import LIST_SECRETS
from hawker.api.contract.volume import CREATE_SNAPSHOT, LIST_SNAPSHOTS, VolumeParams
from hawker.errors import NotFound
from tests.clients import fly_admin_types as t
from tests.clients.conftest import IS_ROOT
from tests.clients.program import Program, Refused
from tests.e2e.running_node import RunningNode
from tests.e2e.shop import Shop
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
needs_disks = pytest.mark.skipif(not IS_ROOT, reason="needs root: volumes are mounted")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Admin:
    """The client, with an app of the test's own, and the node beside it."""

    program: Program
    shop: Shop
    machine: dict[str, Any]

    def call(self, name: str, *arguments: object, into: type[T]) -> T:
        return msgspec.convert(self.program.ask({"call": name, "arguments": arguments}), into)

    def at(self, machine_id: str = "", **fields: Any) -> dict[str, object]:
        """What most calls take: one object with the names among the fields."""
        return {"app_name": self.shop.app, **({"machine_id": machine_id} if machine_id else {}), **fields}

    def of_volume(self, volume_id: str, **fields: Any) -> dict[str, object]:
        return self.at(volume_id=volume_id, **fields)

    async def snapshot_of(self, volume_id: str) -> str:
        """Once it has been made."""
        params = VolumeParams(app_name=self.shop.app, volume_id=volume_id)
        await self.shop.client.call(CREATE_SNAPSHOT, params=params)

        async def made() -> str | None:
            found = await self.shop.client.call(LIST_SNAPSHOTS, params=params)
            return next((each.id for each in found if each.status == "created"), None)

        return str(await eventually(made))

    async def run(self, **config: Any) -> t.Machine:
        """Once it has started."""
        body = self.at(config=self.machine | config)
        made = self.call("Machine.createMachine", body, into=t.Machine)
        self.call("Machine.waitMachine", self.at(made.id, state="started", timeout="60s"), into=t.Ok)
        return made


@pytest.fixture(scope="module")
def numbers() -> Iterator[int]:
    return count(1)


@pytest.fixture(scope="module")
def surface(fly_admin: Program) -> set[str]:
    """Its first words."""
    return set(fly_admin.answer())


@pytest.fixture
async def client(node: RunningNode) -> AsyncIterator[Client]:
    async with node.client() as client:
        yield client


@pytest.fixture
async def admin(
    fly_admin: Program, surface: set[str], client: Client, numbers: Iterator[int], sleeper: dict[str, Any]
) -> AsyncIterator[Admin]:
    """Its app was made by the client and is ended by the node."""
    app = f"admin-{next(numbers)}"
    made = Admin(fly_admin, Shop(client, app), sleeper)
    made.call("App.createApp", {"app_name": app, "org_slug": "tests", "network": f"{app}-net"}, into=object)
    yield made
    await made.shop.close()


async def test_an_app_is_made_listed_and_deleted(admin: Admin) -> None:
    name = admin.shop.app
    app = admin.call("App.getApp", name, into=t.App)
    assert (app.name, app.status, app.organization.slug) == (name, "pending", "tests")
    listed = admin.call("App.listApps", "tests", into=t.Apps)
    assert (name, 0, f"{name}-net") in [(each.name, each.machine_count, each.network) for each in listed.apps]
    assert listed.total_apps == len(listed.apps)
    other = f"{name}-other"
    admin.call("App.createApp", {"app_name": other, "org_slug": "tests"}, into=object)
    admin.call("App.deleteApp", other, into=type(None))
    with pytest.raises(NotFound):
        await admin.shop.client.call(GET_APP, params=AppParams(app_name=other))
    with pytest.raises(Refused, match=r"404: .*app not found"):
        admin.call("App.getApp", other, into=t.App)


async def test_a_machine_runs_as_it_was_ordered(admin: Admin) -> None:
    made = await admin.run(
        env={"COLOUR": "red"}, metadata={"role": "web"}, guest={"cpu_kind": "shared", "cpus": 2, "memory_mb": 512}
    )
    there = await admin.shop.get(made.id)
    assert (there.state, there.private_ip, there.version) == ("started", made.private_ip, made.instance_id)
    got = admin.call("Machine.getMachine", admin.at(made.id), into=t.Machine)
    assert (got.config.env, got.config.guest) == ({"COLOUR": "red"}, t.Guest(cpu_kind="shared", cpus=2, memory_mb=512))
    assert [event.type for event in got.events] == ["start", "launch"]
    by_name = admin.call("Machine.listMachines", admin.shop.app, into=list[t.Machine])
    by_region = admin.call("Machine.listMachines", admin.at(region="nowhere"), into=list[t.Machine])
    assert ([machine.id for machine in by_name], by_region) == ([made.id], [])


async def test_a_stop_a_start_and_a_restart_are_seen_in_its_events(admin: Admin) -> None:
    made = await admin.run()
    assert admin.call("Machine.stopMachine", admin.at(made.id, timeout="5s"), into=t.Ok).ok
    bound = admin.at(made.id, state="stopped", instance_id=made.instance_id, timeout="60")
    admin.call("Machine.waitMachine", bound, into=t.Ok)
    assert (await admin.shop.get(made.id)).state == "stopped"
    before = admin.call("Machine.startMachine", admin.at(made.id), into=dict[str, Any])
    assert before == {"previous_state": "stopped", "migrated": False, "new_host": ""}
    assert (await admin.shop.wait(made.id, "started")).version == made.instance_id
    first = await admin.shop.pid(made.id)
    assert admin.call("Machine.restartMachine", admin.at(made.id, timeout="5s"), into=t.Ok).ok
    await admin.shop.wait(made.id, "started")
    assert await admin.shop.pid(made.id) != first
    events = admin.call("Machine.listEvents", admin.at(made.id), into=list[t.Event])
    assert [event.id for event in events] == [event.id for event in (await admin.shop.events(made.id))[::-1]]
    exits = [event.request.exit_event for event in events if event.type == "exit" and event.request]
    assert [exit.requested_stop for exit in exits if exit] == [True, True]


async def test_an_update_is_a_new_version(admin: Admin) -> None:
    made = await admin.run(env={"COLOUR": "red"})
    config = admin.machine | {"env": {"COLOUR": "blue"}}
    updated = admin.call("Machine.updateMachine", admin.at(made.id, config=config), into=t.Machine)
    assert updated.instance_id > made.instance_id
    assert (await admin.shop.wait(made.id, "started")).version == updated.instance_id
    versions = admin.call("Machine.listVersions", admin.at(made.id), into=list[t.Version])
    assert [(each.version, each.user_config.env["COLOUR"]) for each in versions] == [
        (updated.instance_id, "blue"),
        (made.instance_id, "red"),
    ]


async def test_a_signal_reaches_the_machine(admin: Admin) -> None:
    made = await admin.run(restart={"policy": "no"})
    assert admin.call("Machine.signalMachine", admin.at(made.id, signal="SIGKILL"), into=t.Ok).ok
    await admin.shop.wait(made.id, "stopped")
    assert [exit.guest_signal for exit in await admin.shop.exits(made.id)] == [9]


async def test_its_processes_are_listed(admin: Admin) -> None:
    made = await admin.run()
    stats = admin.call(
        "Machine.listProcesses", admin.at(made.id, sort_by="pid", order="desc"), into=list[t.ProcessStat]
    )
    there = {process.pid for process in await admin.shop.processes(made.id)}
    assert [stat.pid for stat in stats] == sorted(there, reverse=True) and there


async def test_a_lease_keeps_others_out_until_it_is_released(admin: Admin) -> None:
    """The package has no call to release one, and none that sends the nonce."""
    made = await admin.run()
    taken = admin.call("Machine.acquireLease", admin.at(made.id, ttl=60, description="mine"), into=t.Lease)
    seen = admin.call("Machine.getLease", admin.at(made.id), into=t.Lease)
    assert seen == taken and taken.data.description == "mine"
    held = await admin.shop.client.call(GET_LEASE, params=admin.shop.params(made.id))
    assert (held.data.nonce, held.data.expires_at) == (taken.data.nonce, taken.data.expires_at)
    with pytest.raises(Refused, match=r"409: .*lease currently held by"):
        admin.call("Machine.stopMachine", admin.at(made.id), into=t.Ok)
    with pytest.raises(Refused, match=r"409: .*lease currently held by"):
        admin.call("Machine.acquireLease", admin.at(made.id, ttl=60), into=t.Lease)
    assert (await admin.shop.get(made.id)).state == "started"


async def test_a_cordoned_machine_says_so(admin: Admin) -> None:
    made = await admin.run()
    assert admin.call("Machine.cordonMachine", admin.at(made.id), into=t.Ok).ok
    assert (await admin.shop.get(made.id)).cordoned
    assert admin.call("Machine.getMachine", admin.at(made.id), into=t.Machine).cordoned
    assert admin.call("Machine.uncordonMachine", admin.at(made.id), into=t.Ok).ok
    assert not (await admin.shop.get(made.id)).cordoned


async def test_a_running_machine_is_destroyed_only_by_force(admin: Admin) -> None:
    made = await admin.run()
    with pytest.raises(Refused, match=r"412: .*unable to destroy machine, not currently stopped"):
        admin.call("Machine.deleteMachine", admin.at(made.id), into=t.Ok)
    assert admin.call("Machine.deleteMachine", admin.at(made.id, force=True), into=t.Ok).ok
    await admin.shop.gone(made.id)
    assert admin.call("Machine.listMachines", admin.shop.app, into=list[t.Machine]) == []
    gone = admin.call("Machine.listMachines", admin.at(include_deleted=""), into=list[t.Machine])
    assert [(machine.id, machine.state) for machine in gone] == [(made.id, "destroyed")]


@needs_disks
async def test_a_volume_is_made_attached_extended_and_deleted(admin: Admin) -> None:
    """It has no call that makes a snapshot: the one that it lists is made beside it."""
    asked = admin.at(name="data", region="local", size_gb=1, encrypted=False)
    made = admin.call("Volume.createVolume", asked, into=t.Volume)
    assert (made.size_gb, made.fstype, made.attached_machine_id) == (1, "ext4", None)
    user = await admin.run(mounts=[{"volume": made.id, "path": "/data"}])
    there = admin.call("Volume.getVolume", admin.of_volume(made.id), into=t.Volume)
    assert (there.state, there.attached_machine_id) == ("created", user.id)
    assert 0 < there.blocks_avail <= there.blocks_free < there.blocks
    with pytest.raises(Refused, match=r"^4\d\d: "):
        admin.call("Volume.deleteVolume", admin.of_volume(made.id), into=t.Volume)
    extended = admin.call("Volume.extendVolume", admin.of_volume(made.id, size_gb=2), into=t.Extended)
    assert extended.volume.size_gb == 2

    async def grown() -> bool:
        """After a restart, unless a mount namespace of others that was made meanwhile has it mounted, too."""
        admin.call("Machine.restartMachine", admin.at(user.id), into=t.Ok)
        await admin.shop.wait(user.id, "started")
        told = admin.call("Volume.extendVolume", admin.of_volume(made.id, size_gb=2), into=t.Extended)
        return not told.needs_restart

    if extended.needs_restart:  # a host whose kernel grows no file system in use
        await eventually(grown)
    listed = admin.call("Volume.listVolumes", admin.shop.app, into=list[t.Volume])
    assert [(each.id, each.size_gb) for each in listed] == [(made.id, 2)] and listed[0].blocks > there.blocks
    snapshot = await admin.snapshot_of(made.id)
    found = admin.call("Volume.listSnapshots", admin.of_volume(made.id), into=list[t.Snapshot])
    assert [each.id for each in found] == [snapshot]
    admin.call("Machine.deleteMachine", admin.at(user.id, force=True), into=t.Ok)
    await admin.shop.gone(user.id)
    free = admin.call("Volume.getVolume", admin.of_volume(made.id), into=t.Volume)
    assert free.attached_machine_id is None
    gone = admin.call("Volume.deleteVolume", admin.of_volume(made.id), into=t.Volume)
    assert gone.state in ("scheduling_destroy", "pending_destroy")


async def test_its_graphql_tells_of_an_app_its_organization_and_the_regions(admin: Admin) -> None:
    app = admin.call("App.getAppDetailed", admin.shop.app, into=t.DetailedApp)
    assert (app.name, app.ipAddresses) == (admin.shop.app, [])
    found = admin.call("Organization.getOrganization", app.organization.slug, into=t.OrganizationAnswer).organization
    assert found.slug == app.organization.slug
    platform = admin.call("Regions.getRegions", into=t.PlatformAnswer).platform
    assert platform.requestRegion in {region.code for region in platform.regions}


async def test_its_graphql_allocates_and_releases_an_address(admin: Admin) -> None:
    wish = {"appId": admin.shop.app, "type": "private_v6"}
    made = admin.call("Network.allocateIpAddress", wish, into=t.AllocateAnswer).allocateIpAddress.ipAddress
    assert made is not None
    (there,) = admin.call("App.getAppDetailed", admin.shop.app, into=t.DetailedApp).ipAddresses
    assert (there.type, there.address) == ("private_v6", made.address)
    let_go = {"appId": admin.shop.app, "ipAddressId": made.id}
    gone = admin.call("Network.releaseIpAddress", let_go, into=t.ReleaseAnswer)
    assert gone.releaseIpAddress.app.name == admin.shop.app
    with pytest.raises(Refused, match="has none with this id"):
        admin.call("Network.releaseIpAddress", let_go, into=object)


async def test_its_graphql_sets_and_removes_secrets(admin: Admin) -> None:
    async def names() -> set[str]:
        answer = await admin.shop.client.call(LIST_SECRETS, params=AppParams(app_name=admin.shop.app))
        return {each.name for each in answer.secrets}

    given = {"appId": admin.shop.app, "secrets": [{"key": "A", "value": "1"}, {"key": "B", "value": "2"}]}
    assert admin.call("Secret.setSecrets", given, into=dict[str, Any]) == {"setSecrets": {"release": None}}
    assert await names() == {"A", "B"}
    admin.call("Secret.setSecrets", given | {"secrets": given["secrets"][1:], "replaceAll": True}, into=object)
    assert await names() == {"B"}
    admin.call("Secret.unsetSecrets", {"appId": admin.shop.app, "keys": ["B"]}, into=object)
    assert await names() == set()


def test_every_call_of_the_package_is_made_here(surface: set[str]) -> None:
    named = set(re.findall(r'"((?:App|Machine|Volume|Network|Organization|Regions|Secret)\.\w+)"', _own_text()))
    assert surface - named == set()


def _own_text() -> str:
    return Path(__file__).read_text()
