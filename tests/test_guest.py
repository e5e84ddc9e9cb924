"""The guest programs are in the package, or the error says how they get there."""

import os
from pathlib import Path

import pytest

from hawker import guest
from hawker.errors import CannotStart


def test_the_programs_are_built_and_run() -> None:
    for path in (guest.pilot_path(), guest.hello_path(), guest.keeper_path(), guest.launcher_path()):
        assert os.access(path, os.X_OK)
        assert path.read_bytes()[:4] == b"\x7fELF"


def test_a_pilot_carries_no_tables_for_unwinding() -> None:
    """Each machine has the program to itself, and they were a fifth of it."""
    assert b".eh_frame" not in guest.pilot_path().read_bytes()


def test_a_missing_program_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="make setup"):
        guest.pilot_path(tmp_path)
