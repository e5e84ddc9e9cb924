"""Uploaded files on a disk, without a worker: what is kept, what is refused, what goes."""

import hashlib
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import anyio
import msgspec
import pytest

from hawker.clock import SystemClock
from hawker.config.process_rules import MAX_UPLOAD_BYTES
from hawker.errors import HawkerError, NoRoom, NotFound, OverShare, TooLarge, Unavailable, Unprocessable
from hawker.ids import AppName, Digest, NodeId
from hawker.record.machine import MACHINES
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.store.contract import Tx
from hawker.store.memory_store import MemoryStore
from hawker.worker import apps
from hawker.worker.apps import GRACE_S, MOST_FILES, AppFiles, FilesOfApp

pytestmark = pytest.mark.anyio

ID = "0123456789abcdef"
SHOP = FilesOfApp(ID, AppName("shop"))
NEAR, FAR = NodeId("0000000b"), NodeId("0000000c")
BIG = b"big" * 700_000


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


async def pieces(content: bytes, size: int = 300_000) -> AsyncIterator[bytes]:
    for at in range(0, len(content), size):
        yield content[at : at + size]


def files_in(place: Path, room: int = 1 << 40) -> AppFiles:
    return AppFiles(place / "files", MemoryStore(), SystemClock(), lambda: room)


async def keep(files: AppFiles, content: bytes, app_id: str = ID) -> str:
    await files.receive(app_id, digest_of(content), len(content), pieces(content))
    return digest_of(content)


def on_disk(place: Path) -> list[str]:
    return sorted(path.name for path in place.rglob("*") if path.is_file())


async def test_an_uploaded_file_is_whole_under_its_digest_and_the_app_s_alone(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    digest = await keep(files, BIG)
    assert files.size_of(ID, digest) == len(BIG) == files.bytes_of(ID)
    assert files.piece(ID, digest, 3, 6) == b"bigbig"
    assert files.path(ID, digest).read_bytes() == BIG
    assert files.size_of("another", digest) is None and files.bytes_of("another") == 0
    with pytest.raises(NotFound):
        files.piece("another", digest, 0, 1)


async def test_an_upload_of_the_same_again_is_no_second_file(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    assert await keep(files, BIG) == await keep(files, BIG)
    assert len(on_disk(tmp_path)) == 1


@pytest.mark.parametrize(
    ("digest", "size", "error"),
    [
        (digest_of(b"other"), len(BIG), Unprocessable),
        (digest_of(BIG), len(BIG) - 1, Unprocessable),
        (digest_of(BIG), len(BIG) + 1, Unprocessable),
        (digest_of(BIG), 0, TooLarge),
        (digest_of(BIG), MAX_UPLOAD_BYTES + 1, TooLarge),
        ("sha256:../../../hawker.db", len(BIG), Unprocessable),
        ("", len(BIG), Unprocessable),
    ],
)
async def test_a_file_under_a_false_digest_leaves_nothing(
    tmp_path: Path, digest: str, size: int, error: type[HawkerError]
) -> None:
    with pytest.raises(error):
        await files_in(tmp_path).receive(ID, digest, size, pieces(BIG))
    assert on_disk(tmp_path) == []


async def test_an_upload_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield BIG[: len(BIG) // 2]
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await files_in(tmp_path).receive(ID, digest_of(BIG), len(BIG), broken())
    assert on_disk(tmp_path) == []


async def test_an_app_has_so_many_files_and_no_more(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    for number in range(MOST_FILES):
        await keep(files, b"%d" % number)
    await keep(files, b"0")  # is there
    with pytest.raises(TooLarge, match=f"may have {MOST_FILES} uploaded files"):
        await keep(files, b"one more")
    await keep(files, b"one more", "another")


async def test_an_app_has_so_many_bytes_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apps, "MOST_BYTES", len(BIG) + 10)
    files = files_in(tmp_path)
    await keep(files, BIG)
    await keep(files, b"ten bytes.")
    with pytest.raises(TooLarge):
        await keep(files, b".")


async def test_a_disk_keeps_its_floor(tmp_path: Path) -> None:
    with pytest.raises(NoRoom):
        await keep(files_in(tmp_path, room=len(BIG) - 1), BIG)
    assert on_disk(tmp_path) == []


async def test_uploads_of_an_app_take_turns_and_hold_nobody_else_up(tmp_path: Path) -> None:
    files, go = files_in(tmp_path), anyio.Event()

    async def slow() -> AsyncIterator[bytes]:
        await go.wait()
        yield BIG

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(files.receive, ID, digest_of(BIG), len(BIG), slow())
        for _ in range(17):
            tasks.start_soon(_refused_or_kept, files)
        await anyio.wait_all_tasks_blocked()
        await keep(files, b"not held up", "another")
        go.set()
    assert files.size_of(ID, digest_of(b"second")) == len(b"second")


async def _refused_or_kept(files: AppFiles) -> None:
    try:
        await keep(files, b"second")
    except OverShare:
        return


# --- what goes


def age(files: AppFiles, app_id: str, digest: str) -> None:
    path = files.path(app_id, digest)
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime - GRACE_S - 60))


async def test_a_file_no_config_names_goes_an_hour_after_it_was_asked_for(worker: SimWorker, tmp_path: Path) -> None:
    files = AppFiles(tmp_path / "files", worker.store, SystemClock(), lambda: 1 << 40)
    files.sweep()  # nothing is there
    app_id = worker.parts.apps.get(worker.store, APP).id
    named, fallback, unnamed, fresh = [await keep(files, each, app_id) for each in (b"1", b"22", b"333", b"4444")]
    others = await keep(files, b"1", "0" * 16)
    machine_id = await worker.started()
    await worker.at_rest()
    record = worker.record(machine_id)

    def name_it(tx: Tx) -> None:
        def naming(digest: str, size: int) -> object:
            file = {"guest_path": "/x", "digest": digest, "size": size}
            return msgspec.convert({**msgspec.to_builtins(record.config), "files": [file]}, type(record.config))

        after = msgspec.structs.replace(record, config=naming(named, 1))
        before = {
            "version": record.version,
            "config": msgspec.to_builtins(naming(fallback, 2)),
            "image": msgspec.to_builtins(record.image),
            "state": record.state,
            "holds": msgspec.to_builtins(record.holds),
        }
        built = msgspec.convert(msgspec.to_builtins(after) | {"previous": before}, type(record))
        tx.put(MACHINES, record.id, built)

    await worker.store.write(name_it)
    for app, digest in ((app_id, named), (app_id, fallback), (app_id, unnamed), ("0" * 16, others)):
        age(files, app, digest)
    files.sweep()
    assert [files.size_of(app_id, each) for each in (named, fallback, unnamed, fresh)] == [1, 2, None, 4]
    assert files.size_of("0" * 16, others) is None


async def test_a_file_cut_short_goes_after_an_hour(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    digest = await keep(files, b"whole")
    left = files.path(ID, digest).parents[2] / "partial" / f"{'0' * 64}.mark"
    for changed_s, names in ((0, [left.name, digest[7:]]), (GRACE_S + 60, [digest[7:]])):
        left.write_bytes(b"half")
        os.utime(left, (0, left.stat().st_mtime - changed_s))
        files.sweep()
        assert on_disk(tmp_path) == sorted(names)


# --- other nodes


class Others:
    """Keeps `FileNeighbours`: what nodes have; the `silent` do not answer, and a `liar` has something else."""

    def __init__(self, **has: bytes) -> None:
        self.has, self.silent, self.asked = has, set[str](), 0

    def holders(self, app: AppName) -> Sequence[NodeId]:
        return [NEAR, FAR]

    async def piece(self, node: NodeId, app_id: str, digest: Digest, offset: int, count: int) -> bytes:
        if node in self.silent:
            raise Unavailable("it is away")
        content = self.has.get("near" if node == NEAR else "far")
        if content is None or app_id != ID:
            raise NotFound("not here")
        self.asked += 1
        return content[offset : offset + min(count, 1 << 20)]


async def test_a_file_comes_from_the_node_that_has_it_once(tmp_path: Path) -> None:
    files, others = files_in(tmp_path), Others(far=BIG)
    files.meet(others)
    wanted = {digest_of(BIG): len(BIG)}
    await files.check(SHOP, wanted)
    found = await files.fetch(SHOP, wanted)
    assert files.path(ID, digest_of(BIG)).read_bytes() == BIG and list(found) == [digest_of(BIG)]
    asked = others.asked
    assert await files.fetch(SHOP, wanted) == found and others.asked == asked


async def test_a_file_that_nobody_has_is_refused_and_another_app_s_is_nobody_s(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    wanted = {digest_of(BIG): len(BIG)}
    for others in (None, Others(), Others(far=BIG)):
        if others is not None:
            files.meet(others)
        app = FilesOfApp("f" * 16, AppName("shop")) if others and others.has else SHOP
        with pytest.raises(Unprocessable, match="was uploaded for app 'shop'"):
            await files.check(app, wanted)
        with pytest.raises(NotFound, match="upload it again"):
            await files.fetch(app, wanted)


async def test_a_node_that_cannot_be_asked_may_have_it(tmp_path: Path) -> None:
    files, others = files_in(tmp_path), Others()
    others.silent.add(NEAR)
    files.meet(others)
    with pytest.raises(Unavailable, match="cannot be asked"):
        await files.check(SHOP, {digest_of(BIG): len(BIG)})


@pytest.mark.parametrize("content", [BIG[:-1], BIG[:-1] + b"?", BIG + b"more"])
async def test_a_file_another_node_gives_is_believed_by_its_digest_only(tmp_path: Path, content: bytes) -> None:
    files = files_in(tmp_path)
    files.meet(Others(near=content))
    if content.startswith(BIG):
        await files.fetch(SHOP, {digest_of(BIG): len(BIG)})  # no more is taken than belongs to it
        return
    with pytest.raises(Unavailable, match="node 0000000b"):
        await files.fetch(SHOP, {digest_of(BIG): len(BIG)})
    assert on_disk(tmp_path) == []
