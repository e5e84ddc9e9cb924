import os
import subprocess
import sys

import pytest

from hawker.cli.commands.completion import SHELLS
from hawker.cli.exits import ExitStatus
from tests.cli.conftest import Hawker


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_its_code(hawker: Hawker, shell: str) -> None:
    said = hawker("completion", shell)
    assert said.status == ExitStatus.OK
    assert f"_HAWKER_COMPLETE={shell}_complete" in said.out


def completed(*words: str) -> list[str]:
    """What bash is offered for the last of the words."""
    environ = {
        **os.environ,
        "_HAWKER_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("hawker", *words)),
        "COMP_CWORD": str(len(words)),
    }
    code = "from hawker.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, check=True, capture_output=True, text=True, timeout=90
    )
    return [line.split(",")[1] for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("ma",), ["machine"]),
        (("machine", "cl"), ["clone"]),
        (("apps", "s"), ["show"]),
        (("machine", "run", "--env-"), ["--env-file"]),
        (("machine", "wait", "--state", "sett"), ["settled"]),
    ],
)
def test_commands_options_and_values_are_completed(words: tuple[str, ...], offered: list[str]) -> None:
    assert completed(*words) == offered
