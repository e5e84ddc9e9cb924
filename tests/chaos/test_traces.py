"""The watch itself: what it must see, it sees; what is not Hawker's, it leaves alone."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hawker.chaos.traces import host, left
from tests.waiting import wait_for


@contextmanager
def process(argv: list[str], **env: str) -> Iterator[int]:
    with subprocess.Popen(argv, env={**os.environ, **env}) as child:
        try:
            yield child.pid
        finally:
            child.kill()


def test_a_process_of_a_machine_is_seen_until_it_ends(tmp_path: Path) -> None:
    before = host()
    with process(["sleep", "60"], FLY_MACHINE_ID="148ed", HERE=str(tmp_path)) as pid:
        [found] = wait_for(lambda: left(before, tmp_path))
        assert str(found) == f"process {pid} sleep 60"
    assert left(before, tmp_path) == []


def test_a_daemon_and_a_pilot_are_seen(tmp_path: Path) -> None:
    before = host()
    pilot, daemon = tmp_path / "pilot", tmp_path / "hawker"
    for program in (pilot, daemon):
        shutil.copy(shutil.which("sleep") or "", program)
        with process([str(program), "60"]):
            assert len(wait_for(lambda: left(before, tmp_path))) == 1


def test_other_processes_and_this_one_are_not_seen(tmp_path: Path) -> None:
    before = host()
    with process([sys.executable, "-c", "input()", str(tmp_path)]):
        assert left(before, tmp_path) == []


@pytest.mark.root
def test_a_mount_is_seen_by_its_directory_and_its_source(tmp_path: Path) -> None:
    before = host()
    target = tmp_path / "a b"
    target.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", str(target)], check=True)
    try:
        assert [str(trace) for trace in left(before, tmp_path)] == [f"mount {target}"]
        assert left(before, tmp_path / "elsewhere") == []
    finally:
        subprocess.run(["umount", str(target)], check=True)
    assert left(before, tmp_path) == []


@pytest.mark.root
def test_an_interface_a_table_and_a_loop_device_are_seen(tmp_path: Path) -> None:
    before = host()
    (tmp_path / "disk").write_bytes(bytes(1 << 20))
    made = subprocess.run(["losetup", "-f", "--show", tmp_path / "disk"], check=True, capture_output=True, text=True)
    try:
        subprocess.run(["ip", "link", "add", "hwffffstray", "type", "bridge"], check=True)
        subprocess.run(["nft", "add", "table", "inet", "hawker_stray"], check=True)
        kinds = [trace.kind for trace in left(before, tmp_path, "hwffffstray", "hawker_stray")]
        assert kinds == ["interface", "loop", "table"]
    finally:
        subprocess.run(["losetup", "-d", made.stdout.strip()], check=True)
        subprocess.run(["ip", "link", "delete", "hwffffstray"], check=False)
        subprocess.run(["nft", "delete", "table", "inet", "hawker_stray"], check=False)
    wait_for(lambda: not left(before, tmp_path, "hwffffstray", "hawker_stray"))
