"""A guest that is a real pilot in namespaces of its own, with a directory as its disks: it runs programs, and survives
its VMM in a snapshot as a real guest's memory would. `Guest` for the stand-ins of the API-driven VMMs.

Its ledger is kept for it: before anything that it says goes out, its journal and its output are on the ledger's file.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from hawker import guest as built
from hawker.host.cgroup import find_hierarchies
from hawker.host.mount import mounts
from hawker.runtime import proc
from hawker.runtime.pilot.frames import MalformedPilotFrame
from hawker.runtime.pilot.journal_disk import JOURNAL_BYTES
from tests.vmm.guests import Machine
from tests.vmm.played_pilot import Talk
from tests.waiting import wait_for

TREE = ".tree"
"""Added to the name of an image's file: the directory that the guest has instead."""
_BLOCK = 4096
_LAST_WORDS_S = 5.0
_HEAD = 32  # of a segment: its first record tells it from the one before
_ENTER = (
    'mount -t proc proc "$1/proc" && tree=$1 pilot=$2 && shift 2 && exec chroot "$tree" "/proc/self/fd/$pilot" "$@"'
)
_APART = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--uts", "--ipc")


class PilotGuest:
    """Keeps `Guest`. `place` is where its files may be."""

    def __init__(self, place: Path) -> None:
        self._place = place / "guest"
        self._machine: Machine | None = None
        self._host = 0
        self._mirror = threading.Lock()
        self._known: dict[str, tuple[bytes, int]] = {}
        self._back: list[threading.Thread] = []

    def start(self, machine: Machine) -> None:
        self._place.mkdir(exist_ok=True)
        self._own()
        listener = self._listener()
        files = [os.open(self._place / name, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600) for name in _FILES]
        pilot = os.open(built.pilot_path(), os.O_RDONLY)
        fds = (listener.fileno(), *files, pilot)
        options = ["--listen", str(fds[0]), "--journal", str(fds[1])]
        options += [word for fd in files[1:] for word in ("--output", str(fd))]
        tree = machine.drives["image"] + TREE
        inside = ["sh", "-c", _ENTER, "sh", tree, str(pilot), *options]
        command = [sys.executable, "-m", "tests.vmm.guest_host", str(self._place), *_APART, *inside]
        self._host = subprocess.Popen(command, pass_fds=fds, stdin=subprocess.DEVNULL).pid
        listener.close()
        for fd in (*files, pilot):
            os.close(fd)
        self._machine = machine
        self._serve(machine)

    def give(self, memory_mib: int) -> None:
        assert self._machine is not None
        self._machine = replace(self._machine, memory_mib=memory_mib)

    def hold(self) -> None:
        """Whoever was begun meanwhile is found by the next look."""
        held: set[int] = set()
        while new := {entry.pid for entry in proc.descendants(self._host)} - held:
            for pid in new:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            held |= new

    def go_on(self) -> None:
        for entry in proc.descendants(self._host):
            with suppress(ProcessLookupError):
                os.kill(entry.pid, signal.SIGCONT)

    def save(self, memory: Path) -> None:
        """From here on it is nobody's, until that file is gone."""
        assert self._machine is not None
        self._copy()
        machine = self._machine
        state = {
            "host": self._host,
            "machine": [machine.command_line, machine.memory_mib, machine.vsock, dict(machine.drives)],
        }
        memory.write_text(json.dumps(state))
        (self._place / "saved").write_text(str(memory))
        for tree in find_hierarchies(mounts()).trees():
            for pid in self._processes():
                with suppress(OSError):
                    (tree / "cgroup.procs").write_text(str(pid))

    def restore(self, memory: Path) -> None:
        try:
            state = json.loads(memory.read_bytes())
            self._host, machine = state["host"], Machine(*state["machine"])
        except (ValueError, KeyError, TypeError) as error:
            raise OSError(0, "the memory is not of a guest") from error
        self._own()
        for procs in _own_groups():
            for pid in self._processes():
                with suppress(OSError):
                    procs.write_text(str(pid))
        self._machine = machine
        self._serve(machine)

    def end(self) -> None:
        """Not of one that is in a snapshot."""
        if not (self._place / "saved").exists():
            with suppress(ProcessLookupError):
                os.kill(self._host, signal.SIGKILL)

    def _own(self) -> None:
        (self._place / "owner").write_text(str(os.getpid()))

    def _processes(self) -> list[int]:
        return [self._host, *(entry.pid for entry in proc.descendants(self._host))]

    def _listener(self) -> socket.socket:
        listener, place = socket.socket(socket.AF_UNIX), self._place / "pilot.sock"
        place.unlink(missing_ok=True)  # of one that was killed
        listener.bind(_short(place))
        listener.listen(32)
        return listener

    def _serve(self, machine: Machine) -> None:
        threading.Thread(target=self._watch, daemon=True).start()
        if machine.vsock:
            vsock = socket.socket(socket.AF_UNIX)
            vsock.bind(_short(machine.vsock))
            vsock.listen(32)
            threading.Thread(target=self._accept, args=(vsock,), daemon=True).start()

    def _watch(self) -> None:
        """The ledger as it is, then the end: a guest that has turned itself off ends its VMM. Who reads has first what
        it said last."""
        fd = os.pidfd_open(self._host)

        def over() -> bool:
            self._copy()
            return bool(select.select([fd], [], [], 0)[0])

        with suppress(TimeoutError):
            wait_for(over, 3600.0)
        self._copy()
        until_s = time.monotonic() + _LAST_WORDS_S
        for back in self._back:
            back.join(max(0.0, until_s - time.monotonic()))
        os._exit(0)

    def _accept(self, vsock: socket.socket) -> None:
        while True:
            joined, _ = vsock.accept()
            threading.Thread(target=self._join, args=(joined,), daemon=True).start()

    def _join(self, joined: socket.socket) -> None:
        with joined, socket.socket(socket.AF_UNIX) as pilot, suppress(OSError, MalformedPilotFrame):
            asked = joined.recv(16, socket.MSG_PEEK)
            line = asked.partition(b"\n")[0]
            joined.recv(len(line) + 1)
            assert line == b"CONNECT 1024", line
            pilot.connect(_short(self._place / "pilot.sock"))
            joined.sendall(b"OK 1073741824\n")
            talk = Talk(self._memory)
            back = threading.Thread(target=self._pump_back, args=(pilot, joined, talk), daemon=True)
            back.start()
            self._back = [each for each in self._back if each.is_alive()] + [back]
            while data := joined.recv(65536):
                to_pilot, to_client = talk.of_client(data)
                if to_client:
                    joined.sendall(to_client)
                pilot.sendall(to_pilot)
            pilot.shutdown(socket.SHUT_WR)
            back.join()

    def _pump_back(self, pilot: socket.socket, joined: socket.socket, talk: Talk) -> None:
        with suppress(OSError, MalformedPilotFrame):
            while data := pilot.recv(65536):
                self._copy()
                joined.sendall(talk.of_pilot(data))
            joined.shutdown(socket.SHUT_RDWR)

    def _memory(self) -> tuple[int, int]:
        assert self._machine is not None
        total = self._machine.memory_mib << 20
        used = sum(entry.memory_bytes for entry in proc.descendants(self._host))
        return total, max(1 << 20, total - used)

    def _copy(self) -> None:
        assert self._machine is not None
        with self._mirror, Path(self._machine.drives["ledger"]).open("r+b") as ledger:
            size = os.fstat(ledger.fileno()).st_size
            segment = (size - JOURNAL_BYTES) // 2 // _BLOCK * _BLOCK
            for name, at in zip(_FILES, (0, JOURNAL_BYTES, JOURNAL_BYTES + segment), strict=True):
                fresh, content = self._fresh(name)
                ledger.seek(at + fresh)
                ledger.write(content)

    def _fresh(self, name: str) -> tuple[int, bytes]:
        """What a file has that it had not, and where: all of one that was emptied, or may be written over."""
        with (self._place / name).open("rb") as file:
            head = file.read(_HEAD)
            known, length = self._known.get(name, (b"", 0))
            at = length if head == known and name != _FILES[0] else 0
            file.seek(at)
            content = file.read()
        self._known[name] = head, at + len(content)
        return at, content


_FILES = ("journal", "output.0", "output.1")


def _short(path: Path | str) -> str:
    """A socket's address holds 107 bytes; a VMM in a jail has paths that are short."""
    return os.path.relpath(path)


def _own_groups() -> list[Path]:
    trees = find_hierarchies(mounts())
    found = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        tree = trees.v2 if not controllers else trees.v1.get(controllers.split(",")[0])
        if tree is not None:
            found.append(tree / path.lstrip("/") / "cgroup.procs")
    return found
