"""The commands of docs/walkthrough.md and docs/walkthrough-browser.md, run as they stand there: three hosts, one lost,
a spare started, one drained; and an app with a name and a certificate, of which Pebble is the authority.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from hawker.chaos.daemon import HAWKER, Daemon
from hawker.chaos.fleet.network_lab import LabHost, NetworkLab
from hawker.chaos.fleet.real_fleet import LabNode
from hawker.clock import SystemClock
from tests.certificates import issued, root_pem
from tests.edge.test_acme import pebble_program as pebble_program
from tests.waiting import eventually, wait_for

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.anyio]

DOCS = Path(__file__).parents[2] / "docs"
PAGE, BROWSER_PAGE = DOCS / "walkthrough.md", DOCS / "walkthrough-browser.md"
WITHIN_S = 240.0
_COMMAND_S = 180.0  # one that drains a host moves its machines one after the other
_BLOCK = re.compile(r"(?:<!-- until: (?P<until>[^\n]+) -->\n)?```console\n(?P<lines>.*?)```", re.DOTALL)
_COMMAND = re.compile(r"^(?P<host>[a-z']+)\$ (?P<words>.+)$", re.MULTILINE)
_HOSTS, _LAPTOP = ("one", "two", "three"), "laptop"
_AUTHORITY = "https://acme-v02.api.letsencrypt.org/directory"
_SITE, _PEBBLE, _PEBBLE_PORT, _ROOTS_PORT = "site.example.com", "acme.example.org", 14_000, 15_000
API = "api.example.com"


@dataclass(frozen=True, slots=True)
class Command:
    """`until` is what its output has in the end; it is given again until then."""

    host: str
    words: str
    until: str | None


def commands(text: str) -> Iterator[Command]:
    """In the page's order. What is awaited is awaited of the last command of its block."""
    for block in _BLOCK.finditer(text):
        found = list(_COMMAND.finditer(block["lines"]))
        for index, each in enumerate(found):
            until = block["until"] if index == len(found) - 1 else None
            yield Command(each["host"], each["words"], until)


class Laptop:
    """A computer that is none of the fleet. The authority of certificates is there, too, at `directory_url`. All hosts
    know their names, and two that lead to the first one."""

    directory_url = f"https://{_PEBBLE}:{_PEBBLE_PORT}/dir"

    def __init__(self, street: NetworkLab, directory: Path) -> None:
        self.host: LabHost = street.hosts[-1]
        self._directory = directory
        names = directory / "names"
        lines = ("127.0.0.1 localhost", f"{self.host.address} {_PEBBLE}", f"{street.hosts[0].address} {_SITE} {API}")
        names.write_text("\n".join((*lines, "")))
        for host in street.hosts:
            host.run("mount", "--bind", str(names), "/etc/hosts")
        (directory / "root.pem").write_text(root_pem())
        self._begun: list[subprocess.Popen[bytes]] = []

    @property
    def root(self) -> Path:
        """Of the authority's own TLS."""
        return self._directory / "root.pem"

    @contextmanager
    def authority(self, program: Path) -> Iterator[None]:
        chain, key = issued(_PEBBLE)
        (self._directory / "chain.pem").write_text(chain)
        (self._directory / "key.pem").write_text(key)
        config = {
            "listenAddress": f"{self.host.address}:{_PEBBLE_PORT}",
            "managementListenAddress": f"{self.host.address}:{_ROOTS_PORT}",
            "certificate": str(self._directory / "chain.pem"),
            "privateKey": str(self._directory / "key.pem"),
            "httpPort": 80,
            "tlsPort": 443,
        }
        (self._directory / "config.json").write_text(json.dumps({"pebble": config}))
        environment = {**os.environ, "PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": "0"}
        words = (*self.host.before_it, str(program), "-config", str(self._directory / "config.json"))
        with (
            (self._directory / "log").open("wb") as log,
            subprocess.Popen(words, env=environment, stdout=log, stderr=log) as process,
        ):
            try:
                wait_for(self._trusts)
                yield
            finally:
                for begun in (process, *self._begun):
                    begun.kill()
                    begun.wait()

    def _trusts(self) -> bool:
        """The root of what is issued, once it is there."""
        roots = f"https://{_PEBBLE}:{_ROOTS_PORT}/roots/0"
        words = (*self.host.before_it, "curl", "--silent", "--fail", "--cacert", str(self.root), roots)
        said = subprocess.run(words, check=False, capture_output=True)
        (self._directory / "issued.pem").write_bytes(said.stdout)
        return said.returncode == 0

    @property
    def environment(self) -> Mapping[str, str]:
        trusted = str(self._directory / "issued.pem")
        return {**os.environ, "CURL_CA_BUNDLE": trusted, "SSL_CERT_FILE": trusted}

    def begin(self, words: str) -> None:
        self._begun.append(subprocess.Popen((*self.host.before_it, "sh", "-c", words), env=self.environment))


class Reader:
    """Types what the page says. Each host has a data directory of its own in the place of the usual one."""

    def __init__(self, street: NetworkLab, directory: Path, laptop: Laptop | None = None) -> None:
        self.stalls: dict[str, LabNode] = {}
        self._laptop = laptop
        for name, host in zip(_HOSTS, street.hosts, strict=False):
            (directory / name).mkdir()
            daemon = Daemon(directory / name, SystemClock(), driver="container", before_it=host.before_it)
            self.stalls[name] = LabNode(host, daemon)
        self._files = {f"/tmp/{name}": str(directory / name) for name in ("invite", "load")}
        self._variables: dict[str, str] = {}

    async def type(self, command: Command) -> None:
        words = self._filled(command.words)
        if words == "poweroff":
            self.stalls[self._name(command.host)].power_off()
        elif words.endswith("&") and self._laptop is not None and command.host == _LAPTOP:
            self._laptop.begin(words.removesuffix("&"))
        elif words.endswith("&"):
            self._begin(self.stalls[self._name(command.host)], words.removesuffix("&").split())
        elif command.until is None:
            done = self._run(command.host, words)
            assert done.returncode == 0, f"{words}: {done.stderr}"
            self._learn(words, done.stdout)
        else:
            pattern = re.compile(command.until, re.DOTALL)

            async def seen() -> bool:
                return pattern.search(self._run(command.host, words).stdout) is not None

            await eventually(seen, WITHIN_S)

    def _begin(self, stall: LabNode, words: list[str]) -> None:
        """As the page has it; where the data and how machines are run is ours."""
        assert words[0] == "hawker"
        if "--acme-directory" in words and self._laptop is not None:
            words += ["--acme-ca-file", str(self._laptop.root)]
        if not stall.host.has_power:
            stall.host.power_on()
            stall.daemon.before_it = stall.host.before_it
        stall.daemon.start_as(*words[1:])

    def _run(self, host: str, words: str) -> "subprocess.CompletedProcess[str]":
        if host == _LAPTOP and self._laptop is not None:
            before_it, environment = self._laptop.host.before_it, self._laptop.environment
        else:
            stall = self.stalls[self._name(host)]
            before_it, environment = stall.host.before_it, _environment(stall)
        command = [*before_it, "sh", "-c", words]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=_COMMAND_S, env=environment)

    def _name(self, host: str) -> str:
        if host in self.stalls:
            return host
        owner = self._variables["WORKERS_NODE"]
        worker = next(name for name, stall in self.stalls.items() if stall.id == owner)
        return worker if host == "worker's" else next(name for name in _HOSTS if name != worker)

    def _filled(self, words: str) -> str:
        for name, value in self._variables.items():
            words = words.replace(f"${name}", value)
        for named, own in self._files.items():
            words = words.replace(named, own)
        return words.replace(_AUTHORITY, Laptop.directory_url)

    def _learn(self, words: str, said: str) -> None:
        if "catalog query" in words:
            row = next(line.split() for line in said.splitlines() if " worker " in line)
            self._variables["WORKERS_NODE"] = row[0]
            owner = next(stall for stall in self.stalls.values() if stall.id == row[0])
            self._variables["ADDRESS"] = owner.host.address


def _environment(stall: LabNode) -> Mapping[str, str]:
    path = f"{Path(HAWKER).parent}:{os.environ['PATH']}"
    return {**stall.daemon.environment, "HAWKER_DATA_DIR": str(stall.daemon.data_dir), "PATH": path}


def test_the_pages_have_commands_for_every_host() -> None:
    for page, others in ((PAGE, {"worker's", "another"}), (BROWSER_PAGE, {_LAPTOP})):
        found = list(commands(page.read_text()))
        assert {command.host for command in found} == {*_HOSTS, *others}
        assert sum(command.until is not None for command in found) >= 5


@pytest.mark.long(reason="thirty commands on three hosts; test_fleet_join.py and test_readme.py are the short form")
@pytest.mark.timeout(1800)  # each command takes seconds to begin on a busy host
async def test_the_page_can_be_followed(tmp_path: Path) -> None:
    with NetworkLab(made(tmp_path, "street"), 3, network="192.0.2") as street:
        await follow(PAGE.read_text(), Reader(street, made(tmp_path, "hosts")))


@pytest.mark.long(reason="Go builds Pebble, and hey asks for 20 s; test_edge_regions.py has the ways between regions")
@pytest.mark.timeout(1800)
@pytest.mark.skipif(shutil.which("hey") is None, reason="needs hey: `make judges-setup` installs it")
async def test_the_way_to_a_browser_can_be_followed(pebble_program: Path, tmp_path: Path) -> None:
    with NetworkLab(made(tmp_path, "street"), 4, network="192.0.2") as street:
        laptop = Laptop(street, made(tmp_path, "laptop"))
        with laptop.authority(pebble_program):
            await follow(BROWSER_PAGE.read_text(), Reader(street, made(tmp_path, "hosts"), laptop))


async def follow(page: str, reader: Reader) -> None:
    try:
        for command in commands(page):
            await reader.type(command)
    finally:
        strays = [trace for stall in reader.stalls.values() for trace in withdrawn(stall)]
    assert strays == []


def made(directory: Path, name: str) -> Path:
    (directory / name).mkdir()
    return directory / name


def withdrawn(stall: LabNode) -> list[str]:
    if not stall.host.has_power:
        stall.host.power_on()
        stall.daemon.before_it = stall.host.before_it
    return stall.daemon.withdraw()
