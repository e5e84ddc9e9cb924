"""A real node is taken off its host: with machines, volumes and policies, also when its removal is killed."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hawker.api.contract.app import AppParams
from hawker.api.contract.machine_operation import SUSPEND_MACHINE
from hawker.api.contract.volume import CREATE_VOLUME, CreateVolumeRequest
from hawker.errors import NotServed
from hawker.host.mount import detached_mount
from hawker.host.residue import host
from tests.e2e.running_node import HAWKER, RunningNode
from tests.e2e.shop import HELLO, Shop
from tests.host.strangers import stranger
from tests.short_form import short_form
from tests.waiting import wait_for

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.slow]

_WITHIN_S = 240.0  # a host of a lab has a copy of each mount for as long as the lab lives


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    (tmp_path / "node").mkdir(mode=0o777)
    node = RunningNode(tmp_path / "node")
    try:
        yield node.start()
    finally:
        if node.place.store.exists():
            node.withdraw()


def remove(node: RunningNode, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [HAWKER, "node", "remove", "--data-dir", str(node.data_dir), *words]
    return subprocess.run(
        command,
        env=node.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def begin(node: RunningNode, after_s: float) -> None:
    """A removal that is killed after some time, unless it has ended by then."""
    command = [HAWKER, "node", "remove", "--data-dir", str(node.data_dir), "--destroy", "--yes"]
    first = subprocess.Popen(command, env=node.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        first.wait(after_s)
    except subprocess.TimeoutExpired:
        first.kill()
        first.wait(30)


async def furnished(node: RunningNode) -> tuple[str, ...]:
    """Two machines, one with a volume, the other suspended where that is served; the marks of the node."""
    async with node.client() as client:
        shop = await Shop(client, "removal").open()
        params = AppParams(app_name=shop.app)
        volume = await client.call(CREATE_VOLUME, params=params, body=CreateVolumeRequest(name="data", size_gb=1))
        await shop.run({"image": HELLO, "mounts": [{"volume": volume.id, "path": "/data"}]})
        resting = await shop.run({"image": HELLO})
        with suppress(NotServed):
            await client.call(SUSPEND_MACHINE, params=shop.params(resting.id))
            await shop.wait(resting.id, "suspended")
    return node.marks


def leave_trace(node_id: str) -> None:
    """Of changed blocks, as a daemon does that is killed in the middle of a move."""
    with suppress(OSError):  # where the kernel has none, nothing can be left
        root = detached_mount("tracefs", "tracefs", options={})
        try:
            Path(f"/proc/self/fd/{root}/instances/hawker-{node_id}-vol_0000000000000001").mkdir()
        finally:
            os.close(root)


def left(marks: tuple[str, ...]) -> list[str]:
    """What bears one of the marks, once what is on its way out has gone."""

    def found() -> list[str]:
        return [str(each) for each in host() if any(mark in each.bears for mark in marks)]

    with suppress(AssertionError, TimeoutError):
        wait_for(lambda: not found(), _WITHIN_S)
    return found()


async def test_a_node_is_removed_with_all_that_it_has(node: RunningNode) -> None:
    marks = await furnished(node)
    refused = remove(node)
    assert refused.returncode == 2 and "--drain or --destroy" in refused.stderr
    refused = remove(node, "--destroy")
    assert refused.returncode == 2 and "--yes" in refused.stderr and node.alive
    done = remove(node, "--destroy", "--yes")
    assert done.returncode == 0, done
    assert not node.data_dir.exists() and left(marks) == []
    again = remove(node, "--destroy", "--yes")
    assert again.returncode == 2 and "there is no node in" in again.stderr


async def test_a_node_is_removed_while_another_program_s_mount_namespace_holds_its_disks(node: RunningNode) -> None:
    marks = await furnished(node)
    with stranger() as pid:
        done = remove(node, "--destroy", "--yes")
        assert done.returncode == 0, done
        assert not node.data_dir.exists() and left(marks) == []
        os.kill(pid, 0)  # it lives


async def test_a_node_without_machines_needs_no_word_about_them(node: RunningNode) -> None:
    done = remove(node, "--yes")
    assert done.returncode == 0 and "0 machines and 0 volumes" in done.stderr, done
    assert not node.data_dir.exists()


@pytest.mark.parametrize(
    "after_s", short_form([0.6, 1.2, 2.0], lambda each: each == 1.2, "a node for each moment; one is the short form")
)
async def test_a_removal_that_is_killed_is_finished_by_the_next(node: RunningNode, after_s: float) -> None:
    marks = await furnished(node)
    os.kill(node.process.pid, signal.SIGKILL)
    node.process.wait(30)
    leave_trace(node.node_id)
    begin(node, after_s)
    if node.data_dir.exists():
        done = remove(node, "--destroy", "--yes")
        assert done.returncode == 0, done
    assert not node.data_dir.exists() and left(marks) == []
