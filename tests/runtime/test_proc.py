"""What /proc says about processes, names with blanks and brackets included."""

import os
import shutil
import subprocess
from pathlib import Path

from msgspec.structs import replace

from hawker.runtime import proc
from tests.waiting import wait_for


def test_descendants_are_all_below_and_not_the_ancestor() -> None:
    with subprocess.Popen(["/bin/sh", "-c", "sleep 100 & echo up; wait"], stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None and shell.stdout.readline() == b"up\n"
        below = proc.descendants(shell.pid)
        assert [entry.parent for entry in below] == [shell.pid]
        assert shell.pid in {entry.pid for entry in proc.descendants(os.getpid())}
        os.kill(below[0].pid, 9)
        shell.kill()


def test_a_process_is_there_until_it_is_reaped_and_another_of_its_pid_is_not_it() -> None:
    with subprocess.Popen(["sleep", "100"]) as process:
        (found,) = (entry for entry in proc.entries() if entry.pid == process.pid)
        assert proc.is_there(found) and not proc.is_there(replace(found, began=found.began - 1))
        process.kill()
    assert not proc.is_there(found)


def test_a_mark_is_found_in_whoever_inherited_it() -> None:
    with subprocess.Popen(["sleep", "100"], env={"PATH": os.environ["PATH"], "MARK": "of-this-test"}) as marked:
        try:
            wait_for(lambda: proc.marked(b"MARK=of-this-test") == [marked.pid])
            assert not proc.carries(marked.pid, b"MARK=of-this")
        finally:
            marked.kill()
    assert proc.marked(b"MARK=of-this-test") == []


def test_a_name_may_hold_what_the_format_uses(tmp_path: Path) -> None:
    odd = tmp_path / "a) S 1 (b"
    shutil.copy("/bin/sleep", odd)
    with subprocess.Popen([str(odd), "100"]) as process:
        found = [entry for entry in proc.entries() if entry.pid == process.pid]
        process.kill()
        assert found[0].parent == os.getpid()


def test_a_program_is_found_by_the_whole_of_its_name(tmp_path: Path) -> None:
    program = tmp_path / "sleepy-one"
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen([str(program), "100"]) as process:
        wait_for(lambda: proc.named("sleepy-one") == [process.pid])
        assert proc.named("sleepy") == []
        process.kill()


def test_a_file_is_found_open_whatever_its_name(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with file.open("w"):
        file = file.rename(tmp_path / "renamed")
        assert proc.has_open(os.getpid(), file)
        assert not proc.has_open(os.getppid(), file)
    assert not proc.has_open(os.getpid(), file)
    assert not proc.has_open(os.getpid(), tmp_path / "missing")
