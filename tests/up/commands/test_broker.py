import os
import subprocess
import sys
from pathlib import Path

from hawker.cli.exits import ExitStatus
from hawker.up.commands.broker import command


def test_a_broker_takes_the_settings_it_needs() -> None:
    assert {option.name for option in command.params} == {
        "config", "data_dir", "listen", "log_level", "rate_limits", "market",
    }  # fmt: skip


def test_without_a_node_it_says_what_to_do(tmp_path: Path) -> None:
    code = "import sys; from hawker.cli.main import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, "broker", "--data-dir", str(tmp_path)],
        env=dict(os.environ),
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (ExitStatus.USAGE, "")
    assert "cluster.json: a broker serves a node in a cluster" in done.stderr
