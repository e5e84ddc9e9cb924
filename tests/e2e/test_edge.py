"""Published ports on a real node: reached at once, served on while the daemon, the edge process and the warden die;
machines that sleep when nobody asks, and are woken by who does."""

import http.client
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event
from urllib.request import Request, urlopen

import pytest

from tests.certificates import issued, root_pem
from tests.e2e.command_line import CommandLine
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.web import Page, ask
from tests.ports import free_port
from tests.rights import EDGE, nobody, rights_of
from tests.waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.slow]
HELLO = "hawker/hello"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    pool = ("--public-ipv4", "127.7.0.0/28")
    with running_node(tmp_path_factory.mktemp("node"), "--edge-address", "127.0.0.1", *pool) as node:
        yield node


@pytest.fixture
def hawker(node: RunningNode) -> CommandLine:
    return CommandLine(node.environment | {"HAWKER_DATA_DIR": str(node.data_dir)})


def warden_of(node: RunningNode) -> int:
    """Its number; 0 while one that begins writes it."""
    return int((node.place.edge / "lock").read_text() or 0)


def edge_process_of(node: RunningNode) -> int:
    warden = warden_of(node)
    return int((Path(f"/proc/{warden}/task/{warden}/children").read_text().split() or ["0"])[-1])


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
    assert rights_of(killed) == nobody(EDGE), "who reads requests is not root"
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{killed}/exe").exists() or gone(killed))
    assert get(port).status == 200, "from the backlog, by the next edge process, without the daemon"
    assert edge_process_of(node) != killed
    node.start()
    assert warden_of(node) == warden, "the daemon takes up the edge that is there"
    os.kill(warden, signal.SIGKILL)
    wait_for(lambda: gone(warden) and warden_of(node) not in (0, warden))
    wait_for(lambda: answers(port))


def test_an_edge_that_is_renewed_loses_no_request(node: RunningNode, hawker: CommandLine) -> None:
    port = free_port()
    hawker.say("machine", "run", "-p", f"{port}:8080/http", HELLO)
    wait_for(lambda: answers(port))
    warden, before, over = warden_of(node), edge_process_of(node), Event()
    with ThreadPoolExecutor(4) as pool:
        clients = [pool.submit(asks_on, port, over) for _ in range(4)]
        try:
            os.kill(warden, signal.SIGHUP)
            wait_for(lambda: edge_process_of(node) != before and answers(port))
            second = edge_process_of(node)
            (node.place.edge / "version").write_text("0.0.1")
            node.stop()
            node.start()
            wait_for(lambda: edge_process_of(node) != second and answers(port))
        finally:
            over.set()
        served = [each.result() for each in clients]
    assert min(served) > 10 and warden_of(node) == warden, "and the warden is the same process"
    assert (node.place.edge / "version").read_text() != "0.0.1"
    asked = Request(f"{node.url}/metrics/edge", headers={"Authorization": f"Bearer {node.token}"})
    with urlopen(asked, timeout=30) as answer:
        page = answer.read().decode()
    assert 'fly_edge_http_responses_count{app="default",status="200"}' in page


def test_an_edge_that_is_renewed_keeps_who_is_in_a_machine(node: RunningNode, hawker: CommandLine) -> None:
    port = free_port()
    hawker.say("machine", "run", "-p", f"{port}:8080", HELLO)
    wait_for(lambda: answers(port))
    warden, before = warden_of(node), edge_process_of(node)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(b"GET / HTTP/1.0\r\n")
        wait_for(lambda: in_flight(node) == 1)
        os.kill(warden, signal.SIGHUP)
        wait_for(lambda: edge_process_of(node) not in (before, 0) and answers(port))
        assert not gone(before), "it goes on beside the next one"
        wait_for(lambda: in_flight(node) == 1)
        client.sendall(b"Host: a\r\n\r\n")
        assert b"200 OK" in client.recv(1000)
    wait_for(lambda: gone(before) and in_flight(node) == 0)


def in_flight(node: RunningNode) -> float:
    """As the edge process that lets requests in counts them."""
    asked = Request(f"{node.url}/metrics", headers={"Authorization": f"Bearer {node.token}"})
    with urlopen(asked, timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("hawker_edge_in_flight"))


def asks_on(port: int, over: Event) -> int:
    """How many times it was answered, over connections that are used again until the edge says that they end."""
    connection, count = http.client.HTTPConnection("127.0.0.1", port, timeout=30), 0
    while not over.is_set():
        connection.request("GET", "/")
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, (count, body)
        count += 1
    connection.close()
    return count


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
    machine = json.loads(hawker.say("machine", "status", "sleeper", "-o", "json"))["machine"]["id"]
    asked = Request(f"{node.url}/v1/apps/default/machines/{machine}", headers={"Authorization": f"Bearer {node.token}"})

    def state() -> str:
        """Not by the command: on a busy host the machine might sleep again before that has begun."""
        with urlopen(asked, timeout=30) as answer:
            return str(json.load(answer)["state"])

    wait_for(lambda: state() == "suspended", 180)
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


def test_https_with_an_imported_certificate_is_served_also_without_the_daemon(
    node: RunningNode, hawker: CommandLine, tmp_path: Path
) -> None:
    port, plain = free_port(), free_port()
    service = {
        "internal_port": 8080,
        "ports": [
            {"port": port, "handlers": ["tls", "http"]},
            {"port": plain, "handlers": ["http"], "force_https": True},
        ],
    }
    config = {"image": HELLO, "services": [service], "metadata": {"hawker_publish": "*"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    hawker.say("apps", "create", "secure")
    hawker.say("machine", "run", "-a", "secure", "--config", str(tmp_path / "config.json"))

    def curl(name: str, number: int = port, scheme: str = "https") -> "subprocess.CompletedProcess[str]":
        where = ("--resolve", f"{name}:{number}:127.0.0.1", "--cacert", str(tmp_path / "root.pem"))
        told = ("-sS", "-o", "/dev/null", "-w", "%{http_code} %{redirect_url}", "--max-time", "60")
        return subprocess.run(
            ["curl", *told, *where, f"{scheme}://{name}:{number}/"], capture_output=True, text=True, check=False
        )

    (tmp_path / "root.pem").write_text(root_pem())
    assert curl("www.example.com").returncode != 0, "there is no certificate yet"
    chain, key = issued("*.example.com")
    (tmp_path / "chain.pem").write_text(chain)
    (tmp_path / "key.pem").write_text(key)
    files = ("--chain", str(tmp_path / "chain.pem"), "--key", str(tmp_path / "key.pem"))
    hawker.say("certs", "import", "-a", "secure", "*.example.com", *files)
    wait_for(lambda: curl("www.example.com").stdout.startswith("200"))
    assert curl("www.example.com", plain, "http").stdout == f"301 https://www.example.com:{port}/"
    assert curl("other.example.net").returncode != 0
    node.kill()
    os.kill(edge_process_of(node), signal.SIGKILL)
    assert curl("www.example.com").stdout.startswith("200"), "a new edge process, and no daemon"
    node.start()
    for file in node.place.edge.iterdir():
        with suppress(FileNotFoundError):  # a draft, which has its own name by now
            assert b"PRIVATE KEY" not in file.read_bytes() if file.is_file() else True
    hawker.say("certs", "remove", "-a", "secure", "*.example.com")
    wait_for(lambda: curl("www.example.com").returncode != 0)


def test_an_error_of_the_edge_is_in_the_apps_log_and_explained(node: RunningNode, hawker: CommandLine) -> None:
    port = free_port()
    hawker.say("apps", "create", "silent")
    hawker.say("machine", "run", "-a", "silent", "--name", "mute", "-p", f"{port}:9/http", HELLO)
    hawker.say("machine", "cordon", "mute", "-a", "silent")
    explain = ("route", "explain", "-a", "silent", f"http://silent.localhost:{port}")
    wait_for(lambda: "cordoned" in hawker.say(*explain))
    assert get(port).status == 503
    wait_for(lambda: "proxy * PR01 no machine" in hawker("logs", "-a", "silent").err)
    explained = json.loads(hawker.say(*explain, "-o", "json"))
    (listener,) = explained["listeners"]
    assert (listener["speaks"], listener["address"]) == ("http", "127.0.0.1")
    assert listener["candidates"][0]["internal_port"] == 9
    assert "mute" in hawker.say("ps", "-a", "silent")
    other = hawker.say("route", "explain", "-a", "silent", "http://localhost:1")
    assert "no app of this host publishes the port" in other


def test_an_app_with_an_address_is_served_there_without_being_published(hawker: CommandLine, tmp_path: Path) -> None:
    hawker.say("apps", "create", "addressed")
    web, raw = free_port(), free_port()
    services = [
        {"internal_port": 8080, "ports": [{"port": web, "handlers": ["http"]}]},
        {"internal_port": 8080, "ports": [{"port": raw}]},
    ]
    (tmp_path / "web.json").write_text(json.dumps({"image": HELLO, "services": services}))
    hawker.say("machine", "run", "-a", "addressed", "--config", str(tmp_path / "web.json"))
    own = hawker.say("ips", "allocate", "-a", "addressed", "v4").strip()
    wait_for(lambda: answered(own, web) and answered(own, raw))
    assert not answered("127.0.0.1", web), "nobody but the owner of the address is there"
    shared = hawker.say("ips", "allocate", "-a", "addressed", "shared_v4").strip()
    wait_for(lambda: answered("127.0.0.1", web))
    assert not answered("127.0.0.1", raw), "a shared address has what a name tells apart"
    for address in (own, shared):
        hawker.say("ips", "release", "-a", "addressed", address)
    wait_for(lambda: not answered(own, web) and not answered("127.0.0.1", web))
    hawker.say("apps", "destroy", "--force", "addressed")


def answered(address: str, port: int) -> bool:
    try:
        return ask(address, port=port).status == 200
    except OSError:
        return False
