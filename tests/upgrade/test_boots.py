"""Boots on disks and directories that are not as they should be: one clear line, or a node that does what it can.

Disks are small tmpfs in a mount namespace of the test's own, gone with its last process.
"""

import os
import signal
import subprocess
from pathlib import Path

import msgspec
import pytest

from hawker.record.node import FORMATS, Format
from hawker.store.contract import Bucket
from hawker.store.sqlite import SqliteStore
from hawker.worker.format import THIS
from tests.e2e.running_node import HAWKER, RunningNode

WITHIN_S = 300

DISK = """
mount -t tmpfs -o size=$SIZE none /mnt
up() { exec "$HAWKER" up --data-dir /mnt/data --driver process --listen 127.0.0.1:0 $SMALL; }
SMALL="--machine-disk-mib 0 --free-disk-floor-mib 0"
until_ready() { until grep -qs '^ready' "$OUT" || ! kill -0 $1; do sleep 0.05; done; }
once() { (up) >"$OUT" 2>/dev/null & until_ready $!; kill $!; wait $!; : >"$OUT"; }
fill() { dd if=/dev/zero of=/mnt/fill bs=1k 2>/dev/null || true; }
"""


def on_a_disk(size: str, script: str, place: Path) -> tuple[int, list[str]]:
    """The exit status, and the last life's lines on stderr."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HAWKER_")}
    done = subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-euc", DISK + script],
        env=environment | {"SIZE": size, "HAWKER": HAWKER, "OUT": str(place / "out")},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, errors = done.communicate(timeout=WITHIN_S)
    except BaseException:
        os.killpg(done.pid, signal.SIGKILL)
        done.wait()
        raise
    return done.returncode, errors.splitlines()


@pytest.mark.root
@pytest.mark.parametrize("size", ["8k", "32k"])
def test_a_disk_without_room_for_a_first_boot_is_refused(size: str, tmp_path: Path) -> None:
    status, lines = on_a_disk(size, 'up >"$OUT"', tmp_path)
    assert (status, len(lines)) == (2, 1), lines
    assert lines[0].startswith("error: ") and "/mnt/data" in lines[0] and "disk is full" in lines[0]
    assert (tmp_path / "out").read_text() == ""


@pytest.mark.root
def test_a_disk_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    status, lines = on_a_disk("4m", 'once; mount -o remount,ro /mnt; up >"$OUT"', tmp_path)
    assert (status, len(lines)) == (2, 1), lines
    assert "cannot write to the data directory /mnt/data" in lines[0] and "--data-dir" in lines[0]


@pytest.mark.root
def test_a_node_whose_disk_filled_up_answers_and_ends_when_it_is_told_to(tmp_path: Path) -> None:
    script = 'once; fill; (up) >"$OUT" & until_ready $!; cat "$OUT" >&2; kill $!; wait $!'
    status, lines = on_a_disk("4m", script, tmp_path)
    assert status == 0, lines
    assert any(line.startswith("ready http://127.0.0.1:") for line in lines)
    assert sum("the store has no reserve on the disk" in line for line in lines) >= 1


WAITING = """
(export HAWKER_FAILPOINT=create.launch.before; up) >"$OUT" 2>/dev/null & until_ready $!
url=$(cut -d' ' -f2 "$OUT"); : >"$OUT"
HAWKER_TOKEN="$(cat /mnt/data/token)" "$HAWKER" --url "$url" apps create shop >/dev/null
HAWKER_TOKEN="$(cat /mnt/data/token)" "$HAWKER" --url "$url" machine run --app shop hawker/hello >/dev/null 2>&1 || true
wait $! || true
fill
(up) >"$OUT" 2>"$OUT.err" & until grep -qs 'runs cannot be resumed yet' "$OUT.err"; do sleep 0.05; done
kill $!; wait $!
"""


@pytest.mark.root
def test_a_node_that_waits_for_room_on_its_disk_hears_a_signal_to_stop(tmp_path: Path) -> None:
    status, lines = on_a_disk("32m", WAITING, tmp_path)
    assert (status, lines) == (0, [])
    assert (tmp_path / "out").read_text() == "", "it was not ready yet"


# A directory that is whole, and not for us.


@pytest.fixture
def stopped(tmp_path: Path) -> RunningNode:
    """A node that has lived and has no machine."""
    node = RunningNode(tmp_path, "--driver", "process").start()
    node.stop()
    return node


async def leave(node: RunningNode, bucket: Bucket[object], key: str, value: object) -> None:
    store = SqliteStore(node.data_dir / "hawker.db")
    await store.write(lambda tx: tx.put(bucket, key, value))
    await store.close()


def refusal(node: RunningNode) -> str:
    node.launch()
    assert node.ended(WITHIN_S) == 2
    (line,) = node.errors.splitlines()
    return line


@pytest.mark.anyio
async def test_a_store_a_newer_hawker_wrote_is_refused(stopped: RunningNode) -> None:
    newer = Format(number=THIS.format + 1, hawker="9.1", needs=THIS.format + 1, needs_hawker="9.0")
    await leave(stopped, Bucket(FORMATS.name, object), "self", newer)
    line = refusal(stopped)
    assert f"written by hawker 9.0, whose format {THIS.format + 1} this hawker {THIS.hawker} does not know" in line
    assert "upgrade hawker, or restore a backup" in line
    store = SqliteStore(stopped.data_dir / "hawker.db")
    assert store.get(FORMATS, "self") == newer
    await store.close()


@pytest.mark.anyio
async def test_a_damaged_record_is_named_and_nothing_is_taken_for_stray(stopped: RunningNode) -> None:
    await leave(stopped, Bucket("machines", object), "3d8f0a", msgspec.Raw(b"\x81\xa2id"))
    stray = stopped.data_dir / "machines/3d8f0a/run"
    stray.mkdir(parents=True)
    line = refusal(stopped)
    assert "record '3d8f0a' in bucket machines of the store cannot be read" in line and "restore a backup" in line
    assert stray.is_dir()


def test_a_damaged_image_file_keeps_no_node_from_beginning(stopped: RunningNode) -> None:
    damaged = stopped.data_dir / "images/images" / f"{'a' * 64}.json"
    damaged.write_bytes(b'{"digest":')
    stopped.start()
    assert f'"path":"{damaged}"' in stopped.errors and "pull or import the image again" in stopped.errors
    stopped.stop()
