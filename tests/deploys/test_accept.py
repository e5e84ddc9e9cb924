"""What is refused before a deploy begins."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from hawker.api.contract.app import AppParams
from hawker.api.contract.deploy import CreateDeployRequest
from hawker.api.contract.machine import (
    CREATE_MACHINE,
    UPDATE_MACHINE,
    CreateMachineRequest,
    Machine,
    MachineParams,
    UpdateMachineRequest,
)
from hawker.api.grant import Everything
from hawker.config.machine import Container, RootfsConfig
from hawker.deploys.flows import DEPLOY, DeployInput
from hawker.deploys.releases import CLIENT_GONE_S, ReleaseTable, check_free
from hawker.errors import Conflict, HawkerError, Unprocessable
from hawker.fsm.contract import WhenBusy
from hawker.ids import AppName
from hawker.record.app import CERTIFICATE_ORDERS, RELEASES, CertificateOrder
from hawker.record.deploy import DEPLOY_SLOTS, DEPLOYS, deploy_key, deploy_resource
from hawker.sim.node.sim_worker import SimWorker
from hawker.store.contract import Tx
from hawker.up.wiring import catch_up_of
from tests.deploys.deploying import WEB, deploy, ended, groups, machines

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("definition", "body", "text"),
    [
        ({"http_service": {"internal_port": "abc"}}, {}, "http_service.internal_port"),
        ({"surprise": 1}, {}, "surprise"),
        ({}, {"image": None}, "there is no image"),
        ({}, {"strategy": "bluegreen"}, "bluegreen needs a check"),
        ({"files": [{"guest_path": "/a", "secret_name": "NOPE"}]}, {}, "has no such secret"),
        ({"files": [{"guest_path": "/a", "local_path": "a"}]}, {}, "no local_path"),
        ({"mounts": [{"source": "data", "destination": "/data"}]}, {}, "hawker volumes create data -a stall"),
        (
            {
                "primary_region": "local",
                "mounts": {
                    "source": "data",
                    "destination": "/data",
                    "initial_size": "20gb",
                    "snapshot_retention": 9,
                    "scheduled_snapshots": False,
                },
            },
            {},
            "-a stall -r local --size 20 --snapshot-retention 9 --no-scheduled-snapshots`",
        ),
        ({"mounts": [{"source": "data", "destination": "/data"}]}, {"strategy": "canary"}, "cannot have"),
        ({}, {"label": "x" * 2001}, "description"),
        ({}, {"image": "oci:/nowhere"}, "nowhere"),
        ({"primary_region": "nowhere"}, {}, r"group 'app': .* region 'nowhere' has room for 0"),
        (
            {"vm": [{"cpu_kind": "performance", "cpus": 16, "memory": "128gb"}]},
            {},
            "131072 MiB, and the fleet has room for 0",
        ),
    ],
)
async def test_an_impossible_deploy_is_refused_before_anything_is_touched(
    worker: SimWorker, definition: dict[str, Any], body: dict[str, Any], text: str
) -> None:
    with pytest.raises(HawkerError, match=text):
        await deploy(worker, definition, **body)
    assert worker.store.count(RELEASES) == worker.store.count(DEPLOYS) == 0
    assert await machines(worker) == []


async def test_a_dry_run_says_what_would_be_and_does_nothing(worker: SimWorker) -> None:
    shown = await deploy(worker, WEB, dry_run=True)
    assert (shown.status, [slot.kind for slot in shown.slots]) == ("planned", ["create", "create"])
    assert worker.store.count(DEPLOYS) == 0 and await machines(worker) == []


@pytest.mark.parametrize("status", ["pending", "running"])
async def test_while_a_client_drives_a_deploy_by_itself_ours_is_refused(worker: SimWorker, status: str) -> None:
    releases = ReleaseTable(worker.store, worker.parts.deps.clock)
    made = await releases.add(
        "stall", image="a:1", strategy="rolling", description="", definition=b"", user="flyctl of ann"
    )
    await releases.move("stall", made.version, status)
    with pytest.raises(Conflict, match=r"release 1 .* flyctl of ann .* deploy again in \d+ s"):
        await deploy(worker, WEB)
    assert worker.store.count(DEPLOYS) == 0 and await machines(worker) == []
    await releases.move("stall", made.version, "complete")
    await deploy(worker, WEB)


async def test_a_deploy_begins_once_the_last_one_has_ended_though_its_run_is_not_over(worker: SimWorker) -> None:
    """Its run tells the deploy's voters of the end, which whoever asks has seen by then."""
    version = (await deploy(worker, WEB)).version
    await ended(worker)

    def begin_again(tx: Tx) -> None:
        given = DeployInput(app="stall", version=version)
        worker.parts.runner.accept(tx, DEPLOY, deploy_resource("stall"), given, when_busy=WhenBusy.REFUSE)
        check_free(tx, "stall", worker.parts.deps.clock.now())

    await worker.store.write(begin_again)
    assert (await deploy(worker, WEB)).version == version + 1
    assert (await ended(worker)).status == "complete"
    await worker.at_rest()


async def test_a_client_that_said_nothing_for_long_is_gone(worker: SimWorker) -> None:
    clock = worker.parts.deps.clock
    await ReleaseTable(worker.store, clock).add(
        "stall", image="a:1", strategy="rolling", description="", definition=b"", user=""
    )
    await clock.sleep(CLIENT_GONE_S + 1)
    await deploy(worker, WEB)


async def left_green(worker: SimWorker, group: str, version: int) -> str:
    """What a client makes beside a machine of the group, and would have replaced it with."""
    blue = next(each for each in await machines(worker) if groups([each])[0][0] == group)
    assert blue.config is not None
    marks = {"fly_release_version": str(version), "fly_bluegreen_deployment_tag": "1766000000"}
    config = msgspec.structs.replace(blue.config, metadata={**(blue.config.metadata or {}), **marks})
    params = AppParams(app_name="stall")
    return (await worker.api.call(CREATE_MACHINE, params=params, body=CreateMachineRequest(config=config))).id


async def test_machines_that_a_client_killed_in_a_bluegreen_deploy_left_do_not_stay_beside_the_rest(
    worker: SimWorker,
) -> None:
    await deploy(worker, WEB)
    await ended(worker)
    blue = {each.id for each in await machines(worker)}
    clock = worker.parts.deps.clock
    releases = ReleaseTable(worker.store, clock)
    made = await releases.add("stall", image="a:1", strategy="bluegreen", description="", definition=b"", user="")
    await releases.move("stall", made.version, "running")
    green = {await left_green(worker, "web", made.version) for _ in range(2)}
    await clock.sleep(CLIENT_GONE_S + 1)
    shown = await deploy(worker, WEB, dry_run=True)
    gone = {slot.machine_id for slot in shown.slots if slot.kind == "destroy"}
    web = {each.id for each in await machines(worker) if groups([each])[0][0] == "web"}
    assert gone == web & blue, "the green ones are more"
    await deploy(worker, WEB)
    assert (await ended(worker)).status == "complete"
    there = await machines(worker)
    assert {each.id for each in there} == (blue - gone) | green
    assert {release for _, release, _ in groups(there)} == {str(made.version + 1)}


@pytest.mark.parametrize("status", ["complete", "interrupted"])
async def test_of_two_equal_generations_the_one_that_was_to_be_replaced_stays(worker: SimWorker, status: str) -> None:
    """And of a release that was brought to its end all machines stay."""
    await deploy(worker, WEB)
    await ended(worker)
    releases = ReleaseTable(worker.store, worker.parts.deps.clock)
    made = await releases.add("stall", image="a:1", strategy="bluegreen", description="", definition=b"", user="")
    green = await left_green(worker, "web", made.version)
    await releases.move("stall", made.version, status)
    shown = await deploy(worker, WEB, dry_run=True)
    gone = [slot.machine_id for slot in shown.slots if slot.kind == "destroy"]
    assert gone == ([] if status == "complete" else [green])


async def test_a_deploy_that_supersedes_ends_the_one_under_way_where_it_is(worker: SimWorker) -> None:
    await deploy(worker, WEB)
    await ended(worker)
    await deploy(worker, WEB | {"env": {"A": "2"}, "hawker": {"deploy": {"smoke": "1000s"}}})
    with pytest.raises(Conflict):
        await deploy(worker, WEB)
    await deploy(worker, WEB | {"env": {"A": "3"}}, supersede=True)
    assert ((await ended(worker, 2)).status, (await ended(worker, 3)).status) == ("interrupted", "complete")
    assert {release for _, release, _ in groups(await machines(worker))} == {"3"}


async def test_a_deploy_touches_what_it_is_narrowed_to(worker: SimWorker) -> None:
    await deploy(worker, WEB)
    await ended(worker)
    one, other = (each.id for each in await machines(worker))
    three = {"processes": {"web": "serve", "jobs": "work", "late": "wait"}}

    async def touched(definition: dict[str, Any], **scope: Any) -> list[tuple[str, str]]:
        planned = await deploy(worker, definition, dry_run=True, **scope)
        return sorted((slot.kind, slot.machine_id) for slot in planned.slots)

    assert await touched(WEB, only_machines=(one,)) == [("update", one)]
    assert await touched(three, exclude_machines=(one,)) == [("create", ""), ("update", other)]
    assert await touched(three, process_groups=("late",)) == [("create", "")]
    assert await touched(three, update_only=True) == sorted([("update", one), ("update", other)])
    assert await touched(WEB, exclude_regions=("local",)) == []
    gone = {"processes": {"web": "serve"}}
    assert {kind for kind, _ in await touched(gone)} == {"update", "destroy"}
    assert {kind for kind, _ in await touched(gone, update_only=True)} == {"update"}


async def test_a_deploy_that_is_narrowed_to_what_is_not_there_is_refused(worker: SimWorker) -> None:
    with pytest.raises(Unprocessable, match="no machine 'abc' of the app") as refused:
        await deploy(worker, WEB, only_machines=("abc",), process_groups=("mail",))
    assert "no process group 'mail'" in str(refused.value)


async def reconfigured(worker: SimWorker, **fields: Any) -> Machine:
    """The one machine of a deploy, after another client has changed its config."""
    await deploy(worker)
    await ended(worker)
    (made,) = await machines(worker)
    assert made.config is not None
    body = UpdateMachineRequest(config=msgspec.structs.replace(made.config, **fields))
    await worker.api.call(UPDATE_MACHINE, params=MachineParams(app_name="stall", machine_id=made.id), body=body)
    return made


@pytest.mark.parametrize("strategy", ["rolling", "canary"])
async def test_a_deploy_keeps_a_root_filesystem_that_outlives_instances(worker: SimWorker, strategy: str) -> None:
    kept = RootfsConfig(persist="always", size_gb=2)
    made = await reconfigured(worker, rootfs=kept, disable_machine_autostart=True, schedule="daily")
    shown = await deploy(worker, {"vm": [{"memory": "512mb"}]}, strategy=strategy)
    assert (await ended(worker)).status == "complete"
    slots = [slot for _, slot in worker.store.scan(DEPLOY_SLOTS, deploy_key("stall", shown.version))]
    configs = [slot.config for slot in slots if slot.config is not None]
    assert [config.rootfs for config in configs] == [kept] * (1 if strategy == "rolling" else 2)
    assert [config.schedule for config in configs][-1] == "daily" and configs[0].disable_machine_autostart
    assert strategy == "rolling" or configs[0].schedule is None
    (after,) = await machines(worker)
    assert after.id == made.id and after.config is not None and after.config.guest is not None
    assert (after.config.rootfs, after.config.guest.memory_mb) == (kept, 512)


async def test_a_file_that_the_containers_of_a_machine_exclude_is_refused(worker: SimWorker) -> None:
    await reconfigured(worker, containers=(Container(name="a"),))
    with pytest.raises(Unprocessable, match=r"keeps its containers: files: name them in containers\[\]"):
        await deploy(worker, {"files": [{"guest_path": "/a", "raw_value": "eA=="}]})


async def test_only_the_machine_that_new_ones_are_made_like_is_asked_for_its_containers(worker: SimWorker) -> None:
    """When machines are counted, since no other one is touched or copied."""
    with_files = {"files": [{"guest_path": "/a", "raw_value": "eA=="}]}

    async def kinds(count: int) -> list[str]:
        shown = await deploy(worker, with_files, counts={"app": count}, strategy="rolling", dry_run=True)
        return [slot.kind for slot in shown.slots]

    made = await reconfigured(worker, containers=(Container(name="a"),))
    assert await kinds(1) == [] and await kinds(0) == ["destroy"]
    with pytest.raises(Unprocessable, match=f"{made.id} .* keeps its containers"):
        await kinds(2)
    assert made.config is not None
    body = CreateMachineRequest(config=made.config)
    await worker.api.call(CREATE_MACHINE, params=AppParams(app_name="stall"), body=body)
    await worker.stop(made.id)
    assert await kinds(3) == ["create"]


async def test_a_key_that_a_lax_reading_passes_over_is_a_warning_of_the_deploy(worker: SimWorker) -> None:
    shown = await deploy(worker, {"vm": [{"memroy": "1gb"}]}, lax=True)
    assert shown.warnings == ("vm[0].memroy is passed over: unknown key; did you mean memory?",)


async def test_key_of_hosts_in_a_release_keeps_no_machine_from_its_count(worker: SimWorker) -> None:
    await deploy(worker)
    await ended(worker)
    asked = {"vm": [{"required_host_features": ["avx"]}]}
    shown = await deploy(worker, asked, lax=True, counts={"app": 2}, strategy="rolling")
    assert shown.warnings == ("vm[0].required_host_features is passed over: not served: hosts declare no features",)
    assert (await ended(worker)).status == "complete" and len(await machines(worker)) == 2


HTTPS = {"http_service": {"internal_port": 8080, "force_https": True}}


async def test_a_redirect_to_https_without_a_certificate_is_a_warning(worker: SimWorker) -> None:
    (said,) = (await deploy(worker, HTTPS, dry_run=True)).warnings
    assert "`hawker certs add HOST -a stall`" in said and "force_https = false" in said
    signed = {"internal_port": 8080, "force_https": True, "tls_options": {"default_self_signed": True}}
    assert (await deploy(worker, {"http_service": signed}, dry_run=True)).warnings == ()
    assert (await deploy(worker, {"http_service": {"internal_port": 8080}}, dry_run=True)).warnings == ()


@pytest.mark.parametrize("owner", ["stall", "other"])
async def test_a_certificate_that_is_ordered_for_the_app_is_enough(worker: SimWorker, owner: str) -> None:
    order = CertificateOrder(hostname="shop.example.com", app=AppName(owner), created_at=1.0)
    await worker.store.write(lambda tx: tx.put(CERTIFICATE_ORDERS, order.hostname, order))
    assert bool((await deploy(worker, HTTPS, dry_run=True)).warnings) is (owner == "other")


async def test_a_domain_of_the_platform_covers_every_app(worker: SimWorker) -> None:
    intake = catch_up_of(worker.parts).intake()
    body = CreateDeployRequest(definition=HTTPS, image="hawker/hello", dry_run=True)
    assert (await intake.accept("stall", body, Everything("ann"))).warnings
    of_a_domain = replace(intake, domain="apps.example.com")
    assert (await of_a_domain.accept("stall", body, Everything("ann"))).warnings == ()
