"""A user without rights: what a process may do once it is one, and what root does for it."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hawker.host.own_user import WRITES, can_become, make_folder, read_own, show_to
from tests.waiting import is_readable

USER = 1_879_048_190
_BECOME = "import os, sys; from hawker.host.own_user import Capability, become; "


def as_user(code: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """`code` in a process whose working directory is `folder`; it calls `become` itself."""
    program = (sys.executable, "-c", f"{_BECOME}os.chdir({str(folder)!r}); {code}")
    return subprocess.run(program, check=False, capture_output=True, text=True, timeout=60)


@pytest.mark.root
def test_a_process_without_rights_reads_what_it_is_shown_and_writes_in_its_own_folder_alone(tmp_path: Path) -> None:
    folder = tmp_path / "edge"
    make_folder(folder, USER)
    for name in ("shown", "hidden"):
        (folder / name).write_text(name)
        (folder / name).chmod(0o600)
    show_to(USER, folder / "shown")
    code = f"""become({USER})
def refused(mode, path):
    try: open(path, mode).close()
    except PermissionError: return True
print(open('shown').read(), refused('r', 'hidden'), refused('w', 'shown'), refused('w', 'new'))
print(refused('r', '/etc/shadow'))
open('{WRITES}/routes', 'w').write('kept')
print(len(os.listdir('/proc/self/fd')) > 2, os.getresuid() == os.getresgid() == ({USER},) * 3, os.getgroups())"""
    done = as_user(code, folder)
    assert done.stdout.split("\n")[:3] == ["shown True True True", "True", "True True []"], done.stderr
    assert (folder / WRITES / "routes").stat().st_uid == USER


@pytest.mark.root
def test_a_process_has_the_rights_that_are_said_and_never_more(tmp_path: Path) -> None:
    rights = (
        "print(*(line.split()[1] for line in open('/proc/self/status') if line[:6] in ('CapEff', 'CapPrm', 'NoNewP')))"
    )
    bare = as_user(f"become({USER}); {rights}", tmp_path)
    assert bare.stdout.split() == ["0" * 16, "0" * 16, "1"], bare.stderr
    kept = as_user(f"become({USER}, keep=(Capability.NET_BIND_SERVICE,)); {rights}; os.setuid(0)", tmp_path)
    assert kept.stdout.split() == [f"{1 << 10:016x}", f"{1 << 10:016x}", "1"] and "PermissionError" in kept.stderr


@pytest.mark.root
def test_a_process_that_became_another_user_ends_with_its_parent_as_before(tmp_path: Path) -> None:
    child = f"""import ctypes; ctypes.CDLL(None).prctl(1, 9, 0, 0, 0); become({USER}); print(os.getpid(), flush=True)
import time; time.sleep(600)"""
    program = f"{_BECOME}{child}"
    parent = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {program!r}]); time.sleep(600)"
    with subprocess.Popen((sys.executable, "-c", parent), stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        handle = os.pidfd_open(int(running.stdout.readline()))
        running.kill()
    try:
        assert is_readable(handle, 60), "it goes on without its parent"
    finally:
        os.close(handle)


@pytest.mark.root
def test_a_socket_that_it_is_shown_takes_its_connections(tmp_path: Path) -> None:
    make_folder(tmp_path / "edge", USER)
    place = tmp_path / "edge/door"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen()
        code = f"import socket; become({USER}); socket.socket(socket.AF_UNIX).connect('door'); print('in')"
        assert "PermissionError" in as_user(code, place.parent).stderr
        show_to(USER, place, writable=True)
        assert as_user(code, place.parent).stdout == "in\n"


def test_a_user_that_nobody_can_become_is_said_to_be_so() -> None:
    assert not can_become((1 << 32) - 2) or os.geteuid() == 0
    assert can_become(USER) == (os.geteuid() == 0)


def test_a_file_of_such_a_process_is_read_as_a_regular_file_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hw0 hw1")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "fifo")
    assert read_own(tmp_path / "file", 3) == b"hw0"
    for name in ("link", "fifo", "nothing"):
        with pytest.raises(OSError, match=name):
            read_own(tmp_path / name)
