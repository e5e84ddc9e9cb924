from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from hawker.catalog.change import Scope
from hawker.catalog.contract import Statement
from hawker.catalog.messages import DeltaPart, Push, SnapshotAsk, SnapshotMeta, SnapshotRead, Txs, decode, encode
from hawker.catalog.replica import Replica
from hawker.catalog.snapshots import KEPT_S, Album
from hawker.catalog.storage import SqliteStorage
from hawker.clock import ManualClock, SystemClock
from hawker.errors import BadRequest, NotFound, Unavailable
from hawker.ids import NodeId
from tests.catalog.disk import A, B, opened, put, rows, said

LONG_S = 60.0


async def unasked(to: NodeId, raw: bytes, timeout_s: float) -> bytes:
    raise AssertionError("nobody is asked here")


def of(album: Album) -> Callable[[NodeId, bytes, float], Awaitable[bytes]]:
    async def ask(to: NodeId, raw: bytes, timeout_s: float) -> bytes:
        message = decode(raw)
        assert isinstance(message, SnapshotAsk | SnapshotRead)
        return await album.answer(message)

    return ask


async def test_a_node_takes_all_that_another_has(tmp_path: Path) -> None:
    there, here = opened(tmp_path / "."), opened(tmp_path, B)
    for number in range(50):
        said(there, put(number, number))
    album = Album(there, tmp_path / "there", ManualClock(), unasked)
    touched = await Album(here, tmp_path / "here", ManualClock(), of(album)).take(A, Scope)
    assert touched.everything
    assert rows(here) == rows(there) and len(rows(here)) == 50
    assert here.positions(Scope.REGION)[A] == there.positions(Scope.REGION)[A]
    assert list((tmp_path / "here").iterdir()) == []
    album.close()
    assert list((tmp_path / "there").iterdir()) == []


async def test_one_file_serves_many_and_goes_after_a_while(tmp_path: Path) -> None:
    clock = ManualClock()
    album = Album(opened(tmp_path), tmp_path / "there", clock, unasked)
    one = decode(await album.answer(SnapshotAsk(scopes=tuple(Scope))))
    assert decode(await album.answer(SnapshotAsk(scopes=tuple(Scope)))) == one
    assert isinstance(one, SnapshotMeta)
    clock.advance(KEPT_S + 1)
    with pytest.raises(NotFound):
        await album.answer(SnapshotRead(number=one.number, offset=0))
    assert list((tmp_path / "there").iterdir()) == []


@pytest.mark.parametrize(
    "answer",
    [b"", b"\xff", encode(SnapshotRead(number=1, offset=0)), encode(SnapshotMeta(number=1, size=-1, digest=""))],
)
async def test_nonsense_is_not_taken(answer: bytes, tmp_path: Path) -> None:
    async def ask(to: NodeId, raw: bytes, timeout_s: float) -> bytes:
        return answer

    album = Album(opened(tmp_path), tmp_path / "here", ManualClock(), ask)
    with pytest.raises((Unavailable, BadRequest)):
        await album.take(A, Scope)


async def test_a_damaged_file_is_not_taken(tmp_path: Path) -> None:
    there, here = opened(tmp_path), opened(tmp_path, B)
    said(there, put(1, 1))
    album = Album(there, tmp_path / "there", ManualClock(), unasked)

    async def ask(to: NodeId, raw: bytes, timeout_s: float) -> bytes:
        found = decode(await of(album)(to, raw, timeout_s))
        return encode(
            SnapshotMeta(number=found.number, size=found.size, digest="0" * 64)
            if isinstance(found, SnapshotMeta)
            else found
        )

    with pytest.raises(BadRequest):
        await Album(here, tmp_path / "here", ManualClock(), ask).take(A, Scope)
    assert rows(here) == []
    album.close()


async def test_a_fresh_replica_begins_with_a_snapshot(tmp_path: Path) -> None:
    """With a threshold of one version, so that it is always worth its while."""
    clock, replicas = SystemClock(), dict[NodeId, Replica[SqliteStorage]]()
    taken: list[bytes] = []

    def replica(node: NodeId) -> Replica[SqliteStorage]:
        def send(to: NodeId, raw: bytes) -> None:
            if not isinstance(decode(raw), Push | Txs | DeltaPart):  # what has rows in it is lost
                replicas[to].on_message(node, raw)

        async def ask(to: NodeId, raw: bytes, timeout_s: float) -> bytes:
            message = decode(raw)
            if not isinstance(message, SnapshotAsk | SnapshotRead):
                raise Unavailable("only snapshots pass")
            taken.append(raw)
            return await replicas[to].on_request(node, raw)

        storage = opened(tmp_path, node, clock=clock)
        album = Album(storage, tmp_path / f"snapshots-{node}", clock, ask, fresh=1, far=1)
        return Replica(node, "mad", storage, clock, send=send, ask=ask, album=album)

    async with AsyncExitStack() as stack:
        for node in (A, B):
            replicas[node] = replica(node)
            await stack.enter_async_context(replicas[node].running())
        token = await replicas[A].transact([put(number, "x" * 400) for number in range(40)])
        replicas[A].on_member(B, region="mad", alive=True)
        replicas[B].on_member(A, region="mad", alive=True)
        assert token is not None and await replicas[B].reached(token, timeout_s=LONG_S)
        answer = await replicas[B].query(Statement(query="SELECT count(*) FROM things"))
        assert answer.rows == ((40,),) and taken
