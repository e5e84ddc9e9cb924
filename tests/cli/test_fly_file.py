"""The app's file as a command finds it."""

from pathlib import Path

import pytest

from hawker.cli.exits import Failure
from hawker.cli.fly_file import MAX_LOCAL_BYTES, app_here, read_fly_file


def test_the_first_of_the_known_names_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("fly.yaml").write_text("app: second\n")
    assert read_fly_file(None).config.app == "second"
    Path("fly.json").write_text('{"app": "first"}')
    assert read_fly_file(None).config.app == "first"


def test_a_long_local_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "fly.toml").write_text("[[files]]\nguest_path = '/a'\nlocal_path = 'b'\n")
    (tmp_path / "b").write_bytes(b"x" * (MAX_LOCAL_BYTES + 1))
    with pytest.raises(Failure, match="longer than 1024 KiB"):
        read_fly_file(str(tmp_path / "fly.toml")).local_files()


@pytest.mark.parametrize(
    ("text", "app"),
    [("app = 'shop'\nnobody = 1\n", "shop"), ("[env]\nA = 1\n", None), ("app = 1\n", None), ("app = ", None)],
    ids=["named, with another error", "not named", "a number", "unreadable"],
)
def test_the_app_here_is_what_the_file_names(
    text: str, app: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert app_here() is None
    Path("fly.toml").write_text(text)
    assert app_here() == app
