"""Unix sockets at paths that are longer than an address of the kernel's."""

import os
import socket
import stat
from pathlib import Path

import pytest

from hawker.host.local_socket import connect_to, listen_at


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    return folder / "a.sock"


def test_a_connection_is_made_at_a_long_path_in_place_of_what_was_there(path: Path) -> None:
    listen_at(path, None).close()
    with listen_at(path, None) as listener, connect_to(path) as client:
        listener.setblocking(True)
        with listener.accept()[0] as accepted:
            client.setblocking(True)
            client.sendall(b"word")
            assert accepted.recv(4) == b"word"


@pytest.mark.root
def test_a_socket_for_another_user_is_writable_to_its_group_alone(path: Path) -> None:
    with listen_at(path, 54_321):
        there = path.stat()
        assert (there.st_uid, there.st_gid, stat.S_IMODE(there.st_mode)) == (os.getuid(), 54_321, 0o660)


def test_nobody_waits_where_nobody_listens_or_as_many_wait_as_may(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        connect_to(path)
    before: list[socket.socket] = []
    with listen_at(path, None, 0) as listener:
        try:
            with pytest.raises(BlockingIOError):
                for _ in range(10):
                    before.append(connect_to(path))
        finally:
            for each in before:
                each.close()
    assert listener.fileno() == -1
    with pytest.raises(ConnectionRefusedError):
        connect_to(path)
