"""The root of a process in another mount namespace, seen from here."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.host.mount import is_mounted, remount_root, unmount

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_stray")]

PIVOT = """
set -e
mount --make-rprivate /
mount -t tmpfs none {root}
mkdir {root}/old {root}/usr {root}/lib {root}/lib64 {root}/bin
for each in usr lib lib64 bin; do [ -e /$each ] && mount --rbind /$each {root}/$each; done
echo inside > {root}/word
cd {root}
pivot_root . old
echo ready
exec sleep 1000
"""


@pytest.fixture
def inhabitant(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process whose root is a tmpfs that is mounted nowhere here."""
    root = tmp_path / "root"
    root.mkdir()
    process = subprocess.Popen(
        ["unshare", "--mount", "/bin/sh", "-c", PIVOT.format(root=root)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "shown"
    unmount(tmp_path / "shown")


def test_remounted_root_is_the_same_filesystem_and_both_write_to_it(
    inhabitant: "subprocess.Popen[str]", target: Path
) -> None:
    for _ in range(2):
        remount_root(inhabitant.pid, target)
    assert is_mounted(target) and (target / "word").read_text() == "inside\n"
    (target / "from-here").write_text("hello")
    assert Path(f"/proc/{inhabitant.pid}/root/from-here").read_text() == "hello"
    unmount(target)
    assert not is_mounted(target), "it was mounted once"


def test_the_calling_thread_stays_where_it_is(inhabitant: "subprocess.Popen[str]", target: Path) -> None:
    before = os.readlink("/proc/thread-self/ns/mnt")
    remount_root(inhabitant.pid, target)
    assert os.readlink("/proc/thread-self/ns/mnt") == before and Path("/etc").is_dir()


def test_a_process_that_is_gone_is_an_error(target: Path) -> None:
    with subprocess.Popen(["true"]) as done:
        pass
    with pytest.raises(OSError):
        remount_root(done.pid, target)
    assert not is_mounted(target)
