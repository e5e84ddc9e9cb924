import os
import stat
from pathlib import Path

import pytest

from hawker.errors import CannotStart
from hawker.ids import NodeId
from hawker.place import Place


def test_the_directory_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    place = Place(tmp_path / "deep" / "data")
    place.make()
    assert stat.S_IMODE(place.root.stat().st_mode) == 0o700 and place.machines.is_dir()


def test_a_directory_that_cannot_be_made_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CannotStart, match="choose one with --data-dir"):
        Place(tmp_path / "file" / "data").make()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(CannotStart):
        Place(tmp_path).make()


def test_a_directory_has_one_holder_at_a_time(tmp_path: Path) -> None:
    with Place(tmp_path).held(), pytest.raises(CannotStart, match="in use by another hawker"), Place(tmp_path).held():
        pass
    with Place(tmp_path).held():
        pass


def test_a_node_is_remembered_by_its_directory(tmp_path: Path) -> None:
    place = Place(tmp_path)
    assert place.remembered() is None
    for _ in range(2):
        place.remember(NodeId("0badcafe"))
    assert Place(tmp_path).remembered() == "0badcafe"


@pytest.mark.parametrize("text", ["", "0badcaf", "0BADCAFE", "../../../etc", "0badcafe 1", "\0" * 8])
def test_a_text_that_is_no_nodes_id_is_not_believed(tmp_path: Path, text: str) -> None:
    place = Place(tmp_path)
    place.identity.write_text(text)
    assert place.remembered() is None


def test_the_address_is_announced_for_local_clients(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.announce("http://127.0.0.1:1")
    place.announce("http://127.0.0.1:2")
    assert place.address.read_text() == "http://127.0.0.1:2\n"
    assert [path.name for path in tmp_path.iterdir()] == ["address"]
    with place.held():
        pass
    assert place.address.exists()
    for _ in range(2):
        with place.held(withdraws=True):
            pass
        assert not list(tmp_path.iterdir())


def test_an_address_that_cannot_be_left_keeps_nobody_from_serving(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Place(tmp_path / "gone").announce("http://127.0.0.1:1")
    assert "cannot leave the address" in caplog.text
