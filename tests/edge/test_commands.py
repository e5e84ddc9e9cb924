"""`hawker edge` where no node ever was."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from hawker.edge.commands import command
from hawker.errors import CannotStart


def test_a_directory_without_a_node_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="hawker up"):
        CliRunner().invoke(command, ["--data-dir", str(tmp_path)], catch_exceptions=False)
