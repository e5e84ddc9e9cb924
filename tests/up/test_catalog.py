"""The token of an agent that keeps the catalog."""

from pathlib import Path

import pytest

from hawker.clock import ManualClock
from hawker.errors import CannotStart
from hawker.place import Place
from hawker.settings import Settings
from hawker.up.catalog import token_of_agent
from hawker.up.servers import open_doors


def test_it_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("abc\n")
    token = token_of_agent(file)
    assert token is not None and token.reveal() == "abc" and "abc" not in repr(token)
    assert token_of_agent(None) is None


@pytest.mark.parametrize("content", [b"", b"a\nb", b"\xff", "é".encode()])
def test_what_is_no_token_is_refused_and_not_shown(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(CannotStart, match="--catalog-token-file"):
        token_of_agent(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=r"cannot read .*/none"):
        token_of_agent(tmp_path / "none")


def test_a_token_without_an_agent_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, advertise="127.0.0.1", peer_port=1, catalog_token_file=tmp_path / "t")
    place = Place(tmp_path)
    with pytest.raises(CannotStart):
        open_doors(settings, place, ManualClock(), None, public=False)
    assert not list(tmp_path.iterdir())
