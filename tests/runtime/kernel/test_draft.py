import os
import subprocess
import sys
from pathlib import Path

import pytest

from hawker.runtime.kernel import draft as drafts
from hawker.runtime.kernel.draft import draft, is_draft, put_directory, put_file, sweep


def listed(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def test_file_that_is_put_is_there_and_the_draft_is_not(tmp_path: Path) -> None:
    with draft(tmp_path) as work:
        assert is_draft(work.name) and listed(tmp_path) == [work.name]
        (work / "file").write_text("whole")
        (work / "left over").write_text("x")
        put_file(work / "file", tmp_path / "place")
    assert listed(tmp_path) == ["place"] and (tmp_path / "place").read_text() == "whole"


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), draft(tmp_path) as work:
        (work / "half").mkdir()
        raise RuntimeError
    assert listed(tmp_path) == []


def test_a_directory_is_put_once(tmp_path: Path) -> None:
    for content in ("first", "second"):
        with draft(tmp_path) as work:
            (work / "made/deep").mkdir(parents=True)
            (work / "made/deep/file").write_text(content)
            if content == "first":
                put_directory(work / "made", tmp_path / "place")
            else:
                with pytest.raises(OSError, match="not empty"):
                    put_directory(work / "made", tmp_path / "place")
    assert listed(tmp_path) == ["place"] and (tmp_path / "place/deep/file").read_text() == "first"


def test_a_draft_that_somebody_works_in_is_not_swept(tmp_path: Path) -> None:
    with draft(tmp_path) as first, draft(tmp_path) as second:
        sweep(tmp_path)
        assert listed(tmp_path) == sorted([first.name, second.name])


def test_draft_of_a_killed_process_is_swept_by_the_next(tmp_path: Path) -> None:
    code = (
        "import os, sys, pathlib\nfrom hawker.runtime.kernel.draft import draft\n"
        "with draft(pathlib.Path(sys.argv[1])) as work:\n"
        "    (work / 'half').write_text('x')\n    os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == -9 and len(listed(tmp_path)) == 1
    with draft(tmp_path) as work:
        assert listed(tmp_path) == [work.name]


def test_only_drafts_are_swept_and_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").write_text("x")
    (tmp_path / ".draft-link").symlink_to(tmp_path / "kept")
    sweep(tmp_path)
    assert (tmp_path / "kept/file").exists()


def test_a_draft_swept_before_it_was_locked_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its making and its locking it looks abandoned."""
    opened: list[Path] = []

    def swept_first(path: Path) -> int:
        if not opened:
            os.rmdir(path)
        opened.append(path)
        return os.open(path, os.O_RDONLY)

    monkeypatch.setattr(drafts, "_open", swept_first)
    with draft(tmp_path) as work:
        assert work.is_dir() and opened[0] != work == opened[1]
