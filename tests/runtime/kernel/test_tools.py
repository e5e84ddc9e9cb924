from pathlib import Path

import pytest

from hawker.errors import CannotStart
from hawker.runtime.kernel.tools import MissingTool, complaint, find_tool, run_tool


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    return tmp_path


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(("tool", "package"), [("cpio", "cpio"), ("depmod", "kmod"), ("modinfo", "kmod")])
def test_missing_tool_is_named_with_its_debian_package(
    tool: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path: None)
    with pytest.raises(MissingTool, match=f"^{tool} is missing: install the Debian package {package}$"):
        find_tool(tool)


def test_tool_gets_its_input_its_directory_and_english(tools: Path, tmp_path: Path) -> None:
    script(tools / "cpio", 'echo "$LC_ALL $PWD $(cat) $1"')
    done = run_tool(["cpio", "-o"], given=b"names", directory=tmp_path)
    assert done.stdout == f"C {tmp_path} names -o\n".encode() and done.returncode == 0


def test_complaint_is_the_last_lines_or_the_exit_status(tools: Path) -> None:
    script(tools / "cpio", "for n in 1 2 3 4; do echo line $n >&2; done; echo W: warned >&2; exit 3")
    assert complaint(run_tool(["cpio"])) == "line 2; line 3; line 4"
    script(tools / "cpio", "exit 3")
    assert complaint(run_tool(["cpio"])) == "exit status 3"


def test_tool_that_hangs_is_ended_at_its_limit(tools: Path) -> None:
    script(tools / "cpio", "exec cat <>/dev/zero >/dev/null")
    with pytest.raises(CannotStart, match="cpio has not answered"):
        run_tool(["cpio"], timeout_s=0.1)


def test_tool_that_cannot_be_run_is_an_error(tools: Path) -> None:
    (tools / "cpio").write_text("#!/nowhere/interpreter\n")
    (tools / "cpio").chmod(0o755)
    with pytest.raises(CannotStart, match="cpio cannot be run: No such file"):
        run_tool(["cpio"])
