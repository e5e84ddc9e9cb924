"""The file on disk: its lock, its checks, its copies, its size, and what a killed process leaves."""

import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import apsw
import pytest

from hawker.errors import CannotStart, Unavailable
from hawker.store.contract import Bucket, Durability, Tx
from hawker.store.sqlite import SqliteStore
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

BLOBS = Bucket("blobs", bytes)
DEADLINE_S = 90.0

WRITER = """
import sys, anyio
from pathlib import Path
from hawker.store.contract import Bucket, Durability
from hawker.store.sqlite import SqliteStore

async def main():
    store, blobs, number = SqliteStore(Path(sys.argv[1])), Bucket("blobs", bytes), 0
    async def write(worker):
        for number in range(10**9):
            durability = Durability.DURABLE if number % 3 == 0 else Durability.ORDERED
            key = f"{worker}/{number:09d}"
            await store.write(lambda tx: tx.put(blobs, key, b"x" * 100), durability)
            sys.stdout.write(key + chr(10))
            sys.stdout.flush()
    async with anyio.create_task_group() as group:
        for worker in range(8):
            group.start_soon(write, worker)
anyio.run(main)
"""


def put(key: str, size: int = 10) -> Callable[[Tx], None]:
    return lambda tx: tx.put(BLOBS, key, b"x" * size)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(path)
    with anyio.fail_after(DEADLINE_S):
        yield made
        await made.close()


async def made_and_closed(path: Path, *keys: str, size: int = 10) -> None:
    store = SqliteStore(path)
    for key in keys:
        await store.write(put(key, size))
    await store.close()


def keys(store: SqliteStore) -> list[str]:
    return [key for key, _ in store.scan(BLOBS)]


async def test_written_value_is_there_after_reopening(path: Path) -> None:
    await made_and_closed(path, "a", "b")
    store = SqliteStore(path)
    assert keys(store) == ["a", "b"]
    await store.close()


async def test_only_its_owner_may_read_the_file(store: SqliteStore, path: Path) -> None:
    for each in path.parent.iterdir():
        assert each.stat().st_mode & 0o777 == 0o600


# The lock.


def other_process(program: str, path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    return done.stdout + done.stderr


OPEN_TWICE = """
import sys
from pathlib import Path
from hawker.errors import CannotStart
from hawker.store.sqlite import SqliteStore
try:
    SqliteStore(Path(sys.argv[1]))
except CannotStart as error:
    print("refused:", error)
"""
FOREIGN = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=0.1)
for statement in ("SELECT * FROM pairs", "UPDATE pairs SET value = x''", "PRAGMA journal_mode = DELETE", "VACUUM"):
    try:
        connection.execute(statement)
        connection.commit()
        print("allowed:", statement)
    except sqlite3.OperationalError as error:
        print(error)
"""


async def test_a_second_daemon_is_told_which_directory_is_in_use(store: SqliteStore, path: Path) -> None:
    said = other_process(OPEN_TWICE, path)
    expected = f"{path.parent} is in use by another hawker: stop it, or choose another data directory"
    assert said == f"refused: {expected}\n"


async def test_no_other_program_can_read_or_change_the_live_file(store: SqliteStore, path: Path) -> None:
    await store.write(put("a"))
    assert other_process(FOREIGN, path) == "database is locked\n" * 4
    await store.write(put("b"))
    assert keys(store) == ["a", "b"]


async def test_the_lock_stays_while_connections_come_and_go(store: SqliteStore, path: Path, tmp_path: Path) -> None:
    await store.write(put("a"))
    with store.snapshot(), store.snapshot():
        pass
    await store.backup(tmp_path / "copy.db")
    assert other_process(FOREIGN, path) == "database is locked\n" * 4


async def test_a_closed_store_can_be_opened_by_another_process(path: Path) -> None:
    await made_and_closed(path, "a")
    assert other_process(OPEN_TWICE, path) == ""


# The checks at opening.


def on_the_file(path: Path, statement: str) -> Any:
    """What `statement` gives, over a connection that is closed again. Never by Python's own `sqlite3`: a second SQLite
    in one process would drop the locks of the first (POSIX)."""
    connection = apsw.Connection(str(path))
    try:
        return connection.execute(statement).get
    finally:
        connection.close()


def opening(path: Path) -> str:
    with pytest.raises(CannotStart) as refusal:
        SqliteStore(path)
    return str(refusal.value)


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert opening(tmp_path / "nowhere" / "store.db").startswith(f"{tmp_path}/nowhere/store.db cannot be opened")


def test_a_file_of_something_else_is_refused(path: Path) -> None:
    path.write_bytes(b"not a database at all" * 1000)
    assert "is damaged" in opening(path) and "hawker node restore FILE" in opening(path)


def test_another_programs_database_is_refused_and_left_as_it_was(path: Path) -> None:
    on_the_file(path, "CREATE TABLE t (a)")
    assert opening(path) == f"{path} is not a hawker store: choose another data directory"


async def test_a_newer_store_is_refused(path: Path) -> None:
    await made_and_closed(path, "a")
    on_the_file(path, "PRAGMA user_version = 99")
    text = "was written by a newer hawker (store version 99, known here: 1): upgrade this one, or restore a backup"
    assert text in opening(path)


@pytest.mark.parametrize("cut", [1, 100, 4096, 5000, 20_000])
async def test_a_torn_file_is_refused_with_what_to_do(path: Path, cut: int) -> None:
    await made_and_closed(path, *"abcdefgh", size=5000)
    with path.open("r+b") as file:
        file.truncate(cut)
    said = opening(path)
    assert f"{path} is damaged" in said and "hawker node restore FILE`, or move it away to begin empty" in said


async def test_an_overwritten_page_is_refused(path: Path) -> None:
    await made_and_closed(path, *"abcdefgh", size=500)
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096)
    assert "is damaged" in opening(path)


async def test_a_refused_opening_leaves_no_lock_behind(path: Path) -> None:
    await made_and_closed(path, "a")
    on_the_file(path, "PRAGMA user_version = 99")
    opening(path)
    assert other_process(FOREIGN, path).count("allowed:") == 4


# Crashes.


def killed_writer(path: Path, acknowledged: int) -> list[str]:
    """Start a process that writes, kill it after so many acknowledgements, return all that it gave."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = [process.stdout.readline().strip() for _ in range(acknowledged)]
        process.send_signal(signal.SIGKILL)
        told += [line.strip() for line in process.stdout if line.endswith("\n")]
    return told


@pytest.mark.parametrize("acknowledged", [1, 50, 3000])
async def test_acknowledged_write_survives_kill_9(path: Path, acknowledged: int) -> None:
    told = killed_writer(path, acknowledged)
    assert len(told) >= acknowledged and all(told)
    store = SqliteStore(path)
    assert set(told) <= set(keys(store))
    await store.write(put("after"))
    await store.close()


async def test_writes_that_survive_kill_9_have_no_gaps(path: Path) -> None:
    killed_writer(path, 500)
    store = SqliteStore(path)
    for worker in range(8):
        written = [key for key, _ in store.scan(BLOBS, f"{worker}/")]
        assert written == [f"{worker}/{number:09d}" for number in range(len(written))]
    await store.close()


# Groups, size, errors.


def beats(path: Path) -> int:
    """How many groups with a durable commit there were."""
    count: int = on_the_file(path, "SELECT beats FROM pulse")
    return count


async def test_concurrent_durable_writes_share_their_fsyncs(path: Path) -> None:
    store = SqliteStore(path)
    async with anyio.create_task_group() as group:
        for number in range(200):
            group.start_soon(store.write, put(str(number)))
    await store.close()
    assert beats(path) < 100


async def test_the_log_stays_small(store: SqliteStore, path: Path) -> None:
    for number in range(3000):
        await store.write(put(str(number % 100), 5000), Durability.ORDERED)
    assert path.with_name("store.db-wal").stat().st_size < 20 * 2**20


async def test_reads_do_not_wait_for_a_write_under_way(store: SqliteStore) -> None:
    began, gate = threading.Event(), threading.Event()

    def slow(tx: Tx) -> None:
        tx.put(BLOBS, "b", b"")
        began.set()
        assert gate.wait(DEADLINE_S)

    await store.write(put("a"))
    async with anyio.create_task_group() as group:
        group.start_soon(store.write, slow)
        await eventually(began.is_set)
        assert (keys(store), store.count(BLOBS)) == (["a"], 1)
        with store.snapshot() as view:
            assert view.get(BLOBS, "b") is None
        gate.set()
    assert keys(store) == ["a", "b"]


async def test_an_error_inside_a_transaction_is_unavailable_to_its_caller_alone(store: SqliteStore) -> None:
    store._connection.limit(apsw.SQLITE_LIMIT_LENGTH, 10_000)
    refused: list[str] = []

    async def expect_refusal() -> None:
        with pytest.raises(Unavailable, match="too big"):
            await store.write(put("huge", 20_000))
        refused.append("huge")

    async with anyio.create_task_group() as group:
        group.start_soon(store.write, put("a"))
        group.start_soon(expect_refusal)
        group.start_soon(store.write, put("b"))
    assert (keys(store), refused) == (["a", "b"], ["huge"])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.root
@pytest.mark.parametrize("durability", Durability)
async def test_a_full_disk_is_unavailable_until_there_is_room_again(small_disk: Path, durability: Durability) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 1_000_000)
    store, written = SqliteStore(small_disk / "store.db"), list[str]()
    with pytest.raises(Unavailable, match="disk is full"):
        for number in range(100):
            await store.write(put(str(number), 50_000), durability)
            written.append(str(number))
    assert sorted(keys(store)) == sorted(written)
    with pytest.raises(Unavailable):
        await store.write(put("too much", 500_000), durability)
    ballast.unlink()
    await store.write(put("after", 50_000), durability)
    assert sorted(keys(store)) == sorted([*written, "after"])
    await store.close()
    again = SqliteStore(small_disk / "store.db")
    assert sorted(keys(again)) == sorted([*written, "after"])
    await again.close()


# Backup.


async def test_a_backup_is_one_moment_and_complete(store: SqliteStore, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    target.write_bytes(b"an older backup")

    async def write_on() -> None:
        for number in range(500):
            await store.write(partial(put_pair, number=number), Durability.ORDERED)

    async with anyio.create_task_group() as group:
        group.start_soon(write_on)
        await store.backup(target)
    copy = SqliteStore(target)
    halves = [[key for key, _ in copy.scan(BLOBS, side)] for side in ("left/", "right/")]
    assert [key.removeprefix("left/") for key in halves[0]] == [key.removeprefix("right/") for key in halves[1]]
    await copy.close()
    assert "copy.db.partial" not in names(tmp_path)


def names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


def put_pair(tx: Tx, number: int) -> None:
    for side in ("left", "right"):
        tx.put(BLOBS, f"{side}/{number:04d}", b"x" * 500)


async def test_a_backup_that_fails_leaves_the_old_one(store: SqliteStore, tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        await store.backup(tmp_path / "nowhere" / "copy.db")
    await store.write(put("a"))
    assert keys(store) == ["a"]
