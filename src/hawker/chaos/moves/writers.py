"""Clients that write to a machine all the time, and know what was acknowledged: a ledger of numbers, blocks that are
overwritten, commits of a git repository, and PostgreSQL under pgbench. They reach the machine by a port of this host,
and try again when it is away.
"""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Protocol

import anyio
import msgspec
from anyio.to_thread import run_sync

from hawker.chaos.daemon import HAWKER
from hawker.chaos.hostile.python_image import PYTHON, write_python_image
from hawker.chaos.moves.postgres_image import write_postgres_image
from hawker.clock import Clock
from hawker.config import Guest, Init, MachineConfig, MachineRestart
from hawker.config.machine import Mount, RootfsConfig, StopConfig
from hawker.errors import Unavailable

_ANSWER_S = 10.0
_TOLD_S = 60.0
_PAUSE_S = 0.05
_LOADED_S = 180.0
_RUN_S = 2  # of one pgbench: its log is whole only once it has ended
_FILLER_MIB = 8
_BLOCK_COUNT, _STRIDE = 1024, 7919  # a prime: each write is elsewhere
_DATABASE = "postgres"

_SERVE = """
import glob, hashlib, os, shutil, socket, subprocess, threading
if not os.path.exists("/data/filler"):
    with open("/data/filler", "wb") as file:
        file.write(os.urandom({filler} << 20))
        os.fsync(file.fileno())
{keeps}
one = threading.Lock()
def serve(connection):
    with connection, connection.makefile("rwb") as stream:
        for line in stream:
            with one:
                if line == b"?\\n":
                    line = told() + b"end\\n"
                else:
                    keep(line)
            stream.write(line)
            stream.flush()
listener = socket.create_server(("0.0.0.0", 7))
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""
"""Each line is kept on disk before it is sent back; `?` is answered with all that is kept."""

_LEDGER = """
ledger = os.open("/data/ledger", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
def keep(line):
    os.write(ledger, line)
    os.fsync(ledger)
def told():
    return open("/data/ledger", "rb").read()
"""

_BLOCKS = """
blocks = os.open("/data/blocks", os.O_RDWR | os.O_CREAT, 0o600)
def whole(head):
    return head + hashlib.shake_128(head).digest(4096 - len(head))
def keep(line):
    os.pwrite(blocks, whole(line.strip().ljust(64)), int(line.split()[1]) * 4096)
    os.fdatasync(blocks)
def told():
    found = b""
    for place in range({blocks}):
        block = os.pread(blocks, 4096, place * 4096)
        if block.strip(b"\\0"):
            head = block[:64]
            sound = block == whole(head) and int(head.split()[1]) == place
            found += head.strip() + b"\\n" if sound else b"block %d is torn\\n" % place
    return found
"""

_GIT = """
def git(*words, check=True):
    done = subprocess.run(("/usr/bin/git", "-C", "/data/repository", *words), capture_output=True, check=check)
    return done.returncode, done.stdout
if not os.path.exists("/data/repository/.git/ready"):
    shutil.rmtree("/data/repository", ignore_errors=True)
    os.mkdir("/data/repository")
    git("init", "-q")
    for name, value in {options}:
        git("config", name, value)
    open("/data/repository/.git/ready", "w").close()
for lock in glob.glob("/data/repository/.git/**/*.lock", recursive=True):
    os.remove(lock)
def keep(line):
    with open("/data/repository/%d" % (int(line) % 16), "ab") as file:
        file.write(line)
    git("add", ".")
    git("commit", "-q", "-m", line.decode().strip())
def told():
    status, _ = git("fsck", "--full", "--strict", check=False)
    subjects = git("log", "--format=%s", check=False)[1]
    return subjects if status == 0 else b"git fsck ended with status %d\\n" % status + subjects
"""
_GIT_OPTIONS = (
    ("core.fsync", "all"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),  # it would go on behind a commit, and hold locks
    ("user.name", "ledger"),
    ("user.email", "ledger@localhost"),
)


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


class _LinesWriter(_Paced):
    """Sends lines to a program of Python's, which sends each back once it is on disk."""

    remote = 7
    keeps: ClassVar[str]
    """The program's `keep` and `told`."""

    programs: ClassVar[tuple[str, ...]] = ()
    """Of this host, which it runs."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._number = 0
        self._answered: list[int] = []

    def image(self, file: Path) -> None:
        write_python_image(file, self.programs)

    def config(self, reference: str, volume: str) -> MachineConfig:
        program = (PYTHON, "-u", "-c", _SERVE.format(filler=_FILLER_MIB, keeps=self.keeps))
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

    async def broken(self, port: int) -> list[str]:
        answered = list(self._answered)
        try:
            kept = (await self._ask(port)).decode().splitlines()
        except (OSError, TimeoutError, anyio.EndOfStream, anyio.BrokenResourceError) as error:
            raise Unavailable(f"the machine's program does not answer: {type(error).__name__}") from error
        return self._judged(answered, kept)

    def _line(self, number: int) -> str:
        return f"{number}"

    def _judged(self, answered: Sequence[int], kept: Sequence[str]) -> list[str]:
        there = set(kept)
        lost = [number for number in answered if self._line(number) not in there]
        return [f"{len(lost)} acknowledged numbers are lost, the first is {lost[0]}"] if lost else []

    async def _one(self, stream: anyio.abc.SocketStream) -> None:
        self._number += 1
        text = f"{self._line(self._number)}\n".encode()
        await stream.send(text)
        heard = b""
        with anyio.fail_after(_ANSWER_S):
            while not heard.endswith(b"\n"):
                heard += await stream.receive()
        if heard == text:
            self._answered.append(self._number)
            self._heard(self._clock.now())

    async def _ask(self, port: int) -> bytes:
        found = b""
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(b"?\n")
            with anyio.fail_after(_TOLD_S):
                while not found.endswith(b"end\n"):
                    found += await stream.receive()
        return found.removesuffix(b"end\n")


class LedgerWriter(_LinesWriter):
    """Keeps `Writer`. Numbers in a file that grows."""

    keeps = _LEDGER


class RootWriter(LedgerWriter):
    """Keeps `Writer`. The ledger is in the root filesystem, which the machine keeps; the filler in the volume."""

    keeps = _LEDGER.replace("/data/ledger", "/ledger")

    def config(self, reference: str, volume: str) -> MachineConfig:
        return msgspec.structs.replace(super().config(reference, volume), rootfs=RootfsConfig(persist="always"))


class BlocksWriter(_LinesWriter):
    """Keeps `Writer`. Blocks of 4 KiB that are overwritten all over a file, each with its number and a checksum."""

    keeps = _BLOCKS.format(blocks=_BLOCK_COUNT)

    def _line(self, number: int) -> str:
        return f"{number} {number * _STRIDE % _BLOCK_COUNT}"

    def _judged(self, answered: Sequence[int], kept: Sequence[str]) -> list[str]:
        torn = [line for line in kept if not line[:1].isdecimal()]
        there = {place: int(number) for number, place in (line.split() for line in kept if line not in torn)}
        last = {self._line(number).split()[1]: number for number in answered}
        old = [f"block {place} of write {number}" for place, number in last.items() if there.get(place, 0) < number]
        return [*torn, *([f"{len(old)} blocks are older than what was acknowledged, first {old[0]}"] if old else [])]


class GitWriter(_LinesWriter):
    """Keeps `Writer`. Commits, and `git fsck` of them all."""

    keeps = _GIT.format(options=_GIT_OPTIONS)
    programs = ("git",)

    def _judged(self, answered: Sequence[int], kept: Sequence[str]) -> list[str]:
        unsound = [line for line in kept if not line.isdecimal()]
        return unsound + super()._judged(answered, kept)


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
