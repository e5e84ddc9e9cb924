"""Attempts of a VMM that its guest has taken over, to be taken for another machine or to have the host speak to one: by
what it leaves in its directory where the host expects sockets. A script is in its place, in the jail that a VMM gets.
"""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from hawker.errors import Unavailable
from hawker.host.local_socket import short_path
from hawker.runtime.pilot.channel import endpoint
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.vmm.qemu import MONITOR
from hawker.runtime.vmm.qmp import monitor
from hawker.runtime.vmm.vmm_api import SOCKET, exchange
from tests.runtime.vmm.cells import OTHER, Prison, With

pytestmark = [pytest.mark.anyio, pytest.mark.root]

PATIENCE_S, GIVEN_UP_S = 2.0, 60.0
HOLD = "print('ready'); time.sleep(1000)"


@pytest.fixture
def victim(cells: Prison) -> Iterator[socket.socket]:
    """Another machine's socket of each kind, by one name; whoever is accepted there was misled."""
    run = cells.run(OTHER)
    run.vmm.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener, short_path(theirs(cells)) as path:
        listener.bind(path)
        listener.listen()
        listener.setblocking(False)
        yield listener


def theirs(cells: Prison) -> Path:
    return cells.run(OTHER).vmm / "victim.sock"


def nobody_came(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return True
    return False


async def speak(run: RunDir) -> None:
    """As the host does to a machine's VMM and to its pilot; every way must be refused."""
    with pytest.raises(Unavailable):
        endpoint(run.vsock)
    with pytest.raises(Unavailable):
        async with monitor(run.vmm / MONITOR, PATIENCE_S):
            raise AssertionError("a monitor was reached")
    with pytest.raises(Unavailable):
        await exchange(run.vmm / SOCKET, "GET", "/", None, timeout_s=PATIENCE_S)


async def test_a_link_to_another_machine_s_socket_is_not_followed(cells: Prison, victim: socket.socket) -> None:
    names = (cells.run().vsock.name, MONITOR, SOCKET)
    links = "\n".join(f"os.symlink({str(theirs(cells))!r}, '/cell/vmm/{name}')" for name in names)
    await cells.begin(f"{links}\n{HOLD}")
    with short_path(cells.run().vmm / MONITOR) as path, socket.socket(socket.AF_UNIX) as control:
        control.connect(path)
    assert not nobody_came(victim), "a host that follows links is misled"
    await speak(cells.run())
    assert nobody_came(victim)


async def test_a_file_or_a_pipe_in_a_socket_s_place_hinders_nobody(cells: Prison) -> None:
    vsock, mine = cells.run().vsock.name, cells.run().vmm
    await cells.begin(f"open('/cell/vmm/{vsock}', 'w'); os.mkdir('/cell/vmm/{MONITOR}')\n{HOLD}")
    os.mkfifo(mine / SOCKET)
    with anyio.fail_after(GIVEN_UP_S):
        await speak(cells.run())


async def test_a_socket_that_answers_nothing_or_endlessly_is_given_up(cells: Prison) -> None:
    await cells.begin(
        f"""
        import threading
        def serve(name, listener):
            while True:
                joined, _ = listener.accept()
                try:
                    while name != {MONITOR!r}:
                        joined.sendall(b"x" * 65536)
                    time.sleep(1000)
                except OSError:
                    pass
        for name in ({MONITOR!r}, {SOCKET!r}):
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(f"/cell/vmm/{{name}}")
            listener.listen()
            threading.Thread(target=serve, args=(name, listener), daemon=True).start()
        {HOLD}
        """
    )
    with anyio.fail_after(GIVEN_UP_S):
        await speak(cells.run())


async def test_another_machine_s_sockets_cannot_be_reached_by_any_name(cells: Prison, victim: socket.socket) -> None:
    await cells.begin(HOLD, With(machine_id=OTHER))
    way_up = "/cell/vmm/../../../../" + str(theirs(cells)).lstrip("/")
    for name in (str(theirs(cells)), way_up, "/cell/vmm/victim.sock"):
        assert await cells.tries(f"os.stat({name!r})") == "no: FileNotFoundError 2"
    assert theirs(cells).is_socket(), "on the host it is there"
    assert nobody_came(victim)
