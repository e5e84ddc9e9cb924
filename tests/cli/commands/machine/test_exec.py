import os
import pty
import subprocess
import sys
import termios

import pytest

from hawker.cli.exits import ExitStatus
from hawker.errors import WrongState
from tests.cli.conftest import Hawker
from tests.cli.fake_node import TOKEN, FakeNode, machine

CODE = "import sys; from hawker.cli.main import main; sys.exit(main())"


@pytest.fixture(autouse=True)
def _machine(node: FakeNode) -> None:
    node.add("shop", machine(name="web"))


def argv(url: str, *words: str) -> list[str]:
    return [sys.executable, "-c", CODE, "--url", url, "--token", TOKEN, "machine", "exec", *words]


def test_the_status_is_the_commands_own(hawker: Hawker) -> None:
    assert hawker("machine", "exec", "--no-stdin", "web", "--", "exit", "7").status == 7


def test_the_request_says_how_to_run_it(node: FakeNode, hawker: Hawker) -> None:
    said = hawker(
        *("machine", "exec", "--no-stdin", "-u", "root", "-w", "/srv", "-e", "A=1", "-e", "NOT_SET", "web", "env")
    )
    assert said.out == "A=1"
    body = node.call("machine_terminal").body
    assert (body.user, body.cwd, body.tty) == ("root", "/srv", False)


def test_a_command_that_is_not_there_is_said_to_be_so(hawker: Hawker) -> None:
    said = hawker("machine", "exec", "--no-stdin", "web", "missing")
    assert (said.status, said.err) == (127, "error: cannot run 'missing': no such file or directory\n")


def test_a_machine_that_does_not_run_refuses(node: FakeNode, hawker: Hawker) -> None:
    node.failures["machine_terminal"] = WrongState("unable to exec machine from current state: 'stopped'")
    said = hawker("machine", "exec", "--no-stdin", "web", "cat")
    assert said.status == ExitStatus.FAILED
    assert "unable to exec machine from current state" in said.err


def test_a_node_that_goes_away_is_unavailable(hawker: Hawker) -> None:
    assert hawker("machine", "exec", "--no-stdin", "web", "lost").status == ExitStatus.UNAVAILABLE


def test_exec_works_in_a_pipe(url: str) -> None:
    data = bytes(range(256)) * 1000
    done = subprocess.run(argv(url, "web", "--", "cat"), input=data, capture_output=True, timeout=90, check=True)
    assert done.stdout == data


def test_streams_stay_apart_in_a_pipe(url: str) -> None:
    done = subprocess.run(argv(url, "web", "both"), input=b"", capture_output=True, timeout=90, check=True)
    assert (done.stdout, done.stderr) == (b"out\n", b"err\n")


def test_in_a_terminal_keys_go_through_and_the_terminal_is_put_back(url: str) -> None:
    person, own = pty.openpty()
    termios.tcsetwinsize(own, (31, 99))
    before = termios.tcgetattr(own)
    with subprocess.Popen(argv(url, "web", "size"), stdin=own, stdout=own, stderr=own) as process:
        seen = b""
        while b"31x99" not in seen:
            seen += os.read(person, 1024)
        os.write(person, b"\x03")
        while b"\x03" not in seen:
            seen += os.read(person, 1024)
        os.write(person, b"\x04")
        assert process.wait(timeout=90) == 0
    assert termios.tcgetattr(own) == before
    os.close(own)
    os.close(person)


def test_the_container_is_said(node: FakeNode, hawker: Hawker) -> None:
    hawker("machine", "exec", "--no-stdin", "--container", "db", "web", "exit", "0")
    hawker("machine", "exec", "--no-stdin", "web", "exit", "0")
    assert [call.body.container for call in node.calls["machine_terminal"]] == ["db", None]
