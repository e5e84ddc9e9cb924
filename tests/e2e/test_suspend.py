"""Suspended machines, their memory and what is kept of their files, over HTTP on a node that runs containers."""

import contextlib
import http.client
import os
from pathlib import Path

import msgspec
import pytest

from hawker.api.contract.machine import SignalRequest
from hawker.api.contract.machine_operation import (
    GET_MEMORY,
    RECLAIM_MEMORY,
    SET_MEMORY,
    SIGNAL_MACHINE,
    SUSPEND_MACHINE,
    ReclaimRequest,
    SetMemoryRequest,
)
from hawker.errors import Conflict, NotServed, Unprocessable, WrongState
from tests.e2e.images import write_layout
from tests.e2e.running_node import running_node
from tests.e2e.shop import HELLO, Shop
from tests.e2e.web import answers, ask
from tests.fixtures.parts import ImageParts
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root]
SLEEPS = {"exec": ["sleep", "3600"]}
LONGEST_S = 150.0


def host_has_swap() -> bool:
    return len(Path("/proc/swaps").read_text().splitlines()) > 1


async def suspend(shop: Shop, machine_id: str) -> None:
    answer = await shop.client.call(SUSPEND_MACHINE, params=shop.params(machine_id))
    assert answer.ok and answer.kind == "freeze"
    await shop.wait(machine_id, "suspended")


async def test_an_open_connection_outlives_a_suspension(shop: Shop) -> None:
    machine = await shop.run({"image": HELLO})
    await eventually(lambda: answers(machine.private_ip))
    pid = (await shop.processes(machine.id))[0].pid
    with contextlib.closing(http.client.HTTPConnection(machine.private_ip, 8080, timeout=60)) as connection:
        connection.connect()
        await suspend(shop, machine.id)
        connection.request("GET", "/")
        assert connection.sock is not None
        connection.sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.sock.recv(1)
        connection.sock.settimeout(60)
        await shop.start(machine.id)
        assert machine.id in connection.getresponse().read().decode()
    started = await shop.wait(machine.id, "started")
    assert (await shop.processes(machine.id))[0].pid == pid and await shop.exits(machine.id) == []
    assert started.events[0].resumed and (started.version, started.private_ip) == (machine.version, machine.private_ip)


async def test_calls_into_a_suspended_machine_are_answered_at_once(shop: Shop) -> None:
    machine = await shop.run({"image": HELLO, "stop_config": {"timeout": "60s"}})
    await eventually(lambda: answers(machine.private_ip))  # by then it hears signals, too
    await suspend(shop, machine.id)
    with pytest.raises(WrongState, match="unable to exec machine from current state: 'suspended'"):
        await shop.exec(machine.id, "/bin/hello", "id")
    with pytest.raises(WrongState, match="'suspended'"):
        await shop.processes(machine.id)
    with pytest.raises(WrongState, match="unable to signal machine"):
        await shop.client.call(SIGNAL_MACHINE, params=shop.params(machine.id), body=SignalRequest(signal="TERM"))
    await shop.stop(machine.id)
    await shop.wait(machine.id, "stopped")
    (exit,) = await shop.exits(machine.id)
    assert (exit.exit_code, exit.requested_stop) == (0, True), "it was thawed, and heard its signal"


async def test_memory_is_shown_changed_and_enforced(shop: Shop, toolbox_image: str) -> None:
    config = {"image": toolbox_image, "init": SLEEPS, "guest": {"memory_mb": 128, "max_memory_mb": 256}}
    machine = await shop.run(config)
    target = shop.params(machine.id)
    shown = await shop.client.call(GET_MEMORY, params=target)
    assert shown.limit_mb == 128 and 64 < shown.available_mb <= 128
    hungry = "x=$(yes | head -c 90000000); echo ${#x}"
    assert (await shop.shell(machine.id, hungry)).exit_code != 0, "there is no room for it and its copies"
    changed = await shop.client.call(SET_MEMORY, params=target, body=SetMemoryRequest(limit_mb=256))
    assert changed.limit_mb == 256
    with pytest.raises(Unprocessable, match="between 32 and 256"):
        await shop.client.call(SET_MEMORY, params=target, body=SetMemoryRequest(limit_mb=257))
    await shop.restart(machine.id)
    await shop.wait(machine.id, "started")
    assert (await shop.client.call(GET_MEMORY, params=target)).limit_mb == 128


async def test_memory_that_is_only_cached_can_be_reclaimed(shop: Shop, toolbox_image: str) -> None:
    machine = await shop.run({"image": toolbox_image, "init": SLEEPS})
    body = ReclaimRequest(amount_mb=30)

    async def reclaimed() -> bool:
        """A host that is short of memory may have taken it before."""
        assert (await shop.shell(machine.id, "head -c 40000000 /dev/zero > /big; cat /big > /dev/null")).exit_code == 0
        os.sync()
        return (await shop.client.call(RECLAIM_MEMORY, params=shop.params(machine.id), body=body)).actual_mb >= 20

    await eventually(reclaimed, LONGEST_S)


async def test_a_memory_a_node_cannot_hold_is_refused_before_anything_is_changed(shop: Shop) -> None:
    machine = await shop.run({"image": HELLO, "guest": {"memory_mb": 256, "max_memory_mb": 16 * 1024 * 1024}})
    with pytest.raises(Conflict, match="could not reserve resource for machine: insufficient memory"):
        body = SetMemoryRequest(limit_mb=16 * 1024 * 1024)
        await shop.client.call(SET_MEMORY, params=shop.params(machine.id), body=body)


async def test_swap_is_refused_with_what_is_missing_or_given(shop: Shop) -> None:
    config = {"image": HELLO, "init": {"swap_size_mb": 64}}
    if host_has_swap():
        assert (await shop.run(config)).state == "started"
        return
    with pytest.raises(Unprocessable, match=r"init.swap_size_mb is not served .*container.*: this host has no swap"):
        await shop.order(config)


@pytest.mark.parametrize(
    ("persist", "over_restart", "over_update"),
    [("never", "", ""), ("restart", "mine", ""), ("always", "mine", "mine")],
)
async def test_files_are_kept_as_long_as_the_config_says(
    shop: Shop,
    toolbox_image: str,
    toolbox_parts: ImageParts,
    tmp_path_factory: pytest.TempPathFactory,
    persist: str,
    over_restart: str,
    over_update: str,
) -> None:
    config = {"image": toolbox_image, "init": SLEEPS, "rootfs": {"persist": persist}}
    machine = await shop.run(config)
    assert (await shop.shell(machine.id, "printf mine > /kept")).exit_code == 0
    await shop.stop(machine.id)
    await shop.wait(machine.id, "stopped")
    await shop.start(machine.id)
    await shop.wait(machine.id, "started")
    found = await shop.shell(machine.id, "cat /kept")
    assert found.stdout == over_restart, found
    other = write_layout(tmp_path_factory.mktemp("other"), toolbox_parts)
    updated = await shop.update(machine.id, {**config, "image": other, "env": {"A": "2"}})
    await eventually(lambda: _runs(shop, machine.id, updated.version))
    found = await shop.shell(machine.id, "cat /kept")
    assert found.stdout == over_update, found


async def _runs(shop: Shop, machine_id: str, version: str) -> bool:
    found = await shop.get(machine_id)
    return found.state == "started" and found.version == version


async def test_a_file_shows_the_images_own_config(shop: Shop, toolbox_image: str) -> None:
    files = [{"guest_path": "/etc/image.json", "image_config": toolbox_image}]
    machine = await shop.run({"image": toolbox_image, "init": SLEEPS, "files": files})
    written = (await shop.shell(machine.id, "cat /etc/image.json")).stdout
    config = msgspec.json.decode(written)
    assert config["os"] == "linux" and config["rootfs"]["diff_ids"]
    with pytest.raises(Unprocessable, match="image_config names no image of the machine"):
        await shop.order({"image": HELLO, "files": [{"guest_path": "/a", "image_config": "another"}]})


async def test_kernel_arguments_need_a_driver_with_a_kernel(shop: Shop) -> None:
    with pytest.raises(Unprocessable, match=r"init.kernel_args is not served .*container.*no kernel of their own"):
        await shop.order({"image": HELLO, "init": {"kernel_args": ["quiet"]}})


async def test_a_machine_is_still_suspended_when_another_daemon_takes_over_that_suspends_none(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with running_node(tmp_path_factory.mktemp("refusing"), "--ephemeral") as node:
        async with node.client() as client:
            shop = await Shop(client, "refusing").open()
            machine = await shop.run({"image": HELLO})
            await eventually(lambda: answers(machine.private_ip))
            await suspend(shop, machine.id)
        node.kill()
        node.launch("--container-suspend", "refuse")
        node.wait_ready()
        async with node.client() as client:
            shop = Shop(client, "refusing")
            assert (await shop.get(machine.id)).state == "suspended"
            await shop.start(machine.id)
            await shop.wait(machine.id, "started")
            assert machine.id in ask(machine.private_ip).body and await shop.exits(machine.id) == []
            with pytest.raises(NotServed, match=r"not served by this node's driver \(container\) as it is set up"):
                await client.call(SUSPEND_MACHINE, params=shop.params(machine.id))
