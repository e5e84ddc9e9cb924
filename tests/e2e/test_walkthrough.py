"""The commands of docs/walkthrough.md, run as they stand there: three hosts, one lost, a spare started, one drained."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from hawker.chaos.daemon import HAWKER, Daemon
from hawker.chaos.fleet.network_lab import NetworkLab
from hawker.chaos.fleet.real_fleet import LabNode
from hawker.clock import SystemClock
from tests.waiting import eventually

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.anyio]

PAGE = Path(__file__).parents[2] / "docs/walkthrough.md"
WITHIN_S = 120.0
_BLOCK = re.compile(r"(?:<!-- until: (?P<until>[^\n]+) -->\n)?```console\n(?P<lines>.*?)```", re.DOTALL)
_COMMAND = re.compile(r"^(?P<host>[a-z']+)\$ (?P<words>.+)$", re.MULTILINE)
_HOSTS = ("one", "two", "three")


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


class Reader:
    """Types what the page says. Each host has a data directory of its own in the place of the usual one."""

    def __init__(self, street: NetworkLab, directory: Path) -> None:
        self.stalls: dict[str, LabNode] = {}
        for name, host in zip(_HOSTS, street.hosts, strict=True):
            (directory / name).mkdir()
            daemon = Daemon(directory / name, SystemClock(), driver="container", before_it=host.before_it)
            self.stalls[name] = LabNode(host, daemon)
        self._invite = directory / "invite"
        self._variables: dict[str, str] = {}

    async def type(self, command: Command) -> None:
        stall = self.stalls[self._name(command.host)]
        words = self._filled(command.words).replace("/tmp/invite", str(self._invite))
        if words == "poweroff":
            stall.power_off()
        elif words.endswith("&"):
            self._begin(stall, words.removesuffix("&").split())
        elif command.until is None:
            done = self._run(stall, words)
            assert done.returncode == 0, f"{words}: {done.stderr}"
            self._learn(words, done.stdout)
        else:
            pattern = re.compile(command.until, re.DOTALL)

            async def seen() -> bool:
                return pattern.search(self._run(stall, words).stdout) is not None

            await eventually(seen, WITHIN_S)

    def _begin(self, stall: LabNode, words: list[str]) -> None:
        """As the page has it; where the data and how machines are run is ours."""
        assert words[0] == "hawker"
        if not stall.host.has_power:
            stall.host.power_on()
            stall.daemon.before_it = stall.host.before_it
        stall.daemon.start_as(*words[1:])

    def _run(self, stall: LabNode, words: str) -> "subprocess.CompletedProcess[str]":
        command = [*stall.host.before_it, "sh", "-c", words]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=_environment(stall))

    def _name(self, host: str) -> str:
        if host in self.stalls:
            return host
        owner = self._variables["WORKERS_NODE"]
        worker = next(name for name, stall in self.stalls.items() if stall.id == owner)
        return worker if host == "worker's" else next(name for name in _HOSTS if name != worker)

    def _filled(self, words: str) -> str:
        for name, value in self._variables.items():
            words = words.replace(f"${name}", value)
        return words

    def _learn(self, words: str, said: str) -> None:
        if "catalog query" in words:
            row = next(line.split() for line in said.splitlines() if " worker " in line)
            self._variables["WORKERS_NODE"] = row[0]
            owner = next(stall for stall in self.stalls.values() if stall.id == row[0])
            self._variables["ADDRESS"] = owner.host.address


def _environment(stall: LabNode) -> Mapping[str, str]:
    path = f"{Path(HAWKER).parent}:{os.environ['PATH']}"
    return {**stall.daemon.environment, "HAWKER_DATA_DIR": str(stall.daemon.data_dir), "PATH": path}


def test_the_page_has_commands_for_every_host() -> None:
    found = list(commands(PAGE.read_text()))
    assert {command.host for command in found} == {*_HOSTS, "worker's", "another"}
    assert sum(command.until is not None for command in found) >= 5


@pytest.mark.long(reason="thirty commands on three hosts; test_fleet_join.py and test_readme.py are the short form")
async def test_the_page_can_be_followed(tmp_path: Path) -> None:
    for name in ("street", "hosts"):
        (tmp_path / name).mkdir()
    with NetworkLab(tmp_path / "street", 74, 3, network="192.0.2") as street:
        reader = Reader(street, tmp_path / "hosts")
        try:
            for command in commands(PAGE.read_text()):
                await reader.type(command)
        finally:
            strays = [trace for stall in reader.stalls.values() for trace in withdrawn(stall)]
        assert strays == []


def withdrawn(stall: LabNode) -> list[str]:
    if not stall.host.has_power:
        stall.host.power_on()
        stall.daemon.before_it = stall.host.before_it
    return stall.daemon.withdraw()
