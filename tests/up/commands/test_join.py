import os
import subprocess
import sys
from pathlib import Path

import pytest

from hawker.cli.exits import ExitStatus
from hawker.up.commands.join import command, up_words
from hawker.up.commands.up import HELP
from hawker.up.commands.up import command as up_command

_MAIN = "import sys; from hawker.cli.main import main; sys.exit(main())"


def said(tmp_path: Path, *words: str, given: str = "", **environ: str) -> "subprocess.CompletedProcess[str]":
    """A process of its own: a node sets its umask."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HAWKER_")}
    return subprocess.run(
        [sys.executable, "-c", _MAIN, *words, "--data-dir", str(tmp_path / "node")],
        env=kept | environ,
        input=given,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_joining_takes_every_option_of_a_node() -> None:
    assert [param.name for param in command.params] == ["address", "token_file", "token", "start", "config", *HELP]


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("127.0.0.1:1", "--token-file", "{file}"), ExitStatus.UNAVAILABLE, "hawker up --listen ADDRESS:4280"),
        (("127.0.0.1:1", "--token-file", "{file}s"), ExitStatus.USAGE, "cannot read the token in"),
        (("ftp://x", "--token-file", "{file}"), ExitStatus.FAILED, "'ftp://x' is no address of a node"),
        (("127.0.0.1", "--token-file", "{file}", "--peer-port", "0"), ExitStatus.USAGE, "peer_port must be at least"),
        (("127.0.0.1:1", "--token", "t"), ExitStatus.USAGE, "every user of this host can read a token in the command"),
    ],
)
def test_wrong_setting_is_one_line(tmp_path: Path, words: tuple[str, ...], status: int, text: str) -> None:
    (tmp_path / "invite").write_text("t\n")
    done = said(tmp_path, "join", *(word.format(file=tmp_path / "invite") for word in words))
    assert (done.returncode, done.stdout) == (status, ""), done.stderr
    assert text in done.stderr.splitlines()[0]


def test_the_token_may_be_a_variable(tmp_path: Path) -> None:
    assert "cannot reach" in said(tmp_path, "join", "127.0.0.1:1", HAWKER_TOKEN="t").stderr


def test_the_token_may_come_from_stdin(tmp_path: Path) -> None:
    assert "cannot reach" in said(tmp_path, "join", "127.0.0.1:1", "--token-file", "-", given="t\n").stderr


def test_a_host_without_a_token_is_told_what_to_give(tmp_path: Path) -> None:
    assert "give an invitation of `hawker fleet invite` with --token-file FILE" in said(tmp_path, "join", "h").stderr


def test_the_options_of_a_join_are_those_of_the_node_that_follows() -> None:
    flags: dict[str, object] = {"region": "mad", "ephemeral": True, "rate_limits": False, "labels": ("a=b", "c=d")}
    words = up_words(Path("/etc/h.toml"), {**flags, "driver": None, "nameservers": ()})
    config, given = Path("/etc/h.toml"), {}
    with up_command.make_context("up", list(words)) as ctx:
        config = ctx.params.pop("config")
        given = {name: value for name, value in ctx.params.items() if value not in (None, ())}
    assert (config, given) == (Path("/etc/h.toml"), flags)
