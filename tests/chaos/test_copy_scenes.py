from pathlib import Path

import pytest

from hawker.chaos import copy_scenes
from hawker.chaos.scenes import SCENES, declared
from hawker.ids import VolumeId


@pytest.mark.parametrize("flow", ["volume_snapshot", "volume_restore", "volume_fork"])
def test_each_flow_of_copies_has_a_scene_that_is_about_it(flow: str) -> None:
    places = {place for place in declared() if place.startswith(f"{flow}.")}
    about = {place for scene in SCENES if scene.flow == flow for place in places if scene.is_about(place)}
    assert about == places != set()


def test_a_damaged_volume_has_no_superblock_and_its_size(tmp_path: Path) -> None:
    directory = tmp_path / "node" / "volumes" / "vol_0000000000000001"
    directory.mkdir(parents=True)
    (directory / "disk").write_bytes(b"x" * 8192)
    copy_scenes._damage(tmp_path, VolumeId("vol_0000000000000001"))
    assert (directory / "disk").read_bytes() == bytes(4096) + b"x" * 4096
