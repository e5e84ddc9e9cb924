"""Agents that keep a fleet's catalog, one for each of its nodes: real ones where `HAWKER_CORROSION` names Corrosion's
binary, else played ones, in a thread of this process. Both are configured as docs/cluster.md says.
"""

import os
import re
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from hawker.catalog.schema import shipped
from tests.catalog.played.agent import Pace, PlayedAgent, acquaint
from tests.ports import free_port
from tests.waiting import wait_for

BINARY = "HAWKER_CORROSION"
_PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"
TOKEN = "a long random word"


def configuration(place: Path, gossip: int, others: Sequence[int], api: int) -> str:
    """The whole one of docs/cluster.md, with directories and addresses of its own in the place of the page's."""
    found: str
    (found,) = re.findall("^```toml\n(.*?)^```$", _PAGE.read_text(), re.DOTALL | re.MULTILINE)
    bootstrap = ", ".join(f'"127.0.0.1:{port}"' for port in others)
    for theirs, ours in (
        ("/var/lib/corrosion", f"{place}"),
        ("/etc/corrosion", f"{place}"),
        ("/var/run/corrosion", f"{place}"),
        ('"10.0.0.1:8787"', f'"127.0.0.1:{gossip}"'),
        ('"10.0.0.2:8787", "10.0.0.3:8787"', bootstrap),
        ('"127.0.0.1:8080"', f'"127.0.0.1:{api}"'),
    ):
        assert theirs in found, f"{_PAGE.name} does not name {theirs}"
        found = found.replace(theirs, ours)
    return found


class FleetAgent(Protocol):
    """Its address and its disk outlive its lives."""

    @property
    def url(self) -> str: ...

    def start(self) -> None: ...

    def kill(self) -> None:
        """As a crash does: it forgets its subscriptions."""


class RealAgent:
    def __init__(self, binary: str, place: Path, gossip: int, others: Sequence[int]) -> None:
        self._binary, self._place = binary, place
        self._api = free_port()
        (place / "schemas").mkdir(parents=True)
        (place / "schemas" / "hawker.sql").write_text(shipped())
        (place / "config.toml").write_text(configuration(place, gossip, others, self._api))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._api}"

    def start(self) -> None:
        command = [self._binary, "--config", str(self._place / "config.toml"), "agent"]
        with (self._place / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for(self._listens)

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(60)

    def _listens(self) -> bool:
        with socket.socket() as asking:
            return asking.connect_ex(("127.0.0.1", self._api)) == 0


class PlayedFleetAgent:
    """`pace` is Corrosion's own."""

    def __init__(self, portal: BlockingPortal, played: PlayedAgent) -> None:
        self._portal, self.played = portal, played
        self._life: AbstractAsyncContextManager[str] | None = None

    @property
    def url(self) -> str:
        return self.played.url

    def start(self) -> None:
        self._life = self._portal.wrap_async_context_manager(self.played.running(clean=False))  # type: ignore[assignment]
        self._life.__enter__()  # type: ignore[union-attr]

    def kill(self) -> None:
        life, self._life = self._life, None
        if life is not None:
            life.__exit__(None, None, None)  # type: ignore[attr-defined]


def settings_for(agent: FleetAgent, place: Path) -> dict[str, str]:
    """The variables of a node beside this agent; `place` is the node's."""
    file = place / "agent-token"
    file.write_text(f"{TOKEN}\n")
    return {"HAWKER_CATALOG_URL": agent.url, "HAWKER_CATALOG_TOKEN_FILE": str(file)}


@contextmanager
def catalog_agents(
    place: Path, kind: str, count: int, schemas: Sequence[str] | None = None
) -> Iterator[Sequence[FleetAgent]]:
    """All up, and each gossips with all others. Skips the test where there is no real one. Only played ones can have
    other `schemas` than those of this version."""
    if kind == "played":
        with start_blocking_portal() as portal, ExitStack() as stack:
            played = [
                PlayedAgent(place / f"agent-{number}", schemas or [shipped()], Pace(), TOKEN) for number in range(count)
            ]
            acquaint(played)
            agents = [PlayedFleetAgent(portal, each) for each in played]
            for agent in agents:
                stack.callback(agent.kill)
                agent.start()
            yield agents
        return
    binary = os.environ.get(BINARY)
    if not binary:
        pytest.skip(f"{BINARY} names no binary of Corrosion")
    ports = [free_port() for _ in range(count)]
    real = [RealAgent(binary, place / f"agent-{number}", port, ports) for number, port in enumerate(ports)]
    with ExitStack() as running:
        for each in real:
            running.callback(each.kill)
            each.start()
        yield real
