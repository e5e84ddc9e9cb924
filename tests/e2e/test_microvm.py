"""Machines with kernels of their own, on a real node with QEMU: a client sees what it sees of any machine, but for the
kernel. Few of them, since each boots.
"""

import base64
import contextlib
import http.client
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hawker.api.contract.app import AppParams
from hawker.api.contract.machine import SuspendAnswer
from hawker.api.contract.machine_operation import SUSPEND_MACHINE
from hawker.api.contract.volume import CREATE_VOLUME, CreateVolumeRequest
from hawker.chaos.guests import bring_kernels
from hawker.errors import Unprocessable, WrongState
from hawker.host.mount import mounts
from hawker.host.residue import host
from hawker.place import Place
from hawker.runtime.pilot.rundir import RunDir
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.shop import HELLO, Shop
from tests.e2e.web import answers, ask
from tests.fixtures.debian_image import PAGE
from tests.fixtures.registry import Registry
from tests.kernel import kernels
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.slow]
CLOCK_S = 3.0  # as far as a guest's may be off


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    place = tmp_path_factory.mktemp("node")
    bring_kernels(Place(place / "data"), kernels())
    with running_node(place, "--ephemeral", "--driver", "qemu") as node:
        yield node


async def suspend(shop: Shop, machine_id: str) -> SuspendAnswer:
    answer = await shop.client.call(SUSPEND_MACHINE, params=shop.params(machine_id))
    await shop.wait(machine_id, "suspended")
    return answer


def traces(machine_id: str) -> list[str]:
    """What bears its id on this host."""
    return sorted(str(trace) for trace in host() if machine_id in trace.bears)


async def test_an_image_with_users_processes_files_and_a_volume_runs_as_ever(
    node: RunningNode, toolbox_image: str
) -> None:
    """Also when another daemon takes it up in the middle."""
    async with node.client() as client:
        shop = await Shop(client, "adopted").open()
        body = msgspec.convert({"name": "data", "size_gb": 1, "encrypted": False}, CreateVolumeRequest)
        volume = await shop.client.call(CREATE_VOLUME, params=AppParams(app_name=shop.app), body=body)
        machine = await shop.run(
            {
                "image": toolbox_image,
                "processes": [
                    {"exec": ["sh", "-c", "echo $COLOUR; exec sleep 3600"], "env": {"COLOUR": "blue"}},
                    {"exec": ["sh", "-c", "cat /proc/self/status; exec sleep 3600"], "user": "65534"},
                ],
                "files": [{"guest_path": "/etc/greeting", "raw_value": base64.b64encode(b"hello").decode()}],
                "mounts": [{"volume": volume.id, "path": "/data"}],
                "guest": {"memory_mb": 256, "kernel_args": ["hawker_says_nothing_of_this=1"]},
            }
        )
        await shop.logged(machine.id, "Uid:\t65534\t65534")
        await shop.logged(machine.id, "blue\n")
        assert await shop.said(machine.id, "cat", "/etc/greeting") == "hello"
        assert await shop.said(machine.id, "cat", "/etc/hostname") == f"{machine.id}\n"
        assert "hawker_says_nothing_of_this=1" in await shop.said(machine.id, "cat", "/proc/cmdline")
        assert os.uname().release not in await shop.said(machine.id, "cat", "/proc/version")
        await eventually(lambda: _both_sleep(shop, machine.id))
        assert (await shop.shell(machine.id, "echo kept > /data/file")).exit_code == 0
        assert not [each for each in mounts(node.data_dir) if each.target.is_relative_to(node.place.volumes)]
        assert not [each for each in mounts(node.data_dir) if each.target.is_relative_to(node.place.machines)]

    node.kill()
    node.start()
    async with node.client() as client:
        again = Shop(client, shop.app)
        assert await again.said(machine.id, "cat", "/data/file") == "kept\n", "the next daemon took it up"
        assert await again.exits(machine.id) == []
        assert (await suspend(again, machine.id)).kind == "snapshot"
        await eventually(lambda: not [each for each in traces(machine.id) if each.startswith(("process", "cgroup"))])
        with pytest.raises(WrongState, match="'suspended'"):
            await again.said(machine.id, "cat", "/data/file")
        held_at = time.monotonic()
        await eventually(lambda: time.monotonic() > held_at + 2 * CLOCK_S)
        await again.start(machine.id)
        started = await again.wait(machine.id, "started")
        assert started.events[0].resumed and await again.said(machine.id, "cat", "/data/file") == "kept\n"
        asked_at = time.time()
        theirs = float(await again.said(machine.id, "bash", "-c", "printf '%(%s)T'"))
        assert asked_at - CLOCK_S < theirs < time.time() + CLOCK_S
        await again.destroy(machine.id)
        await again.gone(machine.id)
        await eventually(lambda: traces(machine.id) == [] and not (node.place.machines / machine.id).exists())
        await again.close()


@pytest.mark.long(reason="boots one more guest under emulation; a guest's life, above, is the short form")
async def test_a_server_is_reached_over_its_address_and_keeps_its_connections(node: RunningNode, shop: Shop) -> None:
    machine = await shop.run({"image": HELLO, "restart": {"policy": "on-failure"}})
    await eventually(lambda: answers(machine.private_ip))
    assert machine.id in ask(machine.private_ip).body
    with contextlib.closing(http.client.HTTPConnection(machine.private_ip, 8080, timeout=60)) as connection:
        connection.connect()
        await suspend(shop, machine.id)
        await shop.start(machine.id)
        await shop.wait(machine.id, "started")
        connection.request("GET", "/")
        assert machine.id in connection.getresponse().read().decode()

    run = RunDir(node.place.machines / machine.id / "run")
    keeper = run.pid()
    assert keeper is not None
    [vmm] = [int(name) for name in _children(keeper)]
    os.kill(vmm, signal.SIGKILL)
    await eventually(lambda: _is_gone(vmm))

    async def has_restarted() -> bool:
        return [event.status for event in await shop.events(machine.id) if event.type == "start"].count("started") == 3

    await eventually(has_restarted)
    [exit] = await shop.exits(machine.id)
    assert "SIGKILL" in exit.fault and exit.restarting and not exit.requested_stop
    await eventually(lambda: answers(machine.private_ip))


async def test_a_resource_no_guest_can_be_given_is_refused_by_name(shop: Shop) -> None:
    refused: dict[str, dict[str, Any]] = {
        "containers": {"containers": [{"name": "a", "image": HELLO}]},
        "kernel_args": {"image": HELLO, "guest": {"kernel_args": ["rdinit=/bin/sh"]}},
    }
    for field, config in refused.items():
        with pytest.raises(Unprocessable, match=field):
            await shop.order(config)


@pytest.mark.long(reason="boots an image of 200 MB under emulation; the toolbox is the short form")
@pytest.mark.timeout(2700)  # whoever comes first makes it, and the others wait
async def test_a_real_debian_runs_nginx_and_python(
    shop: Shop, registry: Registry, debian_image: Callable[[Registry], str]
) -> None:
    web = await shop.run({"image": debian_image(registry), "guest": {"memory_mb": 512}})
    await eventually(lambda: answers(web.private_ip, 80))
    assert ask(web.private_ip, port=80).body == PAGE.decode()
    assert await shop.said(web.id, "python3", "-c", "print(6 * 7)") == "42\n"
    assert await shop.said(web.id, "pwd") == "/srv\n"
    await shop.stop(web.id, signal="SIGQUIT")
    await shop.wait(web.id, "stopped")
    assert [(exit.exit_code, exit.fault) for exit in await shop.exits(web.id)] == [(0, "")]


async def _both_sleep(shop: Shop, machine_id: str) -> bool:
    """Their words come before their exec."""
    return [each.command for each in await shop.processes(machine_id)].count("sleep 3600") == 2


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()
