import os
import subprocess
import sys
from pathlib import Path

import click
import msgspec
import pytest

from hawker.cli.exits import ExitStatus
from hawker.settings import Settings
from hawker.up.commands.up import HELP, SINGULAR, command


def refused(tmp_path: Path, *words: str, **environ: str) -> str:
    """The one line that a node says which cannot start. A process of its own: a node sets up logging and its umask."""
    code = "import sys; from hawker.cli.main import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, "up", "--data-dir", str(tmp_path / "node"), *words],
        env={**os.environ, **environ},
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (ExitStatus.USAGE, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    return line


def test_every_setting_has_a_flag_and_a_help() -> None:
    fields = [field.name for field in msgspec.structs.fields(Settings)]
    assert list(HELP) == fields
    assert [param.name for param in command.params] == ["config", *fields]


def test_the_help_says_each_default() -> None:
    helps = {param.name: param.help or "" for param in command.params if isinstance(param, click.Option)}
    assert helps["idle_s"].endswith(" Default 300.")
    assert helps["volume_discards"].endswith(" Default: yes.")
    for field in msgspec.structs.fields(Settings):
        assert "efault" in helps[field.name] or field.default in (None, (), False, msgspec.NODEFAULT), field.name


def test_lists_are_given_one_by_one() -> None:
    lists = {field.name for field in msgspec.structs.fields(Settings) if field.type == tuple[str, ...]}
    assert lists == SINGULAR.keys()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--cpus", "many"], "cpus"),
        (["--listen", "nonsense"], "--listen takes HOST:PORT"),
        (["--config", "/nowhere.toml"], "cannot read the settings file /nowhere.toml"),
        (["--driver", "warp"], "there is no driver 'warp'"),
    ],
)
def test_a_node_that_cannot_start_says_so_in_one_line(tmp_path: Path, words: list[str], text: str) -> None:
    assert text in refused(tmp_path, *words)
    assert not (tmp_path / "node").exists()


def test_the_clients_own_variables_are_no_settings(tmp_path: Path) -> None:
    line = refused(tmp_path, "--listen", "nonsense", HAWKER_URL="x", HAWKER_TOKEN="x", HAWKER_APP="x")
    assert "HOST:PORT" in line


def test_a_misspelt_variable_is_an_error(tmp_path: Path) -> None:
    assert "listn" in refused(tmp_path, HAWKER_LISTN="x")


def test_flags_win_over_variables_and_those_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "hawker.toml"
    file.write_text('driver = "from-file"\nlisten = "from-file"\n')
    line = refused(tmp_path, "--config", str(file), "--driver", "process", HAWKER_LISTEN="from-variable")
    assert "from-variable" in line


def test_node_that_is_alone_begins_with_at_most_773_modules_and_without_what_it_may_never_need() -> None:
    """Each costs a part of a millisecond of every boot, and memory for as long as the node runs."""
    begin = "import sys; before = set(sys.modules); import hawker.up.commands.up"
    code = f"{begin}; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=300)
    loaded = set(done.stdout.split())
    assert len(loaded) <= 773, len(loaded)
    assert not loaded & {"aiohttp", "hypercorn", "cryptography", "nacl", "websockets", "tomllib", "rich"}
    rooms = ("hawker.catalog.storage", "hawker.gossip.node", "hawker.up.fleet", "hawker.gateway.gateway")
    assert not loaded & {*rooms, "hawker.runtime.microvm", "hawker.api.openapi", "hawker.secret.keyring"}
