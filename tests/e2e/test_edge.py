"""Published ports on a real node: reached at once, served on while the daemon, the edge process and the warden die;
machines that sleep when nobody asks, and are woken by who does."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.command_line import CommandLine
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.web import Page, ask
from tests.waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.slow]
HELLO = "hawker/hello"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with running_node(tmp_path_factory.mktemp("node"), "--edge-address", "127.0.0.1") as node:
        yield node


@pytest.fixture
def hawker(node: RunningNode) -> CommandLine:
    return CommandLine(node.environment | {"HAWKER_DATA_DIR": str(node.data_dir)})


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def warden_of(node: RunningNode) -> int:
    return int((node.place.edge / "lock").read_text())


def edge_process_of(node: RunningNode) -> int:
    warden = warden_of(node)
    return int(Path(f"/proc/{warden}/task/{warden}/children").read_text().split()[0])


def gone(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return False
    return True


def get(port: int) -> Page:
    return ask("127.0.0.1", port=port)


def test_a_published_port_answers_at_once_and_outlives_daemon_warden_and_edge_process(
    node: RunningNode, hawker: CommandLine
) -> None:
    port = free_port()
    hawker.say("machine", "run", "--name", "web", "-p", f"{port}:8080", HELLO)
    assert get(port).status == 200
    warden = warden_of(node)
    node.kill()
    assert get(port).status == 200, "without the daemon"
    killed = edge_process_of(node)
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{killed}/exe").exists() or gone(killed))
    assert get(port).status == 200, "from the backlog, by the next edge process, without the daemon"
    assert edge_process_of(node) != killed
    node.start()
    assert warden_of(node) == warden, "the daemon takes up the edge that is there"
    os.kill(warden, signal.SIGKILL)
    wait_for(lambda: gone(warden) and warden_of(node) != warden)
    wait_for(lambda: answers(port))


def test_a_machine_sleeps_when_nobody_asks_and_is_woken_by_who_does(
    node: RunningNode, hawker: CommandLine, tmp_path: Path
) -> None:
    port = free_port()
    service = {
        "internal_port": 8080,
        "ports": [{"port": port, "handlers": ["http"]}],
        "autostop": "suspend",
        "autostart": True,
        "checks": [{"type": "http", "path": "/", "interval": "1s"}],
    }
    config = {"image": HELLO, "services": [service], "metadata": {"hawker_publish": "*", "hawker_idle_s": "10"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    hawker.say("machine", "run", "--name", "sleeper", "--config", str(tmp_path / "config.json"))
    assert get(port).status == 200

    def state() -> str:
        return str(json.loads(hawker.say("machine", "status", "sleeper", "-o", "json"))["machine"]["state"])

    wait_for(lambda: state() == "suspended")
    assert get(port).status == 200 and state() == "started"
    hawker.say("machine", "stop", "sleeper")
    assert get(port).status == 200 and state() == "started"


def test_a_port_that_somebody_else_has_is_a_failure_that_says_so(hawker: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = hawker("machine", "run", "-p", f"{taken.getsockname()[1]}:8080", HELLO)
    assert done.status != 0 and "in use by another program" in done.err


def answers(port: int) -> bool:
    with suppress(OSError):
        return get(port).status == 200
    return False
