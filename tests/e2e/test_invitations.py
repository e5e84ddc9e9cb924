"""Real nodes: a host joins by an invitation, whatever dies meanwhile, and no command line shows a token."""

import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hawker.api.contract.cluster import CREATE_INVITE, LIST_INVITES, InviteRequest
from hawker.cli.exits import ExitStatus
from hawker.cluster import read_cluster
from tests.e2e.running_node import HAWKER, RunningNode
from tests.e2e.test_fleet_join import WITHIN_S, Host, host
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def invited(node: RunningNode) -> str:
    async with node.client() as client:
        token = (await client.call(CREATE_INVITE, body=InviteRequest())).token
    assert token is not None
    return token


def command_lines() -> dict[int, bytes]:
    """Of all processes of this host, as every user may read them."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found[int(entry.parent.name)] = entry.read_bytes()
        except OSError:
            continue
    return found


@contextmanager
def dying_before_it_answers(node: RunningNode) -> Iterator[str]:
    """An address at which the node is asked, and dies by SIGKILL when it has the answer ready, which is lost."""
    with socket.create_server(("127.0.0.1", 0)) as door:

        def pass_on() -> None:
            asker, _ = door.accept()
            host, _, port = node.url.removeprefix("http://").rpartition(":")
            with asker, socket.create_connection((host, int(port))) as there:
                there.sendall(asker.recv(65_536))
                there.recv(1)
                node.kill()

        thread = threading.Thread(target=pass_on)
        thread.start()
        yield f"http://127.0.0.1:{door.getsockname()[1]}"
        thread.join(60)


def environment_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


async def test_an_invitation_is_spent_once_though_its_node_is_killed_before_it_answers(tmp_path: Path) -> None:
    with host(tmp_path / "0", 0) as first, host(tmp_path / "1", 1) as second, host(tmp_path / "2", 2) as third:
        first.node.start("--advertise", first.address, "--peer-port", str(first.port))
        token = await invited(first.node)
        with dying_before_it_answers(first.node) as url:
            said = second.join(first.node, token=token, at=url)
        assert said.returncode != 0 and not second.node.place.cluster.exists()
        first.node.start()
        said = third.join(first.node, token=token)
        assert said.returncode == ExitStatus.FAILED and "this invitation was used" in said.stderr, said.stderr
        said = second.join(first.node, token=token)
        assert said.returncode == 0, said.stderr
        async with first.node.client() as client:
            (invite,) = (await client.call(LIST_INVITES)).invites
        assert (invite.state, len(invite.joined)) == ("used", 1)
        cluster = read_cluster(second.node.place.cluster)
        assert cluster is not None and second.node.token == first.node.token


async def test_no_command_line_of_a_joining_node_shows_a_token(tmp_path: Path) -> None:
    with host(tmp_path / "0", 0) as first, host(tmp_path / "1", 1) as second:
        first.node.start("--advertise", first.address, "--peer-port", str(first.port))
        token = await invited(first.node)
        process = joining(second, first.node, token)
        try:
            words = await eventually(lambda: _becomes_up(process.pid), WITHIN_S)
            assert words is not None and b"--region" in words
            shown = b"\n".join(command_lines().values())
            assert first.node.token.encode() not in shown and token.encode() not in shown
            assert b"HAWKER_TOKEN" not in environment_of(process.pid)
        finally:
            process.terminate()
            process.wait(60)


def joining(host: Host, other: RunningNode, token: str) -> "subprocess.Popen[str]":
    own = ["--data-dir", str(host.node.data_dir), "--listen", "127.0.0.1:0", "--driver", "process", "--region", "mad"]
    there = ["--advertise", host.address, "--peer-port", str(host.port)]
    return subprocess.Popen(
        [HAWKER, "join", other.url, *own, *there],
        env={**host.node.environment, "HAWKER_TOKEN": token},
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


async def _becomes_up(pid: int) -> bytes | None:
    words = command_lines().get(pid, b"")
    return words if b"\0up\0" in words else None
