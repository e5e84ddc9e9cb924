from collections.abc import Iterator

import click
import pytest

from hawker.cli.exits import ExitStatus
from hawker.cli.lazy import LazyGroup
from hawker.cli.main import ROOT, main
from hawker.errors import Unavailable
from tests.cli.conftest import Hawker
from tests.cli.fake_node import TOKEN, FakeNode, machine


def test_without_arguments_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == ExitStatus.USAGE
    assert "hawker run hawker/hello" in capsys.readouterr().err


def test_help_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["machine", "run", "--help"]) == ExitStatus.OK
    assert "--env-file" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text", "where"),
    [
        (["nothing"], "No such command 'nothing'", "hawker"),
        (["machine", "lst"], "Did you mean", "hawker machine"),
        (["machine", "stop"], "Missing argument 'MACHINE...'", "hawker machine stop"),
        (["machine", "run", "--memory", "much", "x"], "not an amount of memory", "hawker machine run"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_where_to_look(
    words: list[str], text: str, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == ExitStatus.USAGE
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ") and text in error
    assert hint == f"hint: see `{where} --help`"


def test_an_unreachable_node_has_a_status_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", "http://127.0.0.1:1", "apps", "list"]) == ExitStatus.UNAVAILABLE
    assert capsys.readouterr().err.startswith("error: cannot reach http://127.0.0.1:1")


def test_an_address_with_https_of_a_node_without_tls_is_told_so(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    secure = url.replace("http://", "https://")
    assert main(["--url", secure, "--token", "limited", "apps", "list"]) == ExitStatus.UNAVAILABLE
    assert f"no TLS with {secure} (wrong version number): " in capsys.readouterr().err


def test_a_wrong_token_says_where_the_right_one_is(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", url, "--token", "wrong", "apps", "list"]) == ExitStatus.FAILED
    assert "hint: give the node's token" in capsys.readouterr().err


def test_a_busy_node_is_to_be_tried_again(node: FakeNode, hawker: Hawker) -> None:
    node.failures["list_apps"] = Unavailable("try later")
    assert hawker("apps", "list").status == ExitStatus.UNAVAILABLE


@pytest.mark.parametrize("group", ["machine", "machines", "m"])
def test_the_group_of_machines_has_three_names(node: FakeNode, hawker: Hawker, group: str) -> None:
    node.add("shop", machine())
    assert hawker(group, "ls", "-q").out == "3d8f0000000001\n"


def test_the_version_is_an_option_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == ExitStatus.OK
    assert capsys.readouterr().out.startswith("hawker ")


_OF_MACHINE = ("run", "logs", "exec", "attach", "cp", "stats", "start", "stop", "restart")
_LONG = {"ps": "machine list", "top": "machine ps", "rm": "machine destroy", "pull": "images pull"}


@pytest.mark.parametrize(("command", "long"), [*_LONG.items(), *((each, f"machine {each}") for each in _OF_MACHINE)])
def test_short_forms_are_the_long_commands(command: str, long: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for words in ([command], long.split()):
        assert main([*words, "--help"]) == ExitStatus.OK
        shown.append(capsys.readouterr().out.partition("\n")[2])
    assert shown[0] == shown[1]


def test_an_address_may_leave_out_the_scheme(node: FakeNode, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", url.removeprefix("http://"), "--token", TOKEN, "ps"]) == ExitStatus.OK
    assert main(["--url", "ftp://x", "ps"]) == ExitStatus.USAGE
    assert "not a node's address" in capsys.readouterr().err


def test_help_fits_80_columns() -> None:
    wide = [line for command, ctx in _every(ROOT, []) for line in command.get_help(ctx).splitlines() if len(line) > 80]
    assert wide == []


def test_an_argument_that_is_missing_is_one_line_also_where_it_has_choices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion"]) == ExitStatus.USAGE
    assert capsys.readouterr().err.splitlines()[1].startswith("hint: ")


def test_no_summary_of_a_command_is_cut() -> None:
    cut = [
        line
        for command, ctx in _every(ROOT, [])
        if isinstance(command, click.Group)
        for line in command.get_help(ctx).splitlines()
        if line.startswith("  ") and line.endswith("...")
    ]
    assert cut == []


_NO_JSON = {
    "up": "a daemon: it writes a log",
    "join": "a daemon: it writes a log",
    "worker": "a daemon: it writes a log",
    "broker": "a daemon: it writes a log",
    "exec": "its output is the command's own",
    "attach": "its output is the machine's own",
    "audit export": "lines of JSON always",
    "catalog schema": "SQL",
    "completion": "a shell script",
    "edge serve": "a daemon: it writes a log",
    "edge-process": "a daemon: it writes a log",
    "dns": "a daemon: it writes a log",
    "presence": "a daemon: it writes a log",
}


def test_every_command_has_json() -> None:
    without = set()
    for command, ctx in _every(ROOT, []):
        options = {each for parameter in command.params for each in parameter.opts}
        if not isinstance(command, click.Group) and not options & {"-o", "--output", "--json"}:
            words = str(ctx.info_name).split()[1:]
            without.add(" ".join(words[1:] if words[0] in ("machine", "machines", "m") else words))
    assert without == set(_NO_JSON)


def _every(command: click.Command, path: list[str]) -> Iterator[tuple[click.Command, click.Context]]:
    ctx = click.Context(command, info_name=" ".join(["hawker", *path]), terminal_width=80)
    yield command, ctx
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            below = command.table[name].load() if isinstance(command, LazyGroup) else command.get_command(ctx, name)
            assert below is not None
            yield from _every(below, [*path, name])
