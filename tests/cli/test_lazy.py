import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest

import hawker
from hawker.cli.commands.edge import TABLE as EDGE_TABLE
from hawker.cli.commands.machine import TABLE as MACHINE_TABLE
from hawker.cli.commands.node import TABLE as NODE_TABLE
from hawker.cli.commands.volumes import TABLE as VOLUMES_TABLE
from hawker.cli.lazy import CommandModule, LazyGroup
from hawker.cli.main import TABLE
from hawker.sim.commands.worker import TABLE as SIM_TABLE
from tests.cli.fake_node import TOKEN, FakeNode, machine

PLACES = [
    *TABLE.items(),
    *EDGE_TABLE.items(),
    *MACHINE_TABLE.items(),
    *NODE_TABLE.items(),
    *SIM_TABLE.items(),
    *VOLUMES_TABLE.items(),
]
_GROUPS = {f"hawker.cli.commands.{name}" for name in ("machine", "node", "volumes")}
_SOURCE = Path(hawker.__file__).parent
_FOLDERS = ("cli/commands", "up/commands", "sim/commands")
_OUTSIDE = {
    "hawker.chaos.commands",
    "hawker.dns.commands",
    "hawker.edge.commands",
    "hawker.edge.program",
    "hawker.fleet.presence",
    "bench.schedulers.command",
}


@pytest.mark.parametrize(("name", "place"), PLACES, ids=[name for name, _ in PLACES])
def test_every_place_holds_its_command(name: str, place: CommandModule) -> None:
    command = place.load()
    is_short_form = place.summary.endswith(f": machine {command.name}.")
    assert place.hidden or is_short_form or command.name == name
    assert command.help


def test_every_file_of_commands_is_in_a_table() -> None:
    found = {
        ".".join(("hawker", *file.relative_to(_SOURCE).with_suffix("").parts))
        for folder in _FOLDERS
        for file in (_SOURCE / folder).rglob("*.py")
        if file.stem != "__init__"
    }
    assert found | _OUTSIDE == {place.module for _, place in PLACES} - _GROUPS


def test_commands_are_listed_in_the_tables_order_without_the_hidden_ones() -> None:
    group = LazyGroup(
        "g", {"b": CommandModule("no.such", "Second."), "a": CommandModule("no.such", "Never.", hidden=True)}
    )
    help_text = group.get_help(click.Context(group))
    assert "b  Second." in help_text
    assert "Never" not in help_text
    assert group.list_commands(click.Context(group)) == ["b", "a"]


def test_running_a_command_loads_it_and_no_other() -> None:
    group = LazyGroup(
        "g", {"node": CommandModule("hawker.cli.commands.node", "x"), "bad": CommandModule("no.such", "x")}
    )
    ctx = click.Context(group)
    _, command, rest = group.resolve_command(ctx, ["node", "show"])
    assert command is import_module("hawker.cli.commands.node").command
    assert rest == ["show"]


def test_an_unknown_command_is_answered_with_the_ones_like_it() -> None:
    group = LazyGroup("g", {"list": CommandModule("no.such", "x")})
    with pytest.raises(click.UsageError, match="lst"):
        group.resolve_command(click.Context(group), ["lst"])


def test_help_imports_neither_an_http_client_nor_the_node() -> None:
    code = (
        "import sys; from hawker.cli.main import main; main(['--help']); main(['machine', '--help']);"
        "sys.exit(' '.join({'aiohttp', 'uvicorn', 'apsw', 'rich', 'hawker.up', 'anyio'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=90)
    assert (done.returncode, done.stderr) == (0, "")


def _loaded_by(code: str) -> set[str]:
    """What is imported after `code`, beyond what the interpreter begins with."""
    script = (
        f"import sys; before = set(sys.modules)\n{code}\nprint(*sorted(set(sys.modules) - before), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=90)
    return set(done.stderr.split())


def test_help_loads_at_most_90_modules() -> None:
    """Each costs a part of a millisecond, and a person waits for all of them."""
    loaded = _loaded_by("from hawker.cli.main import main; main(['--help'])")
    assert len(loaded) <= 90, sorted(loaded)
    assert not loaded & {"msgspec", "logging", "socket", "asyncio"}


def test_list_of_machines_loads_at_most_150_modules_and_no_event_loop(node: FakeNode, url: str) -> None:
    node.add("shop", machine())
    command = ["--url", url, "--token", TOKEN, "machine", "list"]
    loaded = _loaded_by(f"from hawker.cli.main import main; assert main({command}) == 0")
    assert len(loaded) <= 150, sorted(loaded)
    assert not loaded & {"asyncio", "anyio", "ssl", "hawker.api", "hawker.config", "aiohttp"}


def test_an_order_loads_fewer_than_80_of_our_modules(node: FakeNode, url: str) -> None:
    node.add("default")
    command = ["--url", url, "--token", TOKEN, "machine", "create", "hawker/hello"]
    loaded = _loaded_by(f"from hawker.cli.main import main; assert main({command}) == 0")
    ours = {name for name in loaded if name.split(".")[0] == "hawker"}
    assert len(ours) < 80, " ".join(sorted(ours))
