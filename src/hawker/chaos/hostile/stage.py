"""What a scene has at hand, and what a scene is: one attack with one promise, that the bystander notices nothing."""

import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import TypeAlias

import anyio
from anyio.to_thread import run_sync

from hawker.chaos.daemon import Daemon
from hawker.chaos.hostile.bystander import Bystander
from hawker.chaos.hostile.lab import PORT, LabGround
from hawker.chaos.hostile.tenants import Attacker, Tenant
from hawker.clock import Clock
from hawker.value_object import ValueObject

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class From(Enum):
    """Who attacks."""

    STRANGER = "no token"
    TENANT = "an app's token"
    MACHINE = "a machine"
    REGISTRY = "a registry"
    PEER = "a node"


class Ground(Enum):
    """Where a scene is played."""

    NODE = "one node"
    FLEET = "three nodes"


class Stage(ValueObject, frozen=True):
    """Nodes with two tenants, the first of which is attacked unless a scene says otherwise. `operators` ask one node
    each. `seconds` is how long an attack that has no end of its own lasts; `trap` is a service on the loopback of the
    first node that counts its visitors."""

    ground: LabGround
    clock: Clock
    attacker: Attacker
    bystander: Bystander
    operators: Sequence[Tenant]
    seconds: float
    trap: "LoopbackTrap"

    @property
    def daemon(self) -> Daemon:
        return self.ground.daemons[0]

    @property
    def operator(self) -> Tenant:
        return self.operators[0]

    @property
    def memory_mib(self) -> float:
        """Resident memory of the daemon."""
        return self._memory_mib(self.daemon.pid)

    @property
    def edge_pid(self) -> int:
        """Of the process that serves published ports."""
        warden = int((self.daemon.place.edge / "lock").read_text())
        return int(Path(f"/proc/{warden}/task/{warden}/children").read_text().split()[0])

    def _memory_mib(self, pid: int) -> float:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * _PAGE_BYTES / (1 << 20)

    def connect(self, timeout_s: float, port: int = PORT) -> socket.socket:
        """A connection to the clients' listener, or another one, from where strangers come. Raises `OSError`."""
        source = (self.ground.attackers, 0)
        return socket.create_connection((self.ground.itself, port), timeout=timeout_s, source_address=source)

    async def growth_mib(self, attack: Callable[[], Awaitable[object]], pid: int | None = None) -> float:
        """How much memory the daemon, or another process, had above what it began with, at the most, while it was
        attacked."""
        pid = self.daemon.pid if pid is None else pid
        before, most = self._memory_mib(pid), 0.0

        async def look() -> None:
            nonlocal most
            while True:
                most = max(most, self._memory_mib(pid) - before)
                await self.clock.sleep(0.05)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look)
            await attack()
            tasks.cancel_scope.cancel()
        return most


Findings: TypeAlias = Sequence[str]
Attack: TypeAlias = Callable[[Stage], Awaitable[Findings]]


class Scene(ValueObject, frozen=True):
    """`shared` is what the two tenants share and the attack is after, `held_by` the mechanism that keeps the promise.
    `attack` gives what it won that it must not; its docstring says what it does. `short`: it stands for its kind in a
    run of a minute."""

    name: str
    """As `--scene` takes it."""
    by: From
    shared: str
    attack: Attack
    held_by: str
    short: bool = False
    ground: Ground = Ground.NODE

    @property
    def what(self) -> str:
        """What is done, in a sentence or two."""
        return " ".join((self.attack.__doc__ or "").split())


class LoopbackTrap:
    """A service on the node's loopback that nobody outside may reach; it counts who came."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.2)
        self.port = int(self._listener.getsockname()[1])
        self.visitors: list[str] = []

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            await run_sync(self._accept, abandon_on_cancel=True)

    def _accept(self) -> None:
        with suppress(OSError):
            connection, _ = self._listener.accept()
            with connection:
                connection.settimeout(1.0)
                self.visitors.append(connection.recv(4096).split(b"\r\n")[0].decode(errors="replace"))
                body = b'{"access_token":"INTERNAL-4711","token":"INTERNAL-4711"}'
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    def close(self) -> None:
        self._listener.close()
