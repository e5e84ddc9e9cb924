import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import zstandard

from hawker.catalog.change import Scope
from hawker.catalog.contract import Statement
from hawker.catalog.messages import DeltaPart, Push, SnapshotAsk, SnapshotMeta, SnapshotRead, Txs, decode, encode
from hawker.catalog.replica import Replica
from hawker.catalog.snapshots import KEPT_S, CatalogSnapshot, SnapshotExchange, make, stored
from hawker.catalog.storage import MemberRow, SqliteStorage
from hawker.clock import ManualClock, SystemClock
from hawker.errors import BadRequest, NotFound, Unavailable
from hawker.ids import NodeId
from tests.catalog.disk import A, B, opened, put, rows, said, thing, tx

LONG_S = 60.0


async def unasked(to: NodeId, raw: bytes, timeout_s: float) -> bytes:
    raise AssertionError("nobody is asked here")


def of(snapshots: SnapshotExchange) -> Callable[[NodeId, bytes, float], Awaitable[bytes]]:
    async def ask(to: NodeId, raw: bytes, timeout_s: float) -> bytes:
        message = decode(raw)
        assert isinstance(message, SnapshotAsk | SnapshotRead)
        return await snapshots.answer(message)

    return ask


async def test_a_node_takes_all_that_another_has(tmp_path: Path) -> None:
    there, here = opened(tmp_path / "."), opened(tmp_path, B)
    for number in range(50):
        said(there, put(number, number))
    snapshots = SnapshotExchange(there, tmp_path / "there", ManualClock(), unasked)
    touched = await SnapshotExchange(here, tmp_path / "here", ManualClock(), of(snapshots)).take(A, Scope)
    assert touched.everything
    assert rows(here) == rows(there) and len(rows(here)) == 50
    assert here.positions(Scope.REGION)[A] == there.positions(Scope.REGION)[A]
    assert list((tmp_path / "here").iterdir()) == []
    snapshots.close()
    assert list((tmp_path / "there").iterdir()) == []


async def test_one_file_serves_many_and_goes_after_a_while(tmp_path: Path) -> None:
    clock = ManualClock()
    snapshots = SnapshotExchange(opened(tmp_path), tmp_path / "there", clock, unasked)
    one = decode(await snapshots.answer(SnapshotAsk(scopes=tuple(Scope))))
    assert decode(await snapshots.answer(SnapshotAsk(scopes=tuple(Scope)))) == one
    assert isinstance(one, SnapshotMeta)
    clock.advance(KEPT_S + 1)
    with pytest.raises(NotFound):
        await snapshots.answer(SnapshotRead(number=one.number, offset=0))
    assert list((tmp_path / "there").iterdir()) == []


async def test_disk_that_takes_no_snapshot_is_told_of_as_one_to_be_tried_later(tmp_path: Path) -> None:
    there, here = opened(tmp_path), opened(tmp_path, B)
    snapshots = SnapshotExchange(there, tmp_path / "there", ManualClock(), unasked)
    (tmp_path / "file").touch()
    taking = SnapshotExchange(here, tmp_path / "file", ManualClock(), of(snapshots))
    with pytest.raises(Unavailable):
        await taking.take(A, Scope)
    with pytest.raises(Unavailable):
        await taking.answer(SnapshotAsk(scopes=tuple(Scope)))
    snapshots.close()


@pytest.mark.parametrize(
    "answer",
    [b"", b"\xff", encode(SnapshotRead(number=1, offset=0)), encode(SnapshotMeta(number=1, size=-1, digest=""))],
)
async def test_nonsense_is_not_taken(answer: bytes, tmp_path: Path) -> None:
    async def ask(to: NodeId, raw: bytes, timeout_s: float) -> bytes:
        return answer

    snapshots = SnapshotExchange(opened(tmp_path), tmp_path / "here", ManualClock(), ask)
    with pytest.raises((Unavailable, BadRequest)):
        await snapshots.take(A, Scope)


async def test_a_damaged_file_is_not_taken(tmp_path: Path) -> None:
    there, here = opened(tmp_path), opened(tmp_path, B)
    said(there, put(1, 1))
    snapshots = SnapshotExchange(there, tmp_path / "there", ManualClock(), unasked)

    async def ask(to: NodeId, raw: bytes, timeout_s: float) -> bytes:
        found = decode(await of(snapshots)(to, raw, timeout_s))
        return encode(
            SnapshotMeta(number=found.number, size=found.size, digest="0" * 64)
            if isinstance(found, SnapshotMeta)
            else found
        )

    with pytest.raises(BadRequest):
        await SnapshotExchange(here, tmp_path / "here", ManualClock(), ask).take(A, Scope)
    assert rows(here) == []
    snapshots.close()


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
        snapshots = SnapshotExchange(storage, tmp_path / f"snapshots-{node}", clock, ask, fresh=1, far=1)
        return Replica(node, "mad", storage, clock, send=send, ask=ask, snapshots=snapshots)

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


def unpacked(snapshot: CatalogSnapshot, folder: Path) -> sqlite3.Connection:
    raw = snapshot.read(0, snapshot.size_bytes)
    (folder / "unpacked").write_bytes(zstandard.ZstdDecompressor().decompressobj().decompress(raw))
    return sqlite3.connect(folder / "unpacked")


def test_snapshot_has_the_streams_and_nothing_of_this_node_alone(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    said(storage, put(1, 10))
    said(storage, Statement(query="INSERT INTO nodes (node) VALUES (?)", params=(A,)))
    storage.set_members([MemberRow(host=B, state="alive", since=1.0)])
    copy = unpacked(storage.snapshot(tmp_path / "snapshot"), tmp_path)
    assert copy.execute("SELECT * FROM things").fetchall() == [(A, 1, 10)]
    assert copy.execute("SELECT node FROM nodes").fetchall() == [(A,)]
    names = {name for (name,) in copy.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    assert not names & {"__c_log", "__c_lease", "__corro_members"}
    assert copy.execute("SELECT count(*) FROM sqlite_schema WHERE sql LIKE 'CREATE INDEX%'").fetchone() == (0,)


def test_another_region_gets_the_global_scope_only(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    said(storage, put(1, 10))
    said(storage, Statement(query="INSERT INTO nodes (node) VALUES (?)", params=(A,)))
    copy = unpacked(make(storage.path, tmp_path / "snapshot", {Scope.GLOBAL}), tmp_path)
    names = {name for (name,) in copy.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    assert "things" not in names
    assert copy.execute("SELECT DISTINCT scope FROM __c_origin").fetchall() == [("global",)]
    assert copy.execute("SELECT node FROM nodes").fetchall() == [(A,)]


def test_snapshot_shows_one_moment_while_the_node_goes_on(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    said(storage, put(1, 10))
    snapshot = storage.snapshot(tmp_path / "snapshot")
    said(storage, put(2, 20))
    storage.apply([tx(1, thing(5, 50, B), node=B)])
    assert unpacked(snapshot, tmp_path).execute("SELECT id FROM things").fetchall() == [(1,)]


def test_parts_may_be_read_again_and_the_file_goes_with_it(tmp_path: Path) -> None:
    snapshot = opened(tmp_path).snapshot(tmp_path / "snapshot")
    size = snapshot.size_bytes
    parts = [snapshot.read(offset, 100) for offset in range(0, size, 100)]
    assert b"".join(parts) == snapshot.read(0, size)
    assert snapshot.read(size, 100) == b""
    snapshot.close()
    assert [path.name for path in tmp_path.glob("snapshot*")] == []


def test_no_room_for_it_is_said_so(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    with pytest.raises(Unavailable, match="no snapshot of the catalog could be made"):
        storage.snapshot(tmp_path / "nowhere" / "snapshot")


def test_computed_columns_are_not_stored(tmp_path: Path) -> None:
    storage = opened(tmp_path, A, "CREATE TABLE t (node TEXT NOT NULL PRIMARY KEY, a AS (1), b, c AS (2) STORED);")
    assert stored(storage._connection, "main", "t") == ("node", "b")
    said(storage, Statement(query="INSERT INTO t VALUES (?, 7)", params=(A,)))
    copy = unpacked(storage.snapshot(tmp_path / "snapshot"), tmp_path)
    assert copy.execute("SELECT * FROM t").fetchall() == [(A, 1, 7, 2)]
