"""An edge of two processes on a real node: each app is reached by both, and let in, counted, woken and put to rest by
one of them; either may be killed, and a host may go from one process to two and back."""

import http.client
import json
import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from urllib.request import Request, urlopen

import pytest

from hawker.feed import process_of
from hawker.ids import AppName
from tests.e2e.command_line import CommandLine
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.test_edge import answers, asks_on, get, gone, in_flight, warden_of
from tests.ports import free_port
from tests.waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.slow]
HELLO = "hawker/hello"
APPS = ("shop", "blog")
"""One in each of two processes."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    assert [process_of(AppName(app), 2) for app in APPS] == [0, 1]
    with running_node(tmp_path_factory.mktemp("node"), "--edge-address", "127.0.0.1") as node:
        node.stop()
        node.start("--edge-processes", "2")
        hawker = CommandLine(node.environment | {"HAWKER_DATA_DIR": str(node.data_dir)})
        for app in APPS:
            hawker.say("apps", "create", app)
        yield node


@pytest.fixture
def hawker(node: RunningNode) -> CommandLine:
    return CommandLine(node.environment | {"HAWKER_DATA_DIR": str(node.data_dir)})


def processes_of(node: RunningNode) -> list[int]:
    """Those that serve, by their ids: also those that leave while they do."""
    warden = warden_of(node)
    return [int(each) for each in Path(f"/proc/{warden}/task/{warden}/children").read_text().split()]


def published(hawker: CommandLine, app: str, *flags: str) -> int:
    port = free_port()
    hawker.say("machine", "run", "-a", app, "-p", f"{port}:8080{'' if flags else '/http'}", HELLO)
    wait_for(lambda: answers(port))
    return port


def events(node: RunningNode, name: str) -> dict[str, float]:
    """By process."""
    lines = (line for line in node_metrics(node) if line.startswith("hawker_edge_process_events{"))
    found = (line for line in lines if f'event="{name}"' in line)
    return {line.partition('process="')[2][0]: float(line.split()[-1]) for line in found}


def node_metrics(node: RunningNode) -> list[str]:
    connection = http.client.HTTPConnection(node.url.removeprefix("http://"), timeout=30)
    connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {node.token}"})
    page = connection.getresponse().read().decode()
    connection.close()
    return page.splitlines()


def test_apps_of_both_processes_are_reached_by_whoever_of_them_takes_the_connection(
    node: RunningNode, hawker: CommandLine
) -> None:
    ports = [published(hawker, app) for app in APPS]
    wait_for(lambda: len(processes_of(node)) == 2)

    def each_lets_in_for_the_other() -> bool:
        """Who takes a connection is the kernel's choice."""
        assert [get(port).status for port in ports] == [200, 200]
        return all(events(node, "hops").get(process, 0) > 0 for process in "01")

    wait_for(each_lets_in_for_the_other)
    for app, port in zip(APPS, ports, strict=True):
        assert "->" in hawker.say("route", "explain", "-a", app, f"http://{app}.localhost:{port}")


def config(tmp_path: Path, port: int, **service: object) -> str:
    ports = [{"port": port, "handlers": ["http"]}]
    services = [{"internal_port": 8080, "ports": ports, **service}]
    told = {"image": HELLO, "services": services, "metadata": {"hawker_publish": "*", "hawker_idle_s": "10"}}
    (tmp_path / "config.json").write_text(json.dumps(told))
    return str(tmp_path / "config.json")


@pytest.mark.parametrize("app", APPS)
def test_a_hard_limit_is_one_of_both_processes_together(
    node: RunningNode, hawker: CommandLine, tmp_path: Path, app: str
) -> None:
    port, limits = free_port(), {"type": "connections", "soft_limit": 2, "hard_limit": 3}
    file = config(tmp_path, port, concurrency=limits, ports=[{"port": port}])
    hawker.say("machine", "run", "-a", app, "--config", file)
    wait_for(lambda: answers(port))
    wait_for(lambda: in_flight(node) == 0)
    with ExitStack() as open_ones:
        clients = [open_ones.enter_context(socket.create_connection(("127.0.0.1", port), 60)) for _ in range(12)]
        wait_for(lambda: in_flight(node) == 3)
        with ThreadPoolExecutor(12) as pool:
            assert list(pool.map(asks_once, clients)) == [b"200"] * 12, "each has its turn"
    wait_for(lambda: in_flight(node) == 0)


def asks_once(client: socket.socket) -> bytes:
    client.sendall(b"GET / HTTP/1.0\r\nHost: a\r\n\r\n")
    with client:
        return client.recv(1000)[9:12]


@pytest.mark.parametrize("app", APPS)
@pytest.mark.long(
    reason="waits for 10 s; test_edge.py has a sleeper, the simulator of edges in `make check` two processes"
)
def test_a_machine_sleeps_and_is_woken_once_by_many_who_come_to_both_processes(
    node: RunningNode, hawker: CommandLine, tmp_path: Path, app: str
) -> None:
    port, name = free_port(), f"sleeper-{app}"
    file = config(tmp_path, port, autostop="stop", autostart=True)
    hawker.say("machine", "run", "-a", app, "--name", name, "--config", file)
    assert get(port).status == 200
    machine = json.loads(hawker.say("machine", "status", "-a", app, name, "-o", "json"))["machine"]["id"]
    asked = Request(f"{node.url}/v1/apps/{app}/machines/{machine}", headers={"Authorization": f"Bearer {node.token}"})

    def state() -> str:
        """Not by the command: on a busy host the machine might sleep again before that has begun."""
        with urlopen(asked, timeout=30) as answer:
            return str(json.load(answer)["state"])

    wait_for(lambda: state() == "stopped")
    woken = sum(events(node, "wakes").values())
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: get(port).status, range(16))) == [200] * 16
    assert state() == "started"
    wait_for(lambda: sum(events(node, "wakes").values()) == woken + 1)  # both report now, or their last numbers stand


def test_a_process_that_is_killed_costs_its_own_connections_and_nobody_who_comes(
    node: RunningNode, hawker: CommandLine
) -> None:
    ports = [published(hawker, app) for app in APPS]
    both = processes_of(node)
    for killed in both:
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: gone(killed) or not Path(f"/proc/{killed}/exe").exists())  # noqa: B023
        assert [get(port).status for port in ports * 12] == [200] * 24
        wait_for(lambda: len({*processes_of(node)} - {killed}) == 2)  # noqa: B023
    wait_for(lambda: not {*both} & {*processes_of(node)})


@pytest.mark.long(
    reason="two boots under load; test_edge.py renews an edge under load, and the test above loses either process"
)
def test_a_host_goes_to_one_process_and_back_to_two_without_a_lost_request(
    node: RunningNode, hawker: CommandLine
) -> None:
    ports, warden, over = [published(hawker, app) for app in APPS], warden_of(node), Event()
    with ThreadPoolExecutor(8) as pool, ExitStack() as kept:
        clients = [pool.submit(asks_on, port, over) for port in ports * 4]
        rawport = published(hawker, "shop", "raw")
        raw = [kept.enter_context(socket.create_connection(("127.0.0.1", rawport), 60)) for _ in range(6)]
        for each in raw:
            each.sendall(b"GET / HTTP/1.0\r\n")
        wait_for(lambda: in_flight(node) >= 6)
        try:
            for flags in ((), ("--edge-processes", "2")):
                before = processes_of(node)
                node.stop()
                node.start(*flags)
                wanted = 2 if flags else 1
                wait_for(lambda: len([each for each in processes_of(node) if each not in before]) == wanted)  # noqa: B023
                wait_for(lambda: all(answers(port) for port in ports))
        finally:
            over.set()
        assert min(each.result() for each in clients) > 10 and warden_of(node) == warden
        for each in raw:
            each.sendall(b"Host: a\r\n\r\n")
            assert b"200 OK" in each.recv(1000), "who was in a machine stayed there"
    wait_for(lambda: len(processes_of(node)) == 2 and in_flight(node) == 0)
