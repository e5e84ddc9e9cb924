import os
import subprocess
import sys

import pytest

from hawker.cli.exits import ExitStatus

_RUN = "import sys; from hawker.cli.entry import run; sys.exit(run())"


def _run(*words: str) -> tuple[int, str]:
    command = [sys.executable, "-c", _RUN, *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=90)
    return done.returncode, done.stderr


def test_status_of_the_command_is_the_status_of_the_process() -> None:
    assert _run("machine", "--help") == (0, "")
    status, said = _run("nothing")
    assert status == ExitStatus.USAGE and "nothing" in said


@pytest.mark.parametrize("columns", ["80", "200", "40"])
def test_page_of_help_is_what_the_tree_of_commands_says(columns: str) -> None:
    environment = {**os.environ, "COLUMNS": columns}
    begins = (_RUN, "import sys; from hawker.cli.main import main; sys.exit(main())")
    pages = [
        subprocess.run([sys.executable, "-c", code, "--help"], check=True, capture_output=True, env=environment).stdout
        for code in begins
    ]
    assert pages[0] == pages[1] and b"machine" in pages[0]


def test_page_of_help_imports_no_library() -> None:
    code = f"{_RUN.replace('sys.exit(run())', 'run()')}; print('click' in sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, "--help"], check=True, capture_output=True, text=True)
    assert done.stderr == "False\n"
