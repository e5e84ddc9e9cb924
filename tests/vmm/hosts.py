"""A machine's directory with a played VMM that serves its API in a thread: what a driver finds after the launch."""

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hawker.ids import MachineId
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.spec import DiskLimits, GuestLink
from hawker.runtime.vmm.contract import Vm, VmDrive
from tests.vmm.vmm_server import PlayedVmm, VmmServer

SAVED = "snapshot"
MIB = 1 << 20
NO_LIMITS = DiskLimits()


@dataclass
class Host:
    """`lives`: the lock on the journal is held, as by a keeper."""

    run: RunDir
    lock: int
    servers: list[VmmServer] = field(default_factory=list)

    @property
    def seen(self) -> list[tuple[str, Any, int]]:
        """Of all VMMs that were here, in order."""
        return [request for server in self.servers for request in server.seen]

    @property
    def asked(self) -> list[str]:
        return [operation for operation, _, _ in self.seen]

    def end(self) -> None:
        """As if the VMM had ended."""
        fcntl.flock(self.lock, fcntl.LOCK_UN)

    def vm(self, *drives: VmDrive, **changes: Any) -> Vm:
        """All of its files are here, under the names that the host has for them."""
        for name in ("kernel", "initramfs", *(drive.name for drive in drives)):
            (self.run.path / name).touch()
        told = {
            "machine_id": MachineId("0123456789abcd"),
            "cpus": 2,
            "memory_mib": 96,
            "max_memory_mib": 128,
            "kernel": str(self.run.path / "kernel"),
            "initramfs": str(self.run.path / "initramfs"),
            "command_line": "console=ttyS0 quiet",
            "drives": drives,
            "directory": str(self.run.vmm),
        }
        return Vm(**{**told, **changes})

    def drive(self, name: str, *, read_only: bool = False, limits: DiskLimits = NO_LIMITS) -> VmDrive:
        return VmDrive(name, str(self.run.path / name), read_only, limits)

    def lose(self, path: str) -> None:
        Path(path).unlink()

    def size(self, path: str) -> int:
        return Path(path).stat().st_size

    def saved(self) -> list[str]:
        return sorted(file.name for file in (self.run.vmm / SAVED).iterdir())

    def directory(self) -> str:
        """An empty one for a snapshot, as the VMM sees it."""
        (self.run.vmm / SAVED).mkdir()
        return f"{self.run.vmm}/{SAVED}"

    @contextmanager
    def served(self, vmm: PlayedVmm, name: str = "api.sock") -> Iterator[VmmServer]:
        path = self.run.vmm / name
        path.unlink(missing_ok=True)
        server = VmmServer(path, vmm)
        self.servers.append(server)
        thread = threading.Thread(target=_serve, args=(server,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            if not vmm.ended:
                server.shutdown()
            thread.join()
            server.server_close()
            path.unlink()


def _serve(server: VmmServer) -> None:
    """Until it is shut down, or its VMM ended: a program would exit, a thread of the tests just ends."""
    with suppress(SystemExit):
        server.serve_forever(poll_interval=0.01)


LINK = GuestLink(mac="02:00:00:00:00:01", addresses=("fdaa::3/64",), gateways=("fdaa::1",))


@contextmanager
def host(place: Path) -> Iterator[Host]:
    run = RunDir(place / "run")
    run.vmm.mkdir(parents=True)
    lock = os.open(run.journal, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Host(run, lock)
    finally:
        os.close(lock)
