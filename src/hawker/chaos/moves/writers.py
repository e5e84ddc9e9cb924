"""Clients that write to a machine all the time, and know what was acknowledged: a ledger of numbers, and PostgreSQL
under pgbench. They reach the machine by a port of this host, and try again when it is away.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import anyio
import msgspec
from anyio.to_thread import run_sync

from hawker.chaos.daemon import HAWKER
from hawker.chaos.hostile.python_image import PYTHON, write_python_image
from hawker.chaos.moves.postgres_image import write_postgres_image
from hawker.clock import Clock
from hawker.config import Guest, Init, MachineConfig, MachineRestart
from hawker.config.machine import Mount, StopConfig
from hawker.errors import Unavailable

_ANSWER_S = 10.0
_PAUSE_S = 0.05
_LOADED_S = 180.0
_RUN_S = 2  # of one pgbench: its log is whole only once it has ended
_FILLER_MIB = 8
_DATABASE = "postgres"

LEDGER = """
import os, socket, threading
ledger = os.open("/data/ledger", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
if not os.path.exists("/data/filler"):
    with open("/data/filler", "wb") as file:
        file.write(os.urandom({filler} << 20))
        os.fsync(file.fileno())
def serve(connection):
    with connection, connection.makefile("rwb") as stream:
        for line in stream:
            if line == b"?\\n":
                stream.write(open("/data/ledger", "rb").read() + b"end\\n")
            else:
                os.write(ledger, line)
                os.fsync(ledger)
                stream.write(line)
            stream.flush()
listener = socket.create_server(("0.0.0.0", 7))
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


class Writer(Protocol):
    """`remote` is the machine's port. `acknowledged` grows with each answer; `longest_s` is the longest time between
    two of them since `forget`."""

    remote: int
    acknowledged: int
    longest_s: float

    def image(self, file: Path) -> None:
        """Write the archive of what the machine runs from. Raises `CannotStart`."""

    def config(self, reference: str, volume: str) -> MachineConfig: ...

    async def load(self, port: int) -> None:
        """What is to be there before the first write. Raises `Unavailable`."""

    async def write(self, port: int) -> None:
        """Until cancelled."""

    def forget(self) -> None:
        """What was the longest so far."""

    async def broken(self, port: int) -> list[str]:
        """What was acknowledged and is not there, or is not sound. Raises `Unavailable` while it cannot be asked."""


class _Paced:
    """How long a client waited for an answer: by the wall clock, which pgbench's log has, too."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = clock.now()
        self.acknowledged = 0
        self.longest_s = 0.0

    def forget(self) -> None:
        self._last, self.longest_s = self._clock.now(), 0.0

    def _heard(self, at: float) -> None:
        self.acknowledged += 1
        self.longest_s, self._last = max(self.longest_s, at - self._last), max(at, self._last)


class LedgerWriter(_Paced):
    """Keeps `Writer`. Numbers, each on disk before it is answered."""

    remote = 7

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._number = 0
        self._answered: list[int] = []

    def image(self, file: Path) -> None:
        write_python_image(file)

    def config(self, reference: str, volume: str) -> MachineConfig:
        program = (PYTHON, "-u", "-c", LEDGER.format(filler=_FILLER_MIB))
        return _config(reference, volume, program, 128, StopConfig(signal="SIGKILL", timeout="1s"))

    async def load(self, port: int) -> None:
        return None

    async def write(self, port: int) -> None:
        while True:
            with suppress(OSError, TimeoutError, anyio.EndOfStream, anyio.BrokenResourceError):
                async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                    while True:
                        await self._one(stream)
            await self._clock.sleep(_PAUSE_S)

    async def _one(self, stream: anyio.abc.SocketStream) -> None:
        self._number += 1
        text = f"{self._number}\n".encode()
        await stream.send(text)
        heard = b""
        with anyio.fail_after(_ANSWER_S):
            while not heard.endswith(b"\n"):
                heard += await stream.receive()
        if heard == text:
            self._answered.append(self._number)
            self._heard(self._clock.now())

    async def broken(self, port: int) -> list[str]:
        answered = list(self._answered)
        try:
            kept = set((await self._ask(port)).splitlines())
        except (OSError, TimeoutError, anyio.EndOfStream, anyio.BrokenResourceError) as error:
            raise Unavailable(f"the ledger does not answer: {type(error).__name__}") from error
        lost = [number for number in answered if str(number).encode() not in kept]
        return [f"{len(lost)} acknowledged numbers are lost, the first is {lost[0]}"] if lost else []

    async def _ask(self, port: int) -> bytes:
        found = b""
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(b"?\n")
            with anyio.fail_after(_ANSWER_S):
                while not found.endswith(b"end\n"):
                    found += await stream.receive()
        return found.removesuffix(b"end\n")


_SOUND = """
select 'the sums of branches, tellers, accounts and history differ' where (select count(distinct s) from (
  select coalesce(sum(abalance), 0) s from pgbench_accounts union all select coalesce(sum(bbalance), 0) from
  pgbench_branches union all select coalesce(sum(tbalance), 0) from pgbench_tellers union all select
  coalesce(sum(delta), 0) from pgbench_history) as all_of) <> 1;
select 'verify_heapam: ' || relname || ': ' || msg from pg_class c, lateral verify_heapam(c.oid) as found
  where c.relkind = 'r' and c.relname like 'pgbench%';
select bt_index_parent_check(c.oid, true, true) from pg_class c join pg_am a on a.oid = c.relam
  where a.amname = 'btree' and c.relkind = 'i' and c.relpersistence = 'p';
"""
"""In one transaction of one moment: nothing, and a blank line for each sound index."""


class DatabaseWriter(_Paced):
    """Keeps `Writer`. pgbench's own log says which transactions were acknowledged, and when: `moments`, in Unix
    seconds. `place` is a directory for it, `scale` as pgbench has it."""

    remote = 5432

    def __init__(self, clock: Clock, place: Path, scale: int = 1) -> None:
        super().__init__(clock)
        self._place = place
        self._scale = scale
        self._script = ""
        self._runs = 0
        self._idle = anyio.Lock()
        self.moments: list[float] = []

    def image(self, file: Path) -> None:
        self._script = write_postgres_image(file)

    def config(self, reference: str, volume: str) -> MachineConfig:
        program = ("/bin/sh", "-c", self._script)
        return _config(reference, volume, program, 512, StopConfig(signal="SIGINT", timeout="10s"))

    async def load(self, port: int) -> None:
        until = self._clock.monotonic() + _LOADED_S
        made = ("pgbench", "-i", "-q", "-s", str(self._scale), *_at(port))
        while (done := await self._ran(*made)).returncode != 0:
            if self._clock.monotonic() > until:
                raise Unavailable(f"the database cannot be filled: {done.stderr.decode()[-300:]}")
            await self._clock.sleep(1.0)
        extended = await self._ran("psql", "-AtXc", "create extension amcheck", *_at(port))
        if extended.returncode != 0:
            raise Unavailable(f"amcheck cannot be had: {extended.stderr.decode()[-300:]}")

    async def write(self, port: int) -> None:
        self._place.mkdir(exist_ok=True)
        while True:
            async with self._idle:
                self._runs += 1
                prefix = self._place / f"run-{self._runs}"
                log = ("-l", f"--log-prefix={prefix}")
                await self._ran("pgbench", "-n", "-c", "2", "-T", str(_RUN_S), *log, *_at(port))
                answered = await run_sync(_moments_in, prefix)
                self.moments += answered
                for at in answered:
                    self._heard(at)
            await self._clock.sleep(_PAUSE_S)

    async def broken(self, port: int) -> list[str]:
        async with self._idle:
            counted = await self._ran("psql", "-AtXc", "select count(*) from pgbench_history", *_at(port))
            sound = await self._ran("psql", "-v", "ON_ERROR_STOP=1", "-AtX", "-1", "-c", _SOUND, *_at(port))
        if counted.returncode != 0:
            raise Unavailable(f"the database does not answer: {counted.stderr.decode()[-300:]}")
        found = [line for line in (sound.stdout + sound.stderr).decode().splitlines() if line.strip()]
        kept = int(counted.stdout)
        if kept < self.acknowledged:
            found.append(f"{self.acknowledged} transactions were acknowledged, and the history has {kept}")
        return found

    async def _ran(self, *command: str) -> "subprocess.CompletedProcess[bytes]":
        """Ends with its time, whatever it does."""
        bounded = ("timeout", "60", *command)
        return await anyio.run_process(bounded, check=False)


def _moments_in(prefix: Path) -> list[float]:
    """When each transaction of a run was acknowledged, in order; its log is gone then. A line that was cut off counts
    for nothing."""
    found = list[float]()
    for file in prefix.parent.glob(f"{prefix.name}.*"):
        for line in file.read_text().splitlines(keepends=True):
            fields = line.split()
            if line.endswith("\n") and len(fields) >= 6:
                found.append(int(fields[4]) + int(fields[5]) / 1e6)
        file.unlink()
    return sorted(found)


def _at(port: int) -> tuple[str, ...]:
    return ("-h", "127.0.0.1", "-p", str(port), "-U", "postgres", _DATABASE)


def _config(reference: str, volume: str, program: tuple[str, ...], memory_mib: int, stop: StopConfig) -> MachineConfig:
    return MachineConfig(
        image=reference,
        init=Init(exec=program),
        guest=Guest(cpu_kind="shared", cpus=1, memory_mb=memory_mib),
        mounts=(Mount(volume=volume, path="/data"),),
        restart=MachineRestart(policy="always"),
        stop_config=stop,
        metadata={"kept": "yes"},
    )


@contextmanager
def led_to(url: str, token: str, app: str, machine: str, remote: int) -> Iterator[int]:
    """A port of this host that leads to the machine's, wherever it is. Raises `Unavailable`."""
    command = (HAWKER, "proxy", f"0:{remote}", machine, "--app", app, "-o", "json")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HAWKER_")}
    environment |= {"HAWKER_URL": url, "HAWKER_TOKEN": token}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise Unavailable(f"`hawker proxy` ended with status {process.wait()}")
            yield int(str(msgspec.json.decode(line)["local"]).rpartition(":")[2])
        finally:
            process.kill()
