import os
from pathlib import Path

import pytest

from hawker.cli.access import Access
from hawker.cli.target import find_node
from hawker.errors import Unauthorized, Unavailable


def test_a_token_is_not_shown_by_accident() -> None:
    assert "hunter2" not in repr(Access("http://x", "hunter2"))


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    (tmp_path / "address").write_text("http://127.0.0.1:4280\n")
    (tmp_path / "token").write_text("local\n")
    return tmp_path


def found(access: Access, **environ: str | Path) -> tuple[str, str | None]:
    target = find_node(access, {name: str(value) for name, value in environ.items()})
    return target.url, target.token.reveal() if target.token else None


def test_the_local_node_is_found_by_its_files(data_dir: Path) -> None:
    assert found(Access(), HAWKER_DATA_DIR=data_dir) == ("http://127.0.0.1:4280", "local")


def test_variables_win_over_the_local_node_and_flags_over_variables(data_dir: Path) -> None:
    variables: dict[str, str | Path] = {
        "HAWKER_DATA_DIR": data_dir,
        "HAWKER_URL": "http://other",
        "HAWKER_TOKEN": "theirs",
    }
    assert found(Access(), **variables) == ("http://other", "theirs")
    assert found(Access("http://third", "mine"), **variables) == ("http://third", "mine")


def test_the_local_token_is_sent_to_no_other_address(data_dir: Path) -> None:
    assert found(Access("http://other"), HAWKER_DATA_DIR=data_dir) == ("http://other", None)
    assert found(Access("http://127.0.0.1:4280/"), HAWKER_DATA_DIR=data_dir)[1] == "local"


def test_a_token_alone_goes_to_the_local_node(data_dir: Path) -> None:
    assert found(Access(), HAWKER_DATA_DIR=data_dir, HAWKER_TOKEN="mine") == ("http://127.0.0.1:4280", "mine")


def test_without_a_node_it_is_said_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="start a node with `hawker up`"):
        found(Access(), HAWKER_DATA_DIR=tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_another_users_token_is_a_matter_of_rights(data_dir: Path) -> None:
    (data_dir / "token").chmod(0)
    with pytest.raises(Unauthorized, match="another user's"):
        found(Access(), HAWKER_DATA_DIR=data_dir)
