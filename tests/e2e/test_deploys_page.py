"""The commands of docs/deploys.md, run as they stand there, and what becomes of a deploy whose client is gone."""

import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.command_line import CommandLine
from tests.e2e.running_node import RunningNode
from tests.waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs/deploys.md"
_BLOCK = re.compile(r"(?:<!-- status: (\d+) -->\n)?```(toml|console)\n(.*?)```", re.DOTALL)
FILE = """
app = "{app}"
[build]
image = "hawker/hello"
[processes]
web = "8080"
[hawker.deploy]
smoke = "{smoke}"
"""


@pytest.fixture
def hawker(node: RunningNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLine]:
    """In a folder of its own. Apps that were deployed go in the end."""
    monkeypatch.chdir(tmp_path)
    command = CommandLine(node.environment | {"HAWKER_DATA_DIR": str(node.data_dir)})
    yield command
    for app in ("shop", "watched", "killed"):
        command("apps", "destroy", app, "--force")


def blocks(text: str) -> Iterator[tuple[int, str, str]]:
    """In the page's order: the exit status of its commands, what it is, its text."""
    for status, kind, body in _BLOCK.findall(text):
        yield int(status or 0), kind, body


def test_the_page_types_every_command_of_its_own() -> None:
    typed = [line for _, kind, body in blocks(PAGE.read_text()) if kind == "console" for line in body.splitlines()]
    assert len(typed) >= 8 and all(line.startswith("$ hawker ") for line in typed)


def test_the_page_can_be_typed(hawker: CommandLine, tmp_path: Path) -> None:
    for status, kind, body in blocks(PAGE.read_text()):
        if kind == "toml":
            (tmp_path / "fly.toml").write_text(body)
            continue
        for line in body.splitlines():
            done = hawker(*shlex.split(line.removeprefix("$ hawker ")))
            assert done.status == status, (line, done)
    shown = hawker.say("deploy", "list", "-a", "shop")
    assert [line.split()[:2] for line in shown.splitlines()[1:]] == [
        ["v4", "complete"],
        ["v3", "rolled_back"],
        ["v2", "complete"],
        ["v1", "complete"],
    ]


def _followed(hawker: CommandLine) -> "subprocess.Popen[bytes]":
    """A client that watches a deploy which is under way."""
    client = hawker.begin("deploy")
    assert client.stderr is not None
    while b"under way" not in client.stderr.readline():
        assert client.poll() is None
    return client


def test_ctrl_c_stops_watching_and_not_the_deploy(hawker: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "fly.toml").write_text(FILE.format(app="watched", smoke="8s"))
    client = _followed(hawker)
    client.send_signal(signal.SIGINT)
    _, err = client.communicate(timeout=300)
    assert client.returncode == 130 and b"hawker deploy watch -a watched" in err
    assert hawker("deploy", "watch", "-a", "watched").status == 0


def test_a_client_and_a_daemon_that_are_killed_do_not_stop_a_deploy(
    hawker: CommandLine, node: RunningNode, tmp_path: Path
) -> None:
    (tmp_path / "fly.toml").write_text(FILE.format(app="killed", smoke="3s"))
    client = _followed(hawker)
    client.kill()
    client.communicate(timeout=300)
    node.kill()
    node.start()
    wait_for(lambda: hawker("deploy", "watch", "-a", "killed").status == 0)
    assert hawker.say("ps", "-a", "killed").count("started") == 1
