"""The program of an edge process, of one of several: where it answers the others, and how it ends."""

import socket
import subprocess
import sys
from pathlib import Path

from hawker.host.own_user import WRITES
from hawker.place import Place
from tests.waiting import LONG_S, wait_for

PROGRAM = "from hawker.edge.program import command; command()"


def test_a_process_of_several_answers_the_others_at_its_socket_and_ends_with_its_warden(tmp_path: Path) -> None:
    own = Place(tmp_path.resolve()).edge / WRITES
    own.mkdir(parents=True)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    words = ("--data-dir", str(tmp_path), "--process", "1", "--of", "2")
    process = subprocess.Popen((sys.executable, "-c", PROGRAM, *words), stdin=theirs.fileno())
    theirs.close()
    try:
        wait_for(lambda: (own / "1.hops").is_socket() and process.poll() is None)
        ours.close()
        assert process.wait(LONG_S) == 0
    finally:
        process.kill()
        process.wait()
