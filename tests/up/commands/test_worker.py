from pathlib import Path

import click

from hawker.cli.exits import ExitStatus
from hawker.up.commands.worker import command
from tests.up.commands.test_join import said


def test_a_worker_takes_every_option_of_a_node() -> None:
    assert {"data_dir", "advertise", "region", "listen"} <= {param.name for param in command.params}


def test_help_of_a_worker_shows_no_address_for_clients() -> None:
    shown = command.get_help(click.Context(command))
    assert "--advertise" in shown and "--listen" not in shown


def test_a_worker_is_one_of_a_cluster(tmp_path: Path) -> None:
    done = said(tmp_path, "worker", "--driver", "process")
    assert (done.returncode, done.stdout) == (ExitStatus.USAGE, "")
    assert "give --advertise, or run `hawker join --no-start` first" in done.stderr
    assert not (tmp_path / "node").exists()
