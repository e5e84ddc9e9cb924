"""The socket of a pilot under this host's kernel."""

import socket
from pathlib import Path

import pytest

from hawker.errors import Unavailable
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.pilot.unix import UnixSocket, endpoint, pilot_pid
from tests.runtime.pilot.records import ring, said
from tests.runtime.plain import spec

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
    run, channel = RunDir(tmp_path), UnixSocket()
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
    assert said(UnixSocket().output(run)) == [b"a\n", b"b\n"]
    assert said(UnixSocket().output(run, after=0)) == said(UnixSocket().output(run, tail=1)) == [b"b\n"]
