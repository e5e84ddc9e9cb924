"""Which service a node's daemon is: the only one that its removal may stop and disable."""

from pathlib import Path

import pytest

from hawker.up.removal import unit_of

PID = 4711


def host(folder: Path, group: str, main: int) -> Path:
    """A /proc with the one process, and a systemctl that names the main process of whatever it is asked for."""
    (folder / "proc" / str(PID)).mkdir(parents=True)
    (folder / "proc" / str(PID) / "cgroup").write_text(f"0::{group}\n")
    (folder / "systemctl").write_text(f"#!/bin/sh\necho {main}\n")
    (folder / "systemctl").chmod(0o755)
    return folder / "proc"


@pytest.mark.parametrize(
    ("group", "main", "found"),
    [
        ("/system.slice/hawker.service", PID, "hawker.service"),
        ("/system.slice/ssh.service", 800, None),
        ("/system.slice/cron.service", 0, None),
        ("/user.slice/user-0.slice/session-1.scope", PID, None),
    ],
)
def test_service_is_the_daemons_own_where_that_is_its_main_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str, main: int, found: str | None
) -> None:
    proc = host(tmp_path, group, main)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert unit_of(PID, proc) == found


def test_service_of_a_host_without_systemd_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc = host(tmp_path, "/system.slice/hawker.service", PID)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert unit_of(PID, proc) is None
