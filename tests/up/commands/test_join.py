import os
import subprocess
import sys
from pathlib import Path

import pytest

from hawker.cli.exits import ExitStatus
from hawker.up.commands.join import command
from hawker.up.commands.up import HELP

_MAIN = "import sys; from hawker.cli.main import main; sys.exit(main())"


def said(tmp_path: Path, *words: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    """A process of its own: a node sets its umask."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HAWKER_")}
    return subprocess.run(
        [sys.executable, "-c", _MAIN, *words, "--data-dir", str(tmp_path / "node")],
        env=kept | environ,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_joining_takes_every_option_of_a_node() -> None:
    assert [param.name for param in command.params] == ["address", "token", "start", "config", *HELP]


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("127.0.0.1:1",), ExitStatus.FAILED, "give the root token of the other node with --token"),
        (("127.0.0.1:1", "--token", "t"), ExitStatus.UNAVAILABLE, "cannot reach http://127.0.0.1:1"),
        (("ftp://x", "--token", "t"), ExitStatus.FAILED, "'ftp://x' is no address of a node"),
        (("127.0.0.1", "--token", "t", "--peer-port", "0"), ExitStatus.USAGE, "peer_port must be at least 1"),
    ],
)
def test_wrong_setting_is_one_line(tmp_path: Path, words: tuple[str, ...], status: int, text: str) -> None:
    done = said(tmp_path, "join", *words)
    assert (done.returncode, done.stdout) == (status, "")
    assert text in done.stderr.splitlines()[0]


def test_the_token_may_be_a_variable(tmp_path: Path) -> None:
    assert "cannot reach" in said(tmp_path, "join", "127.0.0.1:1", HAWKER_TOKEN="t").stderr


def test_the_token_may_stand_before_the_command(tmp_path: Path) -> None:
    assert "cannot reach" in said(tmp_path, "--token", "t", "join", "127.0.0.1:1").stderr
