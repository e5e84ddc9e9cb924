"""A newcomer's session with the command, against a node on the same host that the command finds by itself."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.command_line import CommandLine
from tests.e2e.images import write_oci_archive
from tests.e2e.running_node import RunningNode
from tests.e2e.shop import HELLO
from tests.e2e.web import ask, told
from tests.fixtures.parts import ImageParts
from tests.waiting import wait_for

pytestmark = pytest.mark.root

SHELL = ("--memory", "64m", "--restart", "no")


@pytest.fixture
def hawker(node: RunningNode) -> CommandLine:
    return CommandLine(node.environment | {"HAWKER_DATA_DIR": str(node.data_dir)})


def status(hawker: CommandLine, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(hawker.say("machine", "status", name, "-o", "json"))["machine"]
    return found


def test_a_first_session(hawker: CommandLine) -> None:
    said = hawker.say("machine", "run", HELLO, "--name", "first")
    machine = status(hawker, "first")
    assert machine["id"] in said and machine["private_ip"] in said
    assert machine["id"] in told(machine["private_ip"], "/").body
    assert "first" in hawker.say("machine", "list")
    wait_for(lambda: "GET / 200" in hawker.say("machine", "logs", "first"))
    assert f"FLY_MACHINE_ID={machine['id']}" in hawker.say("machine", "exec", "first", "--", "hello", "env")
    (run,) = json.loads(hawker.say("runs", "list", "-o", "json"))["runs"][:1]
    shown = hawker.say("runs", "show", run["id"])
    assert all(word in shown for word in ("create", "image", "rootfs", "network", "launch", "done"))
    hawker.say("machine", "stop", "first")
    assert status(hawker, "first")["state"] == "stopped"
    hawker.say("machine", "start", "first")
    assert status(hawker, "first")["state"] == "started"
    hawker.say("machine", "update", "first", "-e", "COLOUR=blue")
    assert "COLOUR=blue" in hawker.say("machine", "exec", "first", "--", "hello", "env")
    assert hawker("machine", "destroy", "first").status == 1
    hawker.say("machine", "destroy", "--force", "first")
    assert hawker("machine", "start", "first").status != 0


@pytest.mark.parametrize(
    "command",
    [
        ("machine", "list"),
        ("machine", "status", "shown"),
        ("machine", "events", "shown"),
        ("machine", "ps", "shown"),
        ("machine", "versions", "shown"),
        ("images", "list"),
        ("apps", "list"),
        ("runs", "list"),
        ("node", "show"),
        ("version",),
    ],
    ids=" ".join,
)
def test_tables_are_also_json(hawker: CommandLine, shown: str, command: tuple[str, ...]) -> None:
    assert json.loads(hawker.say(*command, "-o", "json"))
    assert hawker.say(*command)


@pytest.fixture(scope="module")
def shown(node: RunningNode) -> str:
    """A machine to look at."""
    hawker = CommandLine(node.environment | {"HAWKER_DATA_DIR": str(node.data_dir)})
    return hawker.say("machine", "run", HELLO, "--name", "shown")


@pytest.fixture(scope="module")
def box(node: RunningNode, toolbox_image: str) -> str:
    """The name of a machine with a shell."""
    hawker = CommandLine(node.environment | {"HAWKER_DATA_DIR": str(node.data_dir)})
    hawker.say("machine", "run", toolbox_image, "--name", "box", *SHELL)
    return "box"


def test_exec_is_a_pipe_where_there_is_no_terminal(hawker: CommandLine, box: str) -> None:
    noise = bytes(range(256)) * 2000
    done = hawker("machine", "exec", box, "--", "sh", "-c", "cat > /dev/null; echo bad >&2; exit 42", stdin=noise)
    assert (done.status, done.err) == (42, "bad\n")
    echoed = hawker.begin("machine", "exec", box, "--", "cat")
    assert echoed.communicate(noise, timeout=90)[0] == noise
    assert hawker("machine", "exec", box, "--", "/no/such").status == 127
    assert hawker("machine", "exec", box, "--", "sh", "-c", "kill -TERM $$").status == 143


def test_exec_has_a_terminal_where_there_is_one(hawker: CommandLine, box: str) -> None:
    with hawker.on_terminal("machine", "exec", box, "--", "sh", rows=30, cols=100) as terminal:
        terminal.type("echo $((6 * 7)); stty size\n")
        terminal.shows("42\r\n")
        terminal.shows("30 100\r\n")
        terminal.resize(40, 120)
        terminal.type("until stty size | grep '^40 120$'; do sleep 0.05; done\n")
        terminal.shows("40 120\r\n")
        # It speaks once the terminal is its own: Ctrl-C before that is for the shell, which waits for its end.
        terminal.type("sh -c 'echo begun $((6 * 7)); exec sleep 600' || echo inter''rupted\n")
        terminal.shows("begun 42\r\n")
        terminal.type("\x03")
        terminal.shows("# ")
        terminal.type("echo st''ill here\n")
        terminal.shows("still here\r\n")
        terminal.type("exit 7\n")
        assert terminal.ends() == 7


def test_logs_are_followed_until_ctrl_c(hawker: CommandLine, shown: str) -> None:
    following = hawker.begin("machine", "logs", "-f", "shown")
    assert following.stdout is not None
    assert following.stdout.readline() == b"listening on port 8080\n"
    ask(status(hawker, "shown")["private_ip"], "/health")
    assert following.stdout.readline() == b"GET /health 200\n"
    following.send_signal(signal.SIGINT)
    assert following.wait(90) in (0, 130)


@pytest.mark.parametrize("code", [0, 7])
def test_an_attached_run_is_like_the_command_itself(
    hawker: CommandLine, box: str, toolbox_image: str, code: int
) -> None:
    script = f"echo out; echo err >&2; exit {code}"
    done = hawker("machine", "run", toolbox_image, "--attach", "--rm", "--name", "brief", "--", "sh", "-c", script)
    assert (done.status, done.out) == (code, "out\n")
    assert "err\n" in done.err
    wait_for(lambda: "brief" not in hawker.say("machine", "list"))


def test_an_attached_run_is_stopped_by_ctrl_c(hawker: CommandLine, toolbox_image: str) -> None:
    script = "trap 'echo bye; exit 3' INT; echo ready; while :; do sleep 0.05; done"
    run = hawker.begin("machine", "run", toolbox_image, "--attach", "--rm", "--name", "long", "--", "sh", "-c", script)
    assert run.stdout is not None
    assert run.stdout.readline() == b"ready\n"
    run.send_signal(signal.SIGINT)
    assert run.stdout.readline() == b"bye\n"
    assert run.wait(90) in (3, 130)
    wait_for(lambda: "long" not in hawker.say("machine", "list"))


def test_an_image_is_imported_from_a_file(hawker: CommandLine, tmp_path: Path, toolbox_parts: ImageParts) -> None:
    write_oci_archive(tmp_path / "image.tar", toolbox_parts)
    hawker.say("images", "import", str(tmp_path / "image.tar"), "--as", "demo/imported:v1")
    assert "demo/imported" in hawker.say("images", "list")
    done = hawker("machine", "run", "demo/imported:v1", "--attach", "--rm", "--", "echo", "from a file")
    assert (done.status, done.out) == (0, "from a file\n")


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("machine", "run", HELLO, "--name", "../../etc"), 1),
        (("machine", "run", HELLO, "--memory", "0"), 1),
        (("machine", "run", HELLO, "--memory", "1p"), 2),
        (("machine", "run", HELLO, "--memory", "1073741824"), 1),
        (("machine", "run", HELLO, "--cpus", "1000"), 4),
        (("machine", "run", HELLO, "--cpus", "two"), 2),
        (("machine", "run", "127.0.0.1:1/no/image"), 5),
        (("machine", "run", "a b"), 1),
        (("machine", "run", HELLO, "--restart", "no", "--entrypoint", "/no/such"), 1),
        (("machine", "status", "nobody"), 3),
        (("machine", "exec", "nobody", "--", "true"), 3),
        (("runs", "show", "01ARZ3NDEKTSV4RRFFQ69G5FAV"), 3),
        (("machine", "fly"), 2),
        (("--token", "wrong", "machine", "list"), 1),
        (("--url", "http://127.0.0.1:1", "machine", "list"), 5),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_an_impossible_request_is_said_in_a_line(hawker: CommandLine, arguments: tuple[str, ...], status: int) -> None:
    done = hawker(*arguments)
    assert done.status == status, done
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.err
    assert "Traceback" not in done.err


def test_a_token_of_an_app_runs_a_machine_and_is_told_what_it_may_not(node: RunningNode, hawker: CommandLine) -> None:
    hawker.say("apps", "create", "tenant")
    token = hawker.say("tokens", "create", "--app", "tenant", "--actions", "rwcd").strip()
    tenant = CommandLine(node.environment | {"HAWKER_URL": node.url, "HAWKER_TOKEN": token})
    tenant.say("machine", "run", HELLO, "--app", "tenant", "--name", "mine")
    assert "started" in tenant.say("machine", "status", "mine", "--app", "tenant")
    refused = tenant("machine", "exec", "mine", "--app", "tenant", "--", "true")
    assert refused.status != 0 and "does not allow C" in refused.err
    tenant.say("machine", "destroy", "--force", "mine", "--app", "tenant")
