"""Clients that write: what was acknowledged to them is asked for, and what is not there is found."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from hawker.chaos.moves.writers import DatabaseWriter, LedgerWriter
from hawker.clock import SystemClock
from hawker.errors import Unavailable
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


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
            await eventually(partial(_acknowledged, writer, 5), 20)
            assert await writer.broken(port) == found
            assert writer.longest_s > 0
            tasks.cancel_scope.cancel()


async def _acknowledged(writer: LedgerWriter, count: int) -> bool:
    return writer.acknowledged >= count


async def test_a_ledger_that_does_not_answer_is_asked_again_by_who_asked() -> None:
    async with ledger() as port:
        pass
    with pytest.raises(Unavailable, match="does not answer"):
        await LedgerWriter(SystemClock()).broken(port)


@pytest.mark.skipif(shutil.which("psql") is None, reason="this host has no PostgreSQL client")
async def test_a_database_that_does_not_answer_is_asked_again_by_who_asked(tmp_path: Path) -> None:
    async with ledger() as port:
        pass
    with pytest.raises(Unavailable, match="does not answer"):
        await DatabaseWriter(SystemClock(), tmp_path / "logs").broken(port)
