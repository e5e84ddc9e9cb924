"""A repository of backups that commands find without a node."""

from pathlib import Path

import pytest

from tests.cli.commands.volumes.kept import Kept


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    (tmp_path / "kept").mkdir()
    return Kept(tmp_path / "kept")
