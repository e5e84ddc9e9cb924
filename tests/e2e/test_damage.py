"""What is done to a node behind its back: found by the doctor, mended without hurting a machine, and found no more.

The node does not reconcile by itself here, so that what the doctor finds is what was done and nobody else mends it.
"""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from hawker.api.client import Client
from hawker.api.contract.node import LIST_FINDINGS, REPAIR_FINDINGS, RepairRequest
from hawker.host import netns
from hawker.host.address import bridge_name, veth_name
from hawker.host.cgroup import find_hierarchies
from hawker.host.idmap import acting_as
from hawker.host.mount import is_mounted, mounts, unmount
from hawker.ids import MachineId, NodeId
from tests.crash.invariants import pilots
from tests.e2e import web
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.shop import HELLO, Shop
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.slow]

CONFIG = {"image": HELLO, "guest": {"memory_mb": 64}}
STAYS_OFF = {**CONFIG, "restart": {"policy": "no"}}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with running_node(tmp_path_factory.mktemp("hurt"), "--ephemeral", "--reconcile-every-s", "86400") as node:
        yield node


async def found(client: Client) -> list[tuple[str, str]]:
    answer = await client.call(LIST_FINDINGS)
    return [(finding.kind, finding.about) for finding in answer.findings]


async def finds(client: Client, *expected: tuple[str, str]) -> None:
    """Just that, once what was under way is over."""
    await eventually(lambda: _finds_just(client, list(expected)))


async def _finds_just(client: Client, expected: list[tuple[str, str]]) -> bool:
    return sorted(await found(client)) == sorted(expected)


async def mended(client: Client, *, end_foreign: bool = False) -> dict[str, str | None]:
    """What became of each kind of finding."""
    answer = await client.call(REPAIR_FINDINGS, body=RepairRequest(end_foreign=end_foreign))
    assert not [each for each in answer.findings if each.error], answer
    return {finding.kind: finding.outcome for finding in answer.findings}


async def answers(private_ip: str) -> None:
    await eventually(lambda: web.answers(private_ip))


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def groups(node: RunningNode, machine_id: str) -> list[Path]:
    trees = find_hierarchies(mounts()).trees()
    return [tree / f"hawker-{node.node_id[:4]}" / machine_id for tree in trees]


def members(group: Path) -> list[int]:
    return [int(line) for line in (group / "cgroup.procs").read_text().split()]


async def test_a_healthy_node_has_no_findings(client: Client, shop: Shop) -> None:
    machine = await shop.run(CONFIG)
    stopped = await shop.run(CONFIG)
    await shop.stop(stopped.id)
    await shop.wait(stopped.id, "stopped")
    await finds(client)
    assert (await shop.get(machine.id)).state == "started"


# The container.


async def test_a_container_killed_behind_our_back_is_started_again(client: Client, shop: Shop) -> None:
    machine = await shop.run(CONFIG)
    pid = await shop.pid(machine.id)
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: _ended(shop, machine.id))
    await shop.wait(machine.id, "started")
    assert [exit.exit_code for exit in await shop.exits(machine.id)] == [137]
    assert await shop.pid(machine.id) != pid and len(pilots(machine.id)) == 1
    await finds(client)


async def _ended(shop: Shop, machine_id: str) -> bool:
    return bool(await shop.exits(machine_id))


async def test_a_container_deleted_behind_our_back_has_its_exit_recorded(
    node: RunningNode, client: Client, shop: Shop
) -> None:
    """As `crun delete --force` does it: every process killed, control group and state removed."""
    machine = await shop.run(STAYS_OFF)
    for pid in members(groups(node, machine.id)[0]):
        with suppress(ProcessLookupError):  # the pilot's end is everybody's
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(node.place.crun / machine.id, ignore_errors=True)
    await shop.wait(machine.id, "stopped")
    assert [exit.exit_code for exit in await shop.exits(machine.id)] == [137]
    await finds(client)


async def test_a_container_that_its_runtime_has_forgotten_runs_on(
    node: RunningNode, client: Client, shop: Shop
) -> None:
    """crun keeps a directory of each container; our launcher leaves its plan."""
    machine = await shop.run(CONFIG)
    shutil.rmtree(node.place.crun / machine.id, ignore_errors=True)
    (node.place.machines / machine.id / "run/box.plan").unlink(missing_ok=True)
    await finds(client, ("lost runtime state", machine.id))
    assert await mended(client) == {"lost runtime state": "left"}
    await answers(machine.private_ip)
    await shop.restart(machine.id)
    await finds(client)


async def test_a_machine_whose_directory_is_gone_is_ended_and_begun_anew(
    node: RunningNode, client: Client, shop: Shop
) -> None:
    machine = await shop.run(CONFIG)
    (before,) = pilots(machine.id)
    shutil.rmtree(node.data_dir / "machines" / machine.id / "run")
    await finds(client, ("lost instance", machine.id))
    assert await mended(client) == {"lost instance": "mended"}
    await eventually(lambda: pilots(machine.id) not in ([], [before]))
    await shop.wait(machine.id, "started")
    assert len(pilots(machine.id)) == 1
    await finds(client)


async def test_a_pilot_without_a_directory_and_without_a_machine_is_ended(
    node: RunningNode, client: Client, shop: Shop
) -> None:
    """A machine that is off by its record, and a process of it that nobody can talk to."""
    machine = await shop.run(STAYS_OFF)
    shutil.rmtree(node.data_dir / "machines" / machine.id / "run")
    await finds(client, ("lost instance", machine.id))
    assert await mended(client) == {"lost instance": "mended"}
    await shop.wait(machine.id, "stopped")
    await eventually(lambda: _finds(client, "stray instance"))
    assert "stray instance" in await mended(client)
    assert pilots(machine.id) == []
    await finds(client)


async def _finds(client: Client, kind: str) -> bool:
    return kind in dict(await found(client))


# What it stands on.


def seen_by(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/root/{name}").read_text()


async def test_an_unmounted_rootfs_is_mounted_again_under_the_running_machine(
    node: RunningNode, client: Client, shop: Shop
) -> None:
    machine = await shop.run(CONFIG)
    rootfs = node.data_dir / "machines" / machine.id / "rootfs"
    pid = await shop.pid(machine.id)
    unmount(rootfs)
    await finds(client, ("lost rootfs", machine.id))
    await answers(machine.private_ip)
    assert await mended(client) == {"lost rootfs": "mended"}
    await finds(client)
    with acting_as(rootfs.stat().st_uid):
        (rootfs / "from-the-host").write_text("seen")
    assert seen_by(pid, "from-the-host") == "seen"
    assert pilots(machine.id) == [pid]
    await shop.stop(machine.id)
    await shop.wait(machine.id, "stopped")
    await eventually(lambda: not is_mounted(rootfs))


async def test_a_removed_control_group_is_made_again_around_the_running_machine(
    node: RunningNode, client: Client, shop: Shop
) -> None:
    machine = await shop.run(CONFIG)
    inside = sorted(members(groups(node, machine.id)[0]))
    take_out(node, machine.id)
    await finds(client, ("lost control group", machine.id))
    assert await mended(client) == {"lost control group": "mended"}
    await finds(client)
    for group in groups(node, machine.id):
        assert sorted(members(group)) == inside
        limit = group / "memory.limit_in_bytes"
        assert not limit.exists() or int(limit.read_text()) == 64 << 20
        devices = group / "devices.list"
        assert not devices.exists() or "a *:* rwm" not in devices.read_text()
    await answers(machine.private_ip)


def take_out(node: RunningNode, machine_id: str) -> None:
    """Every process out of the machine's groups, and the groups away."""
    if not find_hierarchies(mounts()).v1:
        pytest.skip("with cgroup v2 only the runtime can make a group with its device rules")
    for group in groups(node, machine_id):
        for pid in members(group):
            (group.parent.parent / "cgroup.procs").write_text(str(pid))
        group.rmdir()


async def test_a_machine_without_its_control_group_can_be_destroyed(
    node: RunningNode, client: Client, shop: Shop
) -> None:
    machine = await shop.run(CONFIG)
    take_out(node, machine.id)
    await shop.destroy(machine.id)
    await shop.gone(machine.id)
    assert pilots(machine.id) == []
    await finds(client)


async def test_an_unbound_network_namespace_is_bound_again(node: RunningNode, client: Client, shop: Shop) -> None:
    machine = await shop.run(CONFIG)
    bound = node.place.networks / machine.id
    unmount(bound)
    await finds(client, ("lost network", machine.id))
    assert await mended(client) == {"lost network": "mended"}
    assert is_mounted(bound)
    await finds(client)
    await answers(machine.private_ip)


async def test_a_removed_link_is_plugged_in_again(node: RunningNode, client: Client, shop: Shop) -> None:
    machine = await shop.run(CONFIG)
    run("ip", "link", "delete", veth_name(NodeId(node.node_id), MachineId(machine.id)))
    await finds(client, ("lost network", machine.id))
    assert await mended(client) == {"lost network": "mended"}
    await finds(client)
    await answers(machine.private_ip)


async def test_a_removed_bridge_is_made_again(node: RunningNode, client: Client, shop: Shop) -> None:
    machine, other = await shop.run(CONFIG), await shop.run(CONFIG)
    network_id = int(machine.private_ip.split(":")[1], 16) << 16 | int(machine.private_ip.split(":")[2], 16)
    run("ip", "link", "delete", bridge_name(NodeId(node.node_id), network_id))
    await finds(client, *(("lost network", each.id) for each in (machine, other)))
    assert await mended(client) == {"lost network": "mended"}
    await finds(client)
    await answers(machine.private_ip)
    await answers(other.private_ip)


async def test_removed_packet_rules_are_put_in_place_again(node: RunningNode, client: Client, shop: Shop) -> None:
    machine, other = await shop.run(CONFIG), await shop.run(CONFIG)
    run("nft", "delete", "table", "inet", f"hawker_{node.node_id[:4]}")
    await finds(client, ("lost packet rules", "host"))
    assert await mended(client) == {"lost packet rules": "mended"}
    await finds(client)
    await answers(machine.private_ip)
    await answers(other.private_ip)
    reach = partial(socket.create_connection, (other.private_ip, 8080), 60)
    netns.inside(node.place.networks / machine.id, reach).close()


async def test_files_of_no_machine_are_removed(node: RunningNode, client: Client, shop: Shop) -> None:
    await shop.run(CONFIG)
    mount, link = node.data_dir / "mounts" / ("0" * 64), f"hw{node.node_id[:4]}veeeeeeee"
    mount.mkdir()
    run("mount", "-t", "tmpfs", "none", str(mount))
    run("ip", "link", "add", link, "type", "bridge")
    (node.place.networks / "fffffffffffff0").touch()
    (node.data_dir / "machines" / "fffffffffffff1").mkdir()
    for tree in find_hierarchies(mounts()).trees():
        (tree / f"hawker-{node.node_id[:4]}" / "fffffffffffff2").mkdir()
    (node.place.crun / "fffffffffffff3").mkdir(parents=True)
    await finds(
        client,
        ("stray directory", "fffffffffffff1"),
        ("stray instance", "fffffffffffff2"),
        ("stray instance", "fffffffffffff3"),
        ("stray interface", link),
        ("stray mount", str(mount)),
        ("stray network", "fffffffffffff0"),
    )
    assert set((await mended(client)).values()) == {"mended"}
    await finds(client)
    assert not mount.exists()


async def test_a_node_mends_by_itself(tmp_path: Path) -> None:
    """Without anybody asking, again and again."""
    with running_node(tmp_path / "minded", "--ephemeral", "--reconcile-every-s", "1") as node:
        async with node.client() as client:
            shop = await Shop(client, "minded").open()
            machine = await shop.run(CONFIG)
            rootfs = node.data_dir / "machines" / machine.id / "rootfs"
            pid = await shop.pid(machine.id)
            for _ in range(2):
                unmount(rootfs)
                run("nft", "delete", "table", "inet", f"hawker_{node.node_id[:4]}")
                await eventually(lambda: is_mounted(rootfs))
                await finds(client)
            assert pilots(machine.id) == [pid]


async def test_a_machine_of_processes_that_lost_its_directory_is_begun_anew(tmp_path: Path) -> None:
    """Nothing but /proc knows the old one; without it there would be two."""
    flags = ("--ephemeral", "--driver", "process", "--reconcile-every-s", "86400")
    with running_node(tmp_path / "plain", "--ephemeral", *flags) as node:
        async with node.client() as client:
            shop = await Shop(client, "plain").open()
            config = {"image": HELLO, "init": {"exec": ["/bin/sh", "-c", "exec sleep 1000"]}}
            machine = await shop.run(config)
            await finds(client)
            before = await shop.pid(machine.id)
            shutil.rmtree(node.data_dir / "machines" / machine.id / "run")
            await finds(client, ("lost instance", machine.id))
            assert await mended(client) == {"lost instance": "mended"}
            await eventually(lambda: _has_ended(before))
            await eventually(lambda: _runs_again(shop, machine.id, before))
            await finds(client)


def _has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "Z"
    except OSError:
        return True


async def _runs_again(shop: Shop, machine_id: str, before: int) -> bool:
    return (await shop.get(machine_id)).state == "started" and await shop.pid(machine_id) != before
