"""Clients that write: what was acknowledged to them is asked for, and what is not there is found."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from hawker.chaos.moves.writers import BlocksWriter, DatabaseWriter, GitWriter, LedgerWriter, RootWriter
from hawker.clock import SystemClock
from hawker.errors import Unavailable
from tests.ports import free_port
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
Lines = LedgerWriter | BlocksWriter | GitWriter


@asynccontextmanager
async def ledger(*, forgets: int = 0) -> AsyncIterator[int]:
    """A port that answers as the machine does; it forgets one number."""
    kept: list[bytes] = []

    async def serve(stream: SocketStream) -> None:
        async with stream:
            rest = b""
            async for data in stream:
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    if line == b"?":
                        await stream.send(b"".join(each + b"\n" for each in kept) + b"end\n")
                        continue
                    if int(line) != forgets:
                        kept.append(line)
                    await stream.send(line + b"\n")

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield listener.listeners[0].extra(SocketAttribute.local_port)
        tasks.cancel_scope.cancel()


async def test_a_ledger_that_has_all_is_sound_and_one_that_forgets_is_not() -> None:
    for forgets, found in ((0, []), (2, ["1 acknowledged numbers are lost, the first is 2"])):
        writer = LedgerWriter(SystemClock())
        async with ledger(forgets=forgets) as port, anyio.create_task_group() as tasks:
            tasks.start_soon(writer.write, port)
            await eventually(partial(_acknowledged, writer, 5))
            assert await writer.broken(port) == found
            assert writer.longest_s > 0
            tasks.cancel_scope.cancel()


async def _acknowledged(writer: Lines, count: int) -> bool:
    return writer.acknowledged >= count


async def test_a_ledger_that_does_not_answer_is_asked_again_by_who_asked() -> None:
    async with ledger() as port:
        pass
    with pytest.raises(Unavailable, match="does not answer"):
        await LedgerWriter(SystemClock()).broken(port)


@contextmanager
def program(writer: Lines, data: Path, port: int) -> Iterator[None]:
    """What the machine would run, with its volume in `data`. It is killed at the end with all that it runs, as a
    machine is: a git that outlived it would take its locks away under the next one.
    """
    init = writer.config("image", "volume").init
    assert init is not None and init.exec is not None
    text = init.exec[-1].replace("/data", str(data)).replace('("0.0.0.0", 7)', f'("127.0.0.1", {port})')
    ours, theirs = socket.socketpair()
    with ours, subprocess.Popen((sys.executable, "-c", text), stdin=theirs.fileno(), start_new_session=True) as process:
        theirs.close()
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            assert not ours.recv(1), "it is closed once the last of them is gone"


def spoil_block(data: Path) -> None:
    kept = (data / "blocks").read_bytes()
    at = next(at for at in range(0, len(kept), 4096) if kept[at])
    with (data / "blocks").open("r+b") as file:
        file.seek(at + 100)
        file.write(b"spoilt")


def forget_blocks(data: Path) -> None:
    os.truncate(data / "blocks", 0)


def forget_objects(data: Path) -> None:
    for folder in (data / "repository" / ".git" / "objects").glob("[0-9a-f]*"):
        shutil.rmtree(folder)


def forget_commits(data: Path) -> None:
    subprocess.run(("git", "-C", data / "repository", "reset", "-q", "--hard", "HEAD~3"), check=True)


def forget_numbers(data: Path) -> None:
    (data / "ledger").write_bytes(b"1\n2\n")


@pytest.mark.parametrize(
    ("kind", "spoil", "found"),
    [
        (LedgerWriter, forget_numbers, "acknowledged numbers are lost, the first is 3"),
        (BlocksWriter, spoil_block, "is torn"),
        (BlocksWriter, forget_blocks, "blocks are older than what was acknowledged"),
        (GitWriter, forget_objects, "git fsck ended with status"),
        (GitWriter, forget_commits, "acknowledged numbers are lost"),
    ],
)
async def test_a_program_that_is_killed_keeps_what_it_acknowledged_and_damage_is_found(
    tmp_path: Path, kind: type[Lines], spoil: Callable[[Path], None], found: str
) -> None:
    if shutil.which("git") is None and kind is GitWriter:
        pytest.skip("this host has no git")
    writer, port = kind(SystemClock()), free_port()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.write, port)
        for wanted in (5, 10):
            with program(writer, tmp_path, port):
                await eventually(partial(_acknowledged, writer, wanted))
        tasks.cancel_scope.cancel()
    with program(writer, tmp_path, port):
        await eventually(partial(_answers, writer, port))
        assert await writer.broken(port) == []
        spoil(tmp_path)
        assert any(found in each for each in await writer.broken(port))


async def _answers(writer: Lines, port: int) -> bool:
    try:
        await writer.broken(port)
    except Unavailable:
        return False
    return True


@pytest.mark.skipif(shutil.which("psql") is None, reason="this host has no PostgreSQL client")
async def test_a_database_that_does_not_answer_is_asked_again_by_who_asked(tmp_path: Path) -> None:
    async with ledger() as port:
        pass
    with pytest.raises(Unavailable, match="does not answer"):
        await DatabaseWriter(SystemClock(), tmp_path / "logs").broken(port)


def test_a_root_writer_keeps_its_ledger_in_a_root_filesystem_that_outlives_its_machine_s_instances() -> None:
    config = RootWriter(SystemClock()).config("oci:image", "vol_0000000000000001")
    assert config.rootfs is not None and config.rootfs.persist == "always" and config.mounts
    assert config.init is not None and config.init.exec is not None
    assert '"/ledger"' in config.init.exec[-1] and "/data/ledger" not in config.init.exec[-1]
