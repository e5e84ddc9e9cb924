from pathlib import Path

from hawker.cli.exits import ExitStatus
from hawker.up.commands.worker import command
from tests.up.commands.test_join import said


def test_a_worker_takes_every_option_of_a_node() -> None:
    assert {"data_dir", "advertise", "region"} <= {param.name for param in command.params}


def test_a_worker_is_one_of_a_cluster(tmp_path: Path) -> None:
    done = said(tmp_path, "worker", "--driver", "process")
    assert (done.returncode, done.stdout) == (ExitStatus.USAGE, "")
    assert "give --advertise, or run `hawker join --no-start` first" in done.stderr
    assert not (tmp_path / "node").exists()
