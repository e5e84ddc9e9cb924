from typing import Any

import msgspec
import pytest

from hawker.api.contract.body import instant
from hawker.api.contract.volume import CreateVolumeRequest
from hawker.cli.exits import ExitStatus
from hawker.clock import SystemClock
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode
from tests.cli.fake_volumes import BACKUP, TAKEN, volume


def shelve(node: FakeNode) -> None:
    node.add("shop")
    node.keep("shop", volume())


def test_a_backup_is_waited_for_and_its_name_printed(node: FakeNode, hawker: Hawker) -> None:
    shelve(node)
    node.stages = ["waiting"]
    said = hawker("volumes", "backup", "data")
    assert (said.status, said.out) == (ExitStatus.OK, f"{BACKUP}\n")
    assert "7.0 MiB stored, 1.0 MiB sent" in said.err
    assert {call.params.snapshot for call in node.calls["get_backup"]} == {TAKEN}


def test_a_backup_that_fails_says_why(node: FakeNode, hawker: Hawker) -> None:
    shelve(node)
    node.stages = ["failed"]
    said = hawker("volumes", "backup", "data")
    assert said.status == ExitStatus.FAILED and "the place is full" in said.err


def test_a_backup_goes_on_without_who_waited(node: FakeNode, hawker: Hawker) -> None:
    shelve(node)
    node.stages = ["running"]
    said = hawker("volumes", "backup", "data", "--timeout", "0")
    assert said.status == ExitStatus.FAILED and "still running after 0 s, and goes on" in said.err


def test_interrupt_ends_the_wait_and_says_that_the_backup_goes_on(
    node: FakeNode, hawker: Hawker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    shelve(node)
    node.stages = ["running"]
    monkeypatch.setattr(SystemClock, "sleep", interrupt)
    said = hawker("volumes", "backup", "data")
    assert (said.status, said.out) == (ExitStatus.INTERRUPTED, "")
    assert f"backup {BACKUP} goes on: `hawker volumes backups -a shop` lists it" in said.err


def test_nobody_has_to_wait_for_a_backup(node: FakeNode, hawker: Hawker) -> None:
    shelve(node)
    assert hawker("volumes", "backup", "data", "--no-wait").out == f"{BACKUP}\n"
    assert "get_backup" not in node.calls


def test_backups_of_an_app_are_listed(node: FakeNode, hawker: Hawker) -> None:
    heading, row = hawker("volumes", "backups", "-a", "shop").out.splitlines()
    assert heading.split() == ["BACKUP", "VOLUME", "VERIFIED"]
    assert row.split() == [BACKUP, "vol_0000000000000001", "never"]


@pytest.mark.parametrize(
    ("fields", "cell", "state"),
    [
        ({"stale": True}, "never, stale", "stale: nobody has read it for 30 days"),
        ({"verified_at": instant(1.0), "stale": True}, " d, stale", "stale: nobody has read it for 30 days"),
        ({"verified_at": instant(4_000_000_000.0)}, "0 s", "whole"),
        ({"verified_at": instant(1.0), "damage": "packs/ab is not there"}, "damaged", "packs/ab is not there"),
        ({}, "never", "not verified yet"),
    ],
)
def test_backup_that_is_damaged_or_was_not_read_for_long_is_shown_as_such(
    node: FakeNode, hawker: Hawker, fields: dict[str, Any], cell: str, state: str
) -> None:
    node.kept_backup = msgspec.structs.replace(node.kept_backup, **fields)
    assert hawker("volumes", "backups", "-a", "shop").out.splitlines()[1].endswith(cell)
    assert state in hawker("volumes", "backups", BACKUP, "-a", "shop").out
    assert hawker("volumes", "backups", "vol_x/y", "-a", "shop").status == ExitStatus.NOT_FOUND


def test_a_backup_is_restored_into_a_new_volume_of_its_app(node: FakeNode, hawker: Hawker) -> None:
    said = hawker("volumes", "restore", BACKUP, "-a", "shop", "--name", "data", "--size", "9")
    assert said.status == ExitStatus.OK
    assert node.call("create_volume").body == CreateVolumeRequest(name="data", size_gb=9, backup=BACKUP)
