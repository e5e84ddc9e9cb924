"""Machines of several containers, ordered over HTTP from a node that runs them with crun."""

from pathlib import Path
from typing import Any

import pytest

from hawker.api.contract.exec import EXEC_MACHINE, MACHINE_LOGS, ExecRequest, LogsQuery
from hawker.api.contract.machine import Machine
from hawker.api.contract.node import LogChunk
from hawker.errors import BadRequest
from hawker.host.mount import unmount
from tests.e2e.running_node import running_node
from tests.e2e.shop import HELLO, Shop
from tests.e2e.web import answers, ask
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root]
LONGEST_S = 90.0
NEVER = {"policy": "no"}


def states(machine: Machine) -> dict[str, str]:
    return {each.name: each.state for each in machine.containers}


async def come_to(shop: Shop, machine_id: str, **wanted: str) -> None:
    async def there() -> bool:
        return states(await shop.get(machine_id)) == wanted

    await eventually(there, LONGEST_S)


async def said_in(shop: Shop, machine_id: str, container: str, script: str) -> str:
    body = ExecRequest(command=("sh", "-c", script), container=container, timeout=60)
    answer = await shop.client.call(EXEC_MACHINE, params=shop.params(machine_id), body=body)
    assert answer.exit_code == 0, answer
    return answer.stdout.strip()


async def logged_by(shop: Shop, machine_id: str, container: str) -> str:
    async with shop.client.stream(MACHINE_LOGS, params=shop.params(machine_id), query=LogsQuery()) as chunks:
        found: list[LogChunk] = [chunk async for chunk in chunks]
    return b"".join(chunk.data for chunk in found if chunk.container == container).decode()


def container(name: str, image: str, script: str = "sleep 3600", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": image, "exec": ["sh", "-c", script], **more}


async def test_two_containers_share_a_volume_and_one_waits_for_the_other(shop: Shop, toolbox_image: str) -> None:
    init = container(
        "init",
        toolbox_image,
        "sleep 0.3; echo prepared; echo mine > /tmp/own; echo hi > /data/shared/file",
        restart=NEVER,
        mounts=[{"name": "shared", "path": "/data/shared"}],
    )
    web = {"name": "web", "image": HELLO, "depends_on": [{"name": "init", "condition": "exited_successfully"}]}
    log = container("log", toolbox_image, mounts=[{"name": "shared", "path": "/srv"}])
    volumes = [{"name": "shared", "temp_dir": {"storage_type": "memory", "size_mb": 8}}]
    machine = await shop.run({"containers": [web, init, log], "volumes": volumes})
    await come_to(shop, machine.id, web="running", init="exited", log="running")
    await eventually(lambda: answers(machine.private_ip))
    assert machine.id in ask(machine.private_ip).body
    assert await said_in(shop, machine.id, "log", "cat /srv/file; ls /tmp") == "hi"
    assert await logged_by(shop, machine.id, "init") == "prepared\n"
    assert {process.container for process in await shop.processes(machine.id)} >= {"web", "log"}
    with pytest.raises(BadRequest, match="no container 'nope'"):
        await said_in(shop, machine.id, "nope", "true")


async def test_each_container_has_its_own_files_variables_and_names(shop: Shop, toolbox_image: str) -> None:
    file = {"guest_path": "/etc/own", "raw_value": "YQ=="}
    containers = [
        container("a", toolbox_image, env={"ME": "a"}, files=[file]),
        container("b", toolbox_image, env_from=[{"env_var": "ME", "field_ref": "id"}]),
    ]
    machine = await shop.run({"containers": containers, "env": {"ALL": "us"}})
    await come_to(shop, machine.id, a="running", b="running")
    assert await said_in(shop, machine.id, "a", "echo $ME $ALL; cat /etc/own; touch /tmp/new") == "a us\na"
    assert await said_in(shop, machine.id, "b", "echo $ME $ALL; ls /etc/own /tmp/new 2>/dev/null || true") == (
        f"{machine.id} us"
    )
    hosts = [await said_in(shop, machine.id, name, "cat /etc/hosts") for name in ("a", "b")]
    assert hosts[0] == hosts[1] and machine.private_ip in hosts[0]


async def test_a_disk_volume_holds_what_it_may_and_is_fresh_for_each_instance(shop: Shop, toolbox_image: str) -> None:
    mounts = [{"name": "shared", "path": "/shared"}]
    containers = [container(name, toolbox_image, mounts=mounts, user="1000:1000") for name in ("a", "b")]
    volumes = [{"name": "shared", "temp_dir": {"size_mb": 16}}]
    machine = await shop.run({"containers": containers, "volumes": volumes})
    await come_to(shop, machine.id, a="running", b="running")
    filled = await said_in(shop, machine.id, "a", "head -c 64M /dev/zero > /shared/big || ls -l /shared/big")
    assert 8 << 20 < int(filled.split()[4]) < 16 << 20
    assert await said_in(shop, machine.id, "b", "ls -l /shared/big") == filled
    await shop.restart(machine.id)
    await shop.wait(machine.id, "started")
    await come_to(shop, machine.id, a="running", b="running")
    assert await said_in(shop, machine.id, "b", "ls /shared") == ""


async def test_health_is_waited_for_and_shown(shop: Shop, toolbox_image: str) -> None:
    check = {
        "name": "ready",
        "exec": {"command": ["sh", "-c", "test -e /tmp/ready"]},
        "interval": 1,
        "success_threshold": 2,
    }
    db = container("db", toolbox_image, healthchecks=[check])
    web = {
        "name": "web",
        "image": HELLO,
        "depends_on": [{"name": "db", "condition": "healthy"}],
        "healthchecks": [{"name": "answers", "http": {"port": 8080, "path": "/"}, "interval": 1}],
    }
    machine = await shop.run({"containers": [web, db]})
    await come_to(shop, machine.id, web="pending", db="running")
    await said_in(shop, machine.id, "db", "touch /tmp/ready")
    await come_to(shop, machine.id, web="running", db="running")

    async def all_pass() -> bool:
        return {each.name: each.status for each in (await shop.get(machine.id)).checks} == {
            "answers": "passing",
            "ready": "passing",
        }

    await eventually(all_pass, LONGEST_S)


async def test_the_machine_ends_as_its_first_failure_and_leaves_nothing_mounted(shop: Shop, toolbox_image: str) -> None:
    shared = {"restart": NEVER, "mounts": [{"name": "shared", "path": "/shared"}]}
    containers = [
        container("good", toolbox_image, "exit 0", restart=NEVER),
        container("bad", toolbox_image, "sleep 0.2; touch /shared/over; exit 7", **shared),
        container("worse", toolbox_image, "until test -e /shared/over; do sleep 0.1; done; sleep 2; exit 9", **shared),
    ]
    volumes = [{"name": "shared", "temp_dir": {"storage_type": "memory", "size_mb": 1}}]
    machine = await shop.order({"containers": containers, "volumes": volumes, "restart": NEVER})
    await shop.wait(machine.id, "stopped")
    (exit,) = await shop.exits(machine.id)
    assert (exit.exit_code, exit.requested_stop) == (7, False)
    await eventually(lambda: f"machines/{machine.id}" not in Path("/proc/self/mountinfo").read_text(), LONGEST_S)


async def test_everything_goes_on_after_a_kill_of_the_daemon(tmp_path: Path, toolbox_image: str) -> None:
    job = container(
        "job",
        toolbox_image,
        "echo run >> /shared/runs; sleep 0.2; exit 3",
        mounts=[{"name": "shared", "path": "/shared"}],
    )
    web = {"name": "web", "image": HELLO, "depends_on": [{"name": "late", "condition": "exited_successfully"}]}
    late = container("late", toolbox_image, "while ! test -e /shared/go; do sleep 0.1; done", restart=NEVER,
                     mounts=[{"name": "shared", "path": "/shared"}])  # fmt: skip
    log = container("log", toolbox_image, mounts=[{"name": "shared", "path": "/shared"}])
    volumes = [{"name": "shared", "temp_dir": {"storage_type": "memory", "size_mb": 1}}]
    with running_node(tmp_path / "node", "--ephemeral") as node:
        async with node.client() as client:
            shop = await Shop(client, "shop").open()
            config = {"containers": [web, late, job, log], "volumes": volumes}
            machine = await shop.run(config)
            before = await shop.pid(machine.id)

            async def tried() -> bool:
                return await _runs(shop, machine.id) >= 2

            await eventually(tried, LONGEST_S)
            await said_in(shop, machine.id, "log", "touch /shared/go")
            node.kill()
            node.start()
        async with node.client() as client:
            shop = Shop(client, "shop")
            await come_to_running(shop, machine.id)
            runs = await _runs(shop, machine.id)
            assert await shop.pid(machine.id) == before
            assert await shop.exits(machine.id) == []
            assert 2 <= runs < 10
            await shop.destroy(machine.id)
            await shop.gone(machine.id)


async def _runs(shop: Shop, machine_id: str) -> int:
    """How often the container `job` ran."""
    return len((await said_in(shop, machine_id, "log", "cat /shared/runs 2>/dev/null || true")).splitlines())


async def come_to_running(shop: Shop, machine_id: str) -> None:
    async def there() -> bool:
        found = states(await shop.get(machine_id))
        return (found["web"], found["late"]) == ("running", "exited")

    await eventually(there, LONGEST_S)


async def test_a_root_that_was_taken_away_on_the_host_is_given_back(tmp_path: Path, toolbox_image: str) -> None:
    with running_node(tmp_path / "node", "--ephemeral", "--reconcile-every-s", "1") as node:
        async with node.client() as client:
            shop = await Shop(client, "shop").open()
            machine = await shop.run({"containers": [container(name, toolbox_image) for name in ("a", "b")]})
            await come_to(shop, machine.id, a="running", b="running")
            root = node.data_dir / "machines" / machine.id / "containers" / "b"
            await said_in(shop, machine.id, "b", "echo mine > /tmp/new")
            unmount(root)
            await eventually((root / "tmp/new").exists, LONGEST_S)
            await shop.destroy(machine.id)
            await shop.gone(machine.id)
