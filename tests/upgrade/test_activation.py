"""The daemon as systemd runs it: on a socket that is handed over, in a control group that is the unit's."""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import anyio
import pytest

from hawker.api.client import Client
from hawker.api.contract.app import AppParams
from hawker.api.contract.machine import LIST_MACHINES
from hawker.host.cgroup import find_hierarchies
from hawker.host.mount import mounts
from hawker.host.residue import host, left
from hawker.log import Secret
from tests.crash.invariants import pilots
from tests.e2e.shop import HELLO, Shop
from tests.fixtures.activation import activated
from tests.ports import free_port
from tests.upgrade.builds import ROOT, Build
from tests.upgrade.init_system import InitSystem, init_system
from tests.waiting import wait_for

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

WITHIN_S = 90
WAITING = AppParams(app_name="waiting")
SOURCE = Build("these sources", ROOT / "src")
QUIET = ("--log-level", "warning")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[InitSystem]:
    before = host()
    with init_system(tmp_path) as node:
        yield node
        node.close()
        node.start(SOURCE, *QUIET, "--ephemeral")
        node.end()
    wait_for(lambda: not left(before, tmp_path))
    shutil.rmtree(node.data_dir)


def client_of(node: InitSystem) -> Client:
    return Client(node.url, Secret(node.token))


async def test_calls_that_come_while_no_daemon_is_there_are_answered_by_the_next(node: InitSystem) -> None:
    node.start(SOURCE, *QUIET, "--driver", "process")
    async with client_of(node) as client:
        await Shop(client, "waiting").open()
    for number in (signal.SIGTERM, signal.SIGKILL):
        node.end(number)
        async with client_of(node) as client, anyio.create_task_group() as tasks:
            tasks.start_soon(partial(client.call, LIST_MACHINES, params=WAITING, timeout_s=WITHIN_S))
            with socket.create_connection(node.listener.getsockname(), timeout=WITHIN_S):
                await anyio.to_thread.run_sync(node.start, SOURCE, *QUIET, "--driver", "process")


async def test_an_orderly_end_is_told(node: InitSystem) -> None:
    node.start(SOURCE, *QUIET, "--driver", "process")
    os.kill(node.pid, signal.SIGTERM)
    node.heard("STOPPING=1", WITHIN_S)
    wait_for(lambda: not _alive(node.pid), WITHIN_S)


def _alive(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False


def environment_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


@pytest.mark.long(reason="a node of its own; tests/host/test_systemd.py has what is taken out of the environment")
@pytest.mark.root
async def test_nothing_of_the_activation_reaches_a_machine(node: InitSystem) -> None:
    node.start(SOURCE, *QUIET)
    async with client_of(node) as client:
        shop = await Shop(client, "sealed").open()
        machine = await shop.run({"image": HELLO})
        (pilot,) = pilots(machine.id)
        inode = os.fstat(node.listener.fileno()).st_ino
        assert f"socket:[{inode}]" not in {os.readlink(entry.path) for entry in os.scandir(f"/proc/{pilot}/fd")}
        environment = environment_of(pilot)
        assert all(name not in environment for name in (b"LISTEN_", b"NOTIFY_SOCKET", b"WATCHDOG"))


@contextmanager
def unit_cgroup() -> Iterator[Path]:
    """A control group as a unit has one; where systemd's own hierarchy is, in that."""
    named = Path("/sys/fs/cgroup/systemd")
    trees = [named] if named.is_dir() else [Path("/sys/fs/cgroup")]
    group = trees[0] / f"hawker-unit-{os.getpid()}.service"
    group.mkdir()
    try:
        yield group
    finally:
        wait_for(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def _killed(group: Path) -> list[int]:
    """Whom it had. What they began just before is in it, too: a manager kills until nobody is left."""
    members = [int(pid) for pid in (group / "cgroup.procs").read_text().split()]
    for pid in members:
        with suppress(ProcessLookupError):  # what the daemon ran just then has ended
            os.kill(pid, signal.SIGKILL)
    return members


@pytest.mark.long(reason="two boots; tests/upgrade/test_deploys.py has machines that outlive daemons")
@pytest.mark.root
async def test_machines_are_not_in_the_control_group_of_the_unit(node: InitSystem) -> None:
    """So they outlive even a manager that kills the whole group."""
    assert find_hierarchies(mounts()), "cgroups are mounted"
    with unit_cgroup() as group:
        node.start(SOURCE, *QUIET)
        (group / "cgroup.procs").write_text(str(node.pid))
        async with client_of(node) as client:
            shop = await Shop(client, "apart").open()
            machine = await shop.run({"image": HELLO})
            before = pilots(machine.id)
            members = set(map(int, (group / "cgroup.procs").read_text().split()))
            assert node.pid in members
            assert members.isdisjoint({*before, await shop.pid(machine.id)})
        wait_for(lambda: not any((_killed(group), _alive(node.pid))), WITHIN_S)
        assert pilots(machine.id) == before
        node.start(SOURCE, *QUIET)
        async with client_of(node) as client:
            assert (await Shop(client, "apart").get(machine.id)).state == "started"
        node.end()
        assert pilots(machine.id) == before


def test_a_socket_of_a_wrong_kind_is_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        command = activated(SOURCE.command("up", "--data-dir", str(tmp_path / "data")), datagrams.fileno())
        done = subprocess.run(
            command,
            pass_fds=[datagrams.fileno()],
            env=SOURCE.environment,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "no listening TCP socket" in line and "ListenStream" in line
    assert not (tmp_path / "data").exists()


@pytest.mark.skipif(shutil.which("systemd-socket-activate") is None, reason="systemd-socket-activate is not here")
def test_systemd_s_own_tool_starts_a_node_at_the_first_call(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    command = SOURCE.command("up", "--data-dir", str(tmp_path / "data"), "--driver", "process", *QUIET)
    passed = [f"--setenv={name}" for name in ("PATH", "PYTHONPATH")]
    tool = ["systemd-socket-activate", f"--listen={address}", "--fdname=api", *passed, *command]
    with subprocess.Popen(tool, env=SOURCE.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as daemon:
        try:
            wait_for(lambda: _is_open(address))
            assert daemon.stdout is not None and daemon.stdout.readline() == f"ready http://{address}\n".encode()
            anyio.run(_is_served, f"http://{address}", (tmp_path / "data/token").read_text().strip())
        finally:
            daemon.terminate()
        assert daemon.wait(WITHIN_S) == 0


async def _is_served(url: str, token: str) -> None:
    async with Client(url, Secret(token)) as client:
        assert await (await Shop(client, "first").open()).machines() == []


def _is_open(address: str) -> bool:
    host_name, _, port = address.partition(":")
    with socket.socket() as caller:
        return caller.connect_ex((host_name, int(port))) == 0
