"""Sitting at machines and copying files, with the command: pipes, terminals, images without a single tool."""

import json
import os
import signal
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.command_line import CommandLine
from tests.e2e.running_node import RunningNode
from tests.e2e.shop import HELLO
from tests.waiting import wait_for

pytestmark = pytest.mark.root

SMALL = ("--memory", "64m", "--restart", "no")


@pytest.fixture
def hawker(node: RunningNode) -> CommandLine:
    return CommandLine(node.environment | {"HAWKER_DATA_DIR": str(node.data_dir)})


@pytest.fixture(scope="module")
def tools(node: RunningNode, toolbox_image: str) -> str:
    """The name of a machine with a shell."""
    CommandLine(node.environment | {"HAWKER_DATA_DIR": str(node.data_dir)}).say(
        "run", toolbox_image, "--name", "tools", *SMALL
    )
    return "tools"


@pytest.fixture(scope="module")
def bare(node: RunningNode) -> str:
    """The name of a machine whose image holds one program."""
    CommandLine(node.environment | {"HAWKER_DATA_DIR": str(node.data_dir)}).say("run", HELLO, "--name", "bare")
    return "bare"


def test_run_takes_what_is_piped_and_gives_output_and_status(hawker: CommandLine, toolbox_image: str) -> None:
    done = hawker("run", "--rm", "-i", toolbox_image, "sh", "-c", "cat; exit 3", stdin=b"hello\n")
    assert (done.status, done.out) == (3, "hello\n"), done
    noise = bytes(range(256)) * 4000
    through = hawker.begin("run", "--rm", "-i", toolbox_image, "cat")
    assert through.communicate(noise, timeout=90)[0] == noise


def test_run_gives_a_terminal_and_takes_it_away_with_the_machine(hawker: CommandLine, toolbox_image: str) -> None:
    words = ("run", "--rm", "-it", "--name", "sat", toolbox_image, "sh")
    with hawker.on_terminal(*words, rows=30, cols=100) as terminal:
        terminal.type("stty size; echo $((6 * 7))\n")
        terminal.shows("30 100\r\n")
        terminal.shows("42\r\n")
        terminal.resize(40, 120)
        terminal.type("until stty size | grep '^40 120$'; do sleep 0.05; done\n")
        terminal.shows("40 120\r\n")
        terminal.type("exit 7\n")
        assert terminal.ends() == 7
    wait_for(lambda: "sat" not in hawker.say("ps"))


def test_a_machine_runs_on_when_its_terminal_is_left_and_attach_goes_back(
    hawker: CommandLine, toolbox_image: str
) -> None:
    hawker.say("run", "-d", "-it", "--name", "left", toolbox_image, "sh")
    with hawker.on_terminal("attach", "left") as terminal:
        terminal.type("X=kept; echo on''e\n")
        terminal.shows("one\r\n")

    def goes_back() -> bool:
        """Refused for as long as the node has not heard that the first client is gone."""
        with hawker.on_terminal("attach", "left") as terminal, suppress(AssertionError, OSError):
            terminal.type("echo $X; exit 0\n")
            terminal.shows("kept\r\n")
            return terminal.ends() == 0
        return False

    wait_for(goes_back)
    wait_for(lambda: hawker("attach", "left").status == 1)  # the node hears of the end a moment later
    hawker.say("machine", "destroy", "--force", "left")


def test_exec_gives_a_terminal_without_one_here(hawker: CommandLine, tools: str) -> None:
    done = hawker("exec", "-t", tools, "sh", "-c", "test -t 0 && test -t 1 && echo a terminal")
    assert (done.status, done.out.strip()) == (0, "a terminal"), done
    for typed in (b"hi\n", b"hi"):
        done = hawker("exec", "-t", tools, "cat", stdin=typed)
        assert done.status == 0 and done.out.count("hi") == 2, done


def test_words_after_the_command_are_the_command_s_own(hawker: CommandLine, tools: str) -> None:
    assert hawker.say("exec", tools, "sh", "-c", "echo $0 $1", "-t", "--rm") == "-t --rm\n"


def test_memory_that_ran_out_is_named(hawker: CommandLine, toolbox_image: str) -> None:
    script = "x=0123456789; while :; do x=$x$x; done"
    done = hawker("run", "--rm", "--attach", "--memory", "32m", toolbox_image, "sh", "-c", script)
    assert done.status == 137, done
    assert "ran out of its 32 MiB of memory" in done.err and "--memory" in done.err


def test_a_tree_is_copied_into_a_machine_without_tools_and_back(hawker: CommandLine, bare: str, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "sub/deep").mkdir(parents=True)
    (tree / "sub/run.sh").write_text("#!/bin/sh\n")
    (tree / "sub/run.sh").chmod(0o750)
    (tree / "sub/deep/link").symlink_to("../run.sh")
    (tree / "name with ü").write_bytes(os.urandom(300_000))
    os.mkfifo(tree / "pipe")
    done = hawker("cp", str(tree), f"{bare}:/tmp/here")
    assert done.status == 0 and "copied 2 files" in done.err and "passed over" in done.err, done
    assert hawker("cp", f"{bare}:/tmp/here", str(tmp_path / "back")).status == 0
    back = tmp_path / "back"
    assert (back / "name with ü").read_bytes() == (tree / "name with ü").read_bytes()
    assert stat.S_IMODE((back / "sub/run.sh").stat().st_mode) == 0o750
    assert (back / "sub/deep/link").readlink() == Path("../run.sh")
    assert int((back / "sub/run.sh").stat().st_mtime) == int((tree / "sub/run.sh").stat().st_mtime)
    assert not (back / "pipe").exists()


def test_holes_stay_holes_and_owners_stay_where_that_is_asked(hawker: CommandLine, bare: str, tmp_path: Path) -> None:
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as file:
        file.truncate(1 << 30)
        file.seek(500 << 20)
        file.write(b"in the middle")
    os.chown(sparse, 1234, 4321)
    assert hawker("cp", "--archive", str(sparse), f"{bare}:/tmp/").status == 0
    assert hawker("cp", "--archive", f"{bare}:/tmp/sparse", str(tmp_path / "again")).status == 0
    about = (tmp_path / "again").stat()
    assert (about.st_size, about.st_uid, about.st_gid) == (1 << 30, 1234, 4321)
    assert about.st_blocks * 512 < 10 << 20
    assert hawker("cp", f"{bare}:/tmp/sparse", str(tmp_path / "mine")).status == 0
    assert (tmp_path / "mine").stat().st_uid == os.getuid()


def test_a_copy_that_is_killed_leaves_no_half_file_under_its_name(
    hawker: CommandLine, tools: str, tmp_path: Path
) -> None:
    """Nothing, or all of it: on a busy host the copy may be over before the signal comes."""
    big, size = tmp_path / "big", 64 << 20
    big.write_bytes(os.urandom(size))
    copy = hawker.begin("cp", str(big), f"{tools}:/tmp/big")
    script = "until ls -a /tmp | grep -q -e hawker-copy -e big; do sleep 0.02; done"
    hawker.say("exec", tools, "--", "sh", "-c", script)
    copy.send_signal(signal.SIGKILL)
    copy.wait(90)
    left = hawker("exec", tools, "--", "sh", "-c", "ls -l /tmp | grep big").out
    assert left == "" or f" {size} " in left
    hawker.say("exec", tools, "--", "sh", "-c", "while ls -a /tmp | grep -q hawker-copy; do sleep 0.05; done")


@pytest.mark.parametrize(
    ("source", "destination", "said"),
    [
        ("tools:/no/such", "here", "no such file"),
        ("/no/such", "tools:/tmp", "no such file"),
        ("tools:/etc/hostname", "tools:/tmp", "one of SOURCE and DESTINATION"),
        ("/etc/hostname", "tools:/no/such/place", "no such file"),
        ("/etc", "tools:/etc/hostname", "is not a directory"),
    ],
)
def test_a_file_that_cannot_be_copied_is_said(
    hawker: CommandLine, tools: str, source: str, destination: str, said: str, tmp_path: Path
) -> None:
    there = str(tmp_path / destination) if ":" not in destination else destination
    done = hawker("cp", source, there)
    assert done.status != 0 and said in done.err.lower().replace("source and destination", "SOURCE and DESTINATION")


def test_sockets_of_other_users_are_listed_with_their_processes(hawker: CommandLine) -> None:
    hawker.say("run", "--name", "ears", "-u", "1000:1000", *SMALL, HELLO)
    wait_for(lambda: ":8080" in hawker.say("top", "ears"))


def _usage_of_work(hawker: CommandLine, tools: str) -> Any:
    """Once the machine works: what was ordered with a command that goes on is begun a moment later."""
    (usage,) = json.loads(hawker.say("stats", tools, "-o", "json"))
    return usage if usage["cpu_percent"] > 1 else None


def test_stats_show_what_a_machine_uses(hawker: CommandLine, tools: str) -> None:
    busy = hawker.begin("exec", tools, "sh", "-c", "while :; do :; done")
    try:
        usage = wait_for(lambda: _usage_of_work(hawker, tools))
    finally:
        busy.kill()
        busy.wait(90)
    stats = usage["stats"]
    assert 0 < stats["working_set_bytes"] <= stats["memory_limit_bytes"] == 64 << 20
    assert stats["oom_kills"] == 0 and stats["pids"] > 0
    assert stats["network_received_bytes"] is not None
    heading, line = hawker.say("stats", tools).splitlines()
    assert heading.split()[0] == "NAME" and line.split()[0] == tools
