"""The first session of README.md, typed as it stands there on a node of its own; ids and addresses are the node's."""

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hawker.chaos.daemon import HAWKER, Daemon
from hawker.clock import SystemClock

pytestmark = [pytest.mark.root, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "README.md"
WITHIN_S = 240.0
_BLOCK = re.compile(r"## A first session\n\n```console\n(?P<lines>.*?)```", re.DOTALL)
_FIELD = re.compile(r"^(?:machine|address)  (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Command:
    """`shown` is its output on the page."""

    words: str
    shown: str

    @property
    def fails(self) -> bool:
        return self.shown.startswith("error: ")


def session(text: str) -> Iterator[Command]:
    """The commands in the page's order. Raises `AssertionError` where the page has no session."""
    block = _BLOCK.search(text)
    assert block is not None, "README.md has no first session"
    for part in block["lines"].split("$ ")[1:]:
        words, _, shown = part.partition("\n")
        yield Command(words, shown)


def typed(words: str, daemon: Daemon) -> "subprocess.CompletedProcess[str]":
    path = f"{Path(HAWKER).parent}:{os.environ['PATH']}"
    environment = {**daemon.environment, "HAWKER_DATA_DIR": str(daemon.data_dir), "PATH": path}
    return subprocess.run(
        ["sh", "-c", words], check=False, capture_output=True, text=True, timeout=WITHIN_S, env=environment
    )


def test_readme_session_starts_a_node_first() -> None:
    commands = list(session(PAGE.read_text()))
    assert commands[0].words == "hawker up 2>node.log &" and len(commands) >= 8


def test_readme_session_can_be_typed(tmp_path: Path) -> None:
    first, *commands = session(PAGE.read_text())
    daemon = Daemon(tmp_path, SystemClock(), driver="container").start("--ephemeral")
    assert first.shown.startswith("ready http://") and daemon.output.startswith("ready http://")
    names: dict[str, str] = {}
    try:
        for command in commands:
            words = command.words
            for shown, real in names.items():
                words = words.replace(shown, real)
            done = typed(words, daemon)
            assert (done.returncode != 0) == command.fails, f"{words}: {done.stderr}"
            names.update(zip(_FIELD.findall(command.shown), _FIELD.findall(done.stdout), strict=True))
            _check_headings(command, done.stdout)
    finally:
        strays = daemon.withdraw()
    assert strays == []


def _check_headings(command: Command, said: str) -> None:
    """A table has the columns of the page."""
    heading = command.shown.partition("\n")[0]
    if heading.isupper():
        assert said.partition("\n")[0].split() == heading.split()
