"""A backup in the place of a store: only when nobody has it, only a whole one, and the replaced one is kept whole."""

import stat
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from hawker.errors import CannotStart
from hawker.store.contract import Bucket
from hawker.store.restore import restore_store
from hawker.store.sqlite import SqliteStore, draft_of

WORDS = Bucket("words", str)

HOLDER = """
import sys
from pathlib import Path
from hawker.store.sqlite import SqliteStore
store = SqliteStore(Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "hawker.db"


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """With the word `old` in it, and a mark."""
    source, copy = tmp_path / "source.db", tmp_path / "backup.db"

    async def make() -> None:
        store = SqliteStore(source)
        await store.write(lambda tx: tx.put(WORDS, "word", "old"))
        await store.backup(copy, lambda tx: tx.put(WORDS, "mark", "copy"))
        await store.close()

    anyio.run(make)
    assert words(source) == {"word": "old"}, "the copy alone is marked"
    return copy


def words(path: Path) -> dict[str, str]:
    async def read() -> dict[str, str]:
        store = SqliteStore(path)
        found = dict(store.scan(WORDS))
        await store.close()
        return found

    return anyio.run(read)


def write(path: Path, word: str) -> None:
    async def put() -> None:
        store = SqliteStore(path)
        await store.write(lambda tx: tx.put(WORDS, "word", word))
        await store.close()

    anyio.run(put)


def names(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.iterdir())


def test_a_backup_takes_an_empty_place(path: Path, backup: Path) -> None:
    assert restore_store(backup, path, "now") is None
    assert names(path) == ["hawker.db"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert words(path) == {"word": "old", "mark": "copy"}
    assert backup.exists()


def test_the_replaced_store_is_kept_whole(path: Path, backup: Path) -> None:
    write(path, "new")
    replaced = restore_store(backup, path, "now")
    assert replaced == path.with_name("hawker.db.replaced-now")
    assert words(path)["word"] == "old" and words(replaced) == {"word": "new"}


def killed_with_a_log(path: Path) -> None:
    """A store whose newest words are in its log only."""
    program = HOLDER.replace("sys.stdin.read()", "") + (
        "import anyio, os, signal\n"
        "from hawker.store.contract import Bucket\n"
        "async def main():\n"
        "    await store.write(lambda tx: tx.put(Bucket('words', str), 'word', 'new'))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "anyio.run(main)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, timeout=90, check=False)
    assert Path(f"{path}-wal").exists()


def test_a_log_goes_with_the_store_that_it_belongs_to(path: Path, backup: Path) -> None:
    killed_with_a_log(path)
    replaced = restore_store(backup, path, "now")
    assert replaced is not None
    assert names(path) == ["hawker.db", "hawker.db.replaced-now", "hawker.db.replaced-now-wal"]
    assert words(path)["word"] == "old" and words(replaced) == {"word": "new"}


def test_a_store_in_use_is_not_replaced(path: Path, backup: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdin is not None and holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == b"open\n"
        before = names(path)
        with pytest.raises(CannotStart, match="in use: stop the hawker"):
            restore_store(backup, path, "now")
        assert names(path) == before
        holder.stdin.close()
    assert restore_store(backup, path, "now") is not None


@pytest.mark.parametrize("size", [0, 10, 5000, 12_000])
def test_a_cut_backup_is_refused_and_nothing_is_changed(path: Path, backup: Path, size: int) -> None:
    write(path, "new")
    backup.write_bytes(backup.read_bytes()[:size])
    with pytest.raises(CannotStart, match=f"{backup}"):
        restore_store(backup, path, "now")
    assert names(path) == ["hawker.db"] and words(path) == {"word": "new"}


def test_a_torn_backup_is_refused(path: Path, backup: Path) -> None:
    data = bytearray(backup.read_bytes())
    data[4096:6000] = bytes(range(256)) * 7 + bytes(112)
    backup.write_bytes(data)
    with pytest.raises(CannotStart, match=str(backup)):
        restore_store(backup, path, "now")
    assert names(path) == []


@pytest.mark.parametrize("offset, value", [(60, 99), (68, 7)], ids=["newer", "not ours"])
def test_a_file_of_another_version_or_program_is_refused(path: Path, backup: Path, offset: int, value: int) -> None:
    data = bytearray(backup.read_bytes())
    data[offset : offset + 4] = value.to_bytes(4, "big")  # user_version and application_id, in the file's header
    backup.write_bytes(data)
    with pytest.raises(CannotStart, match=str(backup)):
        restore_store(backup, path, "now")
    assert names(path) == []


def test_a_damaged_store_is_replaced_and_kept(path: Path, backup: Path) -> None:
    path.write_bytes(b"garbage" * 2000)
    replaced = restore_store(backup, path, "now")
    assert replaced is not None and replaced.read_bytes() == b"garbage" * 2000
    assert words(path)["word"] == "old"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, backup: Path) -> None:
    with pytest.raises(CannotStart, match="cannot restore"):
        restore_store(backup, tmp_path / "none" / "hawker.db", "now")


def test_a_restore_that_was_cut_short_is_not_an_empty_store(path: Path, backup: Path) -> None:
    draft_of(path).write_bytes(b"half")
    with pytest.raises(CannotStart, match="cut short: run `hawker node restore FILE` again"):
        SqliteStore(path)
    assert restore_store(backup, path, "now") is None
    assert names(path) == ["hawker.db"] and words(path)["word"] == "old"


def test_a_damaged_store_says_how_to_go_on(path: Path) -> None:
    path.write_bytes(b"garbage" * 2000)
    with pytest.raises(CannotStart, match="`hawker node restore FILE`"):
        SqliteStore(path)
