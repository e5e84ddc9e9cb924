import gc
import os
import subprocess
import sys

import pytest

from hawker.cli.entry import collect_as_usual
from hawker.cli.exits import ExitStatus
from tests.cli.fake_node import TOKEN, FakeNode, machine

_RUN = "import sys; from hawker.cli.entry import run; sys.exit(run())"


def _run(*words: str) -> tuple[int, str]:
    command = [sys.executable, "-c", _RUN, *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=90)
    return done.returncode, done.stderr


def test_status_of_the_command_is_the_status_of_the_process() -> None:
    assert _run("machine", "--help") == (0, "")
    status, said = _run("nothing")
    assert status == ExitStatus.USAGE and "nothing" in said


def test_collector_of_a_process_that_lasts_leaves_its_imports_out_and_looks_at_what_comes() -> None:
    usual, imported = gc.get_threshold(), gc.get_freeze_count() + len(gc.get_objects())
    gc.set_threshold(200_000)
    collect_as_usual()
    assert gc.get_threshold() == usual and gc.isenabled()
    assert gc.get_freeze_count() > imported / 2 > len(gc.get_objects())


@pytest.mark.parametrize("columns", ["80", "200", "40"])
def test_page_of_help_is_what_the_tree_of_commands_says(columns: str) -> None:
    environment = {**os.environ, "COLUMNS": columns}
    begins = (_RUN, "import sys; from hawker.cli.main import main; sys.exit(main())")
    pages = [
        subprocess.run([sys.executable, "-c", code, "--help"], check=True, capture_output=True, env=environment).stdout
        for code in begins
    ]
    assert pages[0] == pages[1] and b"machine" in pages[0]


def test_page_of_help_imports_no_library() -> None:
    code = f"{_RUN.replace('sys.exit(run())', 'run()')}; print('click' in sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, "--help"], check=True, capture_output=True, text=True)
    assert done.stderr == "False\n"


def _list(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """And on standard error whether click was imported."""
    code = (
        "import sys; from hawker.cli.entry import run; status = run();"
        " print('click' in sys.modules, file=sys.stderr); sys.exit(status)"
    )
    command = [sys.executable, "-c", code, *words]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HAWKER_")}
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=90, env=plain | environment)


@pytest.mark.parametrize("words", [("ps",), ("machine", "list")])
def test_plain_list_is_that_of_the_whole_command_without_click(
    node: FakeNode, url: str, words: tuple[str, ...]
) -> None:
    node.add("shop", machine("aa00000000000a"))
    node.add("jobs", machine("bb00000000000b"))
    environment = {"HAWKER_URL": url, "HAWKER_TOKEN": TOKEN}
    plain, whole = _list(environment, *words), _list(environment, *words, "--output", "table")
    assert (plain.returncode, plain.stderr, whole.stderr) == (0, "False\n", "True\n")
    assert plain.stdout == whole.stdout and "jobs" in plain.stdout and "\x1b" not in plain.stdout
    of_app = _list({**environment, "HAWKER_APP": "shop"}, *words)
    assert of_app.stderr == "False\n" and "shop" in of_app.stdout and "jobs" not in of_app.stdout


@pytest.mark.parametrize("address", ["nonsense://x", "http://127.0.0.1:1"])
def test_an_error_of_a_plain_list_is_said_by_the_whole_command(address: str) -> None:
    environment = {"HAWKER_URL": address, "HAWKER_TOKEN": TOKEN}
    plain, whole = _list(environment, "ps"), _list(environment, "ps", "--output", "table")
    assert plain.returncode == whole.returncode != 0
    assert plain.stdout == "" and plain.stderr == whole.stderr and "error: " in plain.stderr


def _into(file: int, environment: dict[str, str], *words: str) -> tuple[int, str]:
    """The status and standard error of a command whose output goes into `file`."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HAWKER_")}
    done = subprocess.run(
        [sys.executable, "-c", _RUN, *words],
        check=False,
        stdout=file,
        stderr=subprocess.PIPE,
        text=True,
        timeout=90,
        env=plain | environment,
    )
    return done.returncode, done.stderr


_SPEAKING = [("--help",), ("machine", "--help"), ("ps",), ("machine", "list", "--output", "json")]


@pytest.mark.parametrize("words", _SPEAKING, ids=" ".join)
def test_reader_who_has_gone_is_told_nothing(node: FakeNode, url: str, words: tuple[str, ...]) -> None:
    node.add("shop", machine("aa00000000000a"))
    reader, writer = os.pipe()
    os.close(reader)
    try:
        said = _into(writer, {"HAWKER_URL": url, "HAWKER_TOKEN": TOKEN}, *words)
    finally:
        os.close(writer)
    assert said == (ExitStatus.FAILED, "")


@pytest.mark.parametrize("words", _SPEAKING, ids=" ".join)
def test_full_disk_below_the_output_is_told_in_one_line(node: FakeNode, url: str, words: tuple[str, ...]) -> None:
    node.add("shop", machine("aa00000000000a"))
    with open("/dev/full", "wb") as full:
        said = _into(full.fileno(), {"HAWKER_URL": url, "HAWKER_TOKEN": TOKEN}, *words)
    assert said == (ExitStatus.FAILED, "error: no space left on device\n")
