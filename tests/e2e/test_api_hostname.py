"""The Machines API through the edge, from another computer: over TLS, under a name of its own, with a certificate of
Pebble. An app that is named like it gets none of its calls.
"""

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from threading import Event

import pytest

from hawker.chaos.daemon import HAWKER, Daemon
from hawker.chaos.fleet.network_lab import NetworkLab
from hawker.chaos.fleet.real_fleet import LabFleet
from hawker.clock import SystemClock
from tests.certificates import issued, root_pem
from tests.e2e.test_walkthrough import API, Laptop, made
from tests.edge.test_acme import pebble_program as pebble_program
from tests.waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.slow]
PAUSE_S = 3.0
ORDERED_WITHIN_S = 420.0
"""On a busy host the authority may ask before the edge listens: the order is tried again after 240 s."""
TURNS_S = 25.0
"""After so long every node of a fleet has had its turn to order the certificate."""
URL = f"https://{API}"


class Console:
    """What a person at the laptop types."""

    def __init__(self, laptop: Laptop, token: str) -> None:
        self._before_it = laptop.host.before_it
        self._environment = {**laptop.environment, "HAWKER_URL": URL, "HAWKER_TOKEN": token}

    def __call__(self, *words: str) -> "subprocess.CompletedProcess[str]":
        command = [*self._before_it, *words]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=90, env=self._environment)

    def say(self, *words: str) -> str:
        done = self(HAWKER, *words)
        assert done.returncode == 0, done
        return done.stdout

    def is_answered(self, *options: str) -> bool:
        """By the API, which wants a token."""
        return self.ask(f"{URL}/v1/apps?org_slug=personal", *options).startswith("401")

    def ask(self, url: str, *options: str) -> str:
        """The status of the answer, and where it leads; 000 where there is none."""
        return self("curl", "--silent", "-o", "/dev/null", "-w", "%{http_code} %{redirect_url}", *options, url).stdout


@pytest.fixture(scope="module")
def street(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NetworkLab]:
    with NetworkLab(tmp_path_factory.mktemp("street"), 2) as street:
        yield street


@pytest.mark.long(reason="Go builds Pebble; tests/edge/test_process.py has the way to the API without an authority")
@pytest.mark.timeout(1800)
def test_api_is_called_through_the_edge_under_its_own_name_with_tls(
    street: NetworkLab, pebble_program: Path, tmp_path: Path
) -> None:
    host, laptop = street.hosts[0], Laptop(street, made(tmp_path, "laptop"))
    flags = ("--edge-address", host.address, "--api-hostname", API, "--acme-directory", laptop.directory_url)
    node = Daemon(made(tmp_path, "node"), SystemClock(), *flags, driver="container", before_it=host.before_it)
    with laptop.authority(pebble_program):
        try:
            node.start_as("up", "--acme-ca-file", str(laptop.root))
            console = Console(laptop, node.token)
            wait_for(console.is_answered, ORDERED_WITHIN_S)
            calls_pass(console, laptop.host.address)
            names_are_kept_apart(console, host.address)
            node.kill()
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(console.say, "apps", "create", "late")
                assert not wait([waiting], PAUSE_S).done, "neither refused nor lost"
                node.start_as("up", "--acme-ca-file", str(laptop.root))
                waiting.result()
            assert "late" in console.say("apps", "list"), "it waited for the next daemon"
        finally:
            strays = node.withdraw()
    assert strays == []


@pytest.mark.long(reason="Go builds Pebble; tests/secret/test_certificate_orders.py has the turns of ten nodes")
@pytest.mark.timeout(1800)
def test_one_node_of_a_fleet_orders_the_certificate_of_the_api_and_all_show_it(
    pebble_program: Path, tmp_path: Path
) -> None:
    with NetworkLab(made(tmp_path, "street"), 3) as street:
        laptop = Laptop(street, made(tmp_path, "laptop"))
        flags = ("--api-hostname", API, "--acme-directory", laptop.directory_url, "--acme-ca-file", str(laptop.root))
        fleet = LabFleet(street, made(tmp_path, "nodes"), SystemClock(), *flags, driver="container")
        for stall in fleet.stalls:
            stall.daemon.flags = (*stall.daemon.flags, "--edge-address", stall.host.address)
        with laptop.authority(pebble_program), fleet:
            console = Console(laptop, fleet.stalls[0].daemon.token)
            for stall in fleet.stalls:
                there = ("--resolve", f"{API}:443:{stall.host.address}")
                wait_for(partial(console.is_answered, *there), ORDERED_WITHIN_S)
            Event().wait(TURNS_S)
            rows = console.say("catalog", "query", "SELECT node, hostname FROM certificates")
            assert rows.count(API) == 1, rows
    assert not fleet.left, f"left on the hosts: {fleet.left}"


def test_an_operators_own_certificate_serves_where_no_authority_is_reached(street: NetworkLab, tmp_path: Path) -> None:
    host, laptop = street.hosts[0], Laptop(street, made(tmp_path, "laptop"))
    Path(laptop.environment["SSL_CERT_FILE"]).write_text(root_pem())
    for name, text in zip(("chain.pem", "key.pem"), issued(API), strict=True):
        (tmp_path / name).write_text(text)
    flags = ("--edge-address", host.address, "--api-hostname", API)
    node = Daemon(made(tmp_path, "node"), SystemClock(), *flags, driver="container", before_it=host.before_it)
    try:
        node.start_as("up")
        console = Console(laptop, node.token)
        wait_for(lambda: console.ask(f"http://{API}/v1/apps").startswith("301"), 60)
        assert console.ask(f"{URL}/v1/apps") == "000 ", "nothing is shown that nobody gave"
        files = ("--chain", str(tmp_path / "chain.pem"), "--key", str(tmp_path / "key.pem"))
        here = {**node.environment, "HAWKER_DATA_DIR": str(node.data_dir)}
        typed = [*host.before_it, HAWKER, "node", "certs", "import", API, *files]
        done = subprocess.run(typed, check=False, capture_output=True, text=True, timeout=60, env=here)
        assert done.returncode == 0 and "imported" in done.stdout, done
        wait_for(console.is_answered)
        assert "imported" in console.say("node", "certs", "list")
    finally:
        strays = node.withdraw()
    assert strays == []


def calls_pass(console: Console, laptop: str) -> None:
    """Also a conversation over a WebSocket; and it is known who calls."""
    console.say("apps", "create", "api")
    console.say("run", "hawker/hello", "--name", "one", "-a", "api", "-p", "80:8080/http")
    assert "one" in console.say("machine", "list", "-a", "api")
    assert console.say("exec", "one", "-a", "api", "--", "/bin/hello", "echo", "aloud") == "aloud\n"
    told = [json.loads(line) for line in console.say("audit", "export", "--what", "create_app").splitlines()]
    assert [each["entry"]["source"] for each in told if "entry" in each] == [laptop], told
    assert console.ask(f"{URL}/docs", "--http2") == "200 "


def names_are_kept_apart(console: Console, edge: str) -> None:
    """Of the app that has the API's first label as its name, and of others that nobody has."""
    assert console.ask(f"http://{API}/v1/apps") == f"301 {URL}/v1/apps"
    assert console.ask(f"http://{edge}/") == "200 ", "who names nobody gets the app"
    assert console.ask("http://api.example.net/", "--resolve", f"api.example.net:80:{edge}") == "200 "
    assert console.ask("https://other.example.com/", "--resolve", f"other.example.com:443:{edge}", "-k") == "000 "
    refused = console(HAWKER, "certs", "add", API, "-a", "api")
    assert refused.returncode and "its API is reached there" in refused.stderr
