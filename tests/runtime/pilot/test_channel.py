"""What a launched pilot inherits, and what it does not."""

import os
import socket
from pathlib import Path

import pytest

from hawker.errors import Unavailable
from hawker.host.spawn import spawn
from hawker.runtime.pilot.channel import UnixSocketChannel, endpoint, pilot_files, pilot_pid
from hawker.runtime.pilot.rundir import RunDir
from tests.runtime.pilot.records import ring, said
from tests.runtime.plain import spec


def said_by(script: str, *fds: int) -> list[str]:
    """What a shell started with `fds` as 4 and up writes to its descriptor 3."""
    reading, writing = os.pipe()
    pid = spawn(("/bin/sh", "-c", f"{{ {script}; }} >&3"), fds=(writing, *fds), session=True)
    os.close(writing)
    with os.fdopen(reading) as answer:
        lines = answer.read().splitlines()
    os.waitpid(pid, 0)
    return lines


def test_descriptors_become_3_and_up(tmp_path: Path) -> None:
    with pilot_files(RunDir(tmp_path)) as fds:
        lines = said_by("for fd in /proc/$$/fd/*; do echo ${fd##*/} $(readlink $fd); done", *fds)
    held = dict(line.split() for line in lines)
    assert held["0"] == held["2"] == "/dev/null"
    assert held["5"] == str(tmp_path / "journal") and held["7"] == str(tmp_path / "output.1")
    assert held["4"].startswith("socket:") and held["6"] == str(tmp_path / "output.0")


def test_a_pilot_leads_a_session_of_its_own() -> None:
    (line,) = said_by("echo $$; exec 2>&1; cat /proc/$$/stat | cut -d' ' -f5,6 | tr ' ' ,")[1:]
    group, session = line.split(",")
    assert group == session != str(os.getsid(0))


def test_the_socket_is_its_owner_s_alone(tmp_path: Path) -> None:
    with pilot_files(RunDir(tmp_path)):
        assert (tmp_path / "pilot.sock").stat().st_mode & 0o777 == 0o600


def test_a_second_launch_beside_a_living_pilot_is_impossible(tmp_path: Path) -> None:
    with pilot_files(RunDir(tmp_path)), pytest.raises(BlockingIOError), pilot_files(RunDir(tmp_path)):
        pass


def test_a_launch_forgets_the_process_id_of_the_one_before(tmp_path: Path) -> None:
    """It may be a stranger's by now; but not that of a pilot that lives."""
    run = RunDir(tmp_path)
    run.write_pid(1)
    with pilot_files(run):
        assert run.alive() and run.pid() is None
        run.write_pid(2)
        with pytest.raises(BlockingIOError), pilot_files(run):
            pass
        assert run.pid() == 2


pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("place", ["file", "directory", "link", "nothing"])
def test_only_a_socket_is_connected_to(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "directory").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        (tmp_path / "link").symlink_to("socket")
        with pytest.raises(Unavailable, match="does not answer"):
            endpoint(tmp_path / place)
        endpoint(tmp_path / "socket").close()


async def test_a_spec_can_be_said_to_a_pilot_that_is_not_there_yet(tmp_path: Path) -> None:
    run, channel = RunDir(tmp_path), UnixSocketChannel()
    with channel.files(run, spec("unused")) as fds:
        assert len(fds) == 4 and run.alive()
        channel.connect(run).close()
    with pytest.raises(Unavailable):
        channel.connect(run)
    assert pilot_pid(run) is None


def test_output_is_read_from_both_segments(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run.outputs[0].write_bytes(ring((0, b"a\n")))
    run.outputs[1].write_bytes(ring((1, b"b\n")))
    assert said(UnixSocketChannel().output(run)) == [b"a\n", b"b\n"]
    assert said(UnixSocketChannel().output(run, after=0)) == said(UnixSocketChannel().output(run, tail=1)) == [b"b\n"]
