"""What "durable" means, seen from below: the kernel is asked to sync before a durable write returns, and only then."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import os, sys, anyio
from pathlib import Path
from hawker.errors import Unavailable
from hawker.store.contract import Bucket, Durability
from hawker.store.sqlite import SqliteStore

NUMBERS = Bucket("numbers", int)

def say(*words):
    os.write(1, (" ".join(words) + chr(10)).encode())

async def write(store, key, durability=Durability.DURABLE):
    try:
        await store.write(lambda tx: tx.put(NUMBERS, key, 1) if key else None, durability)
        say("wrote", key)
    except Unavailable:
        say("refused", key)

async def main():
    store, fails = SqliteStore(Path(sys.argv[1])), Path(os.environ["SYNC_FAILS"])
    say("open")
    await write(store, "ordered", Durability.ORDERED)
    await write(store, "durable")
    await write(store, "")
    fails.touch()
    await write(store, "lost")
    await write(store, "kept", Durability.ORDERED)
    fails.unlink()
    await write(store, "again")
    say("has", *[key for key, _ in store.scan(NUMBERS)])
    await store.close()

anyio.run(main)
"""


@pytest.fixture(scope="module")
def spy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("ziglang", reason="the spy is compiled like the guest's programs")
    library = tmp_path_factory.mktemp("spy") / "sync_spy.so"
    source = Path(__file__).with_name("sync_spy.c")
    plain = ("-shared", "-fPIC", "-nostdlib", "-fno-sanitize=undefined")  # the process has a libc; no cache has ours
    subprocess.run([sys.executable, "-m", "ziglang", "cc", *plain, "-o", library, source], check=True)
    return library


def test_a_durable_write_syncs_before_it_returns_and_a_failing_sync_is_unavailable(spy: Path, tmp_path: Path) -> None:
    env = {**os.environ, "LD_PRELOAD": str(spy), "SYNC_FAILS": str(tmp_path / "fails")}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "store.db")]
    said = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True).stdout
    after_open = said.partition("open\n")[2].partition("has")[0].split("\n")
    assert [line for line in after_open if line] == [
        "wrote ordered",
        "sync",
        "wrote durable",
        "sync",
        "wrote ",  # nothing to write, and yet what was ordered before it is on disk
        "refused lost",
        "wrote kept",
        "sync",
        "wrote again",
    ]
    assert "has again durable kept ordered\n" in said
