"""Facts about crun's stage. That machines start on it: test_container and tests/e2e."""

import os
import stat
from pathlib import Path

import msgspec
import pytest

from hawker.host.mount import is_mounted, privately
from hawker.runtime.crun import STAGE, SYS, make_stage, staged
from hawker.runtime.spec import MountSpec
from tests.runtime.test_oci_bundle import SPEC


def test_every_source_has_a_place_on_the_stage_and_the_same_one_twice() -> None:
    volume = MountSpec(source="/data/volume", target="/a")
    spec = msgspec.structs.replace(SPEC, mounts=(volume, msgspec.structs.replace(volume, target="/b")))
    on_stage, pilot, stage = staged(spec, Path("/data/pilot"))
    places = [on_stage.rootfs, on_stage.mounts[0].source, str(pilot)]
    assert len(set(places)) == 3 and all(str(place).startswith(f"{STAGE}/") for place in places)
    assert on_stage.mounts[0].source == on_stage.mounts[1].source and len(stage.binds) == 3


def test_everybody_may_pass_the_stage_whatever_the_umask(tmp_path: Path) -> None:
    stage = tmp_path / "hawker" / "stage"
    before = os.umask(0o077)
    try:
        make_stage(stage)
        stage.chmod(0o700)  # as an older daemon left it
        make_stage(stage)
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (stage.parent, stage)] == [0o711, 0o711]


@pytest.mark.root
def test_the_stage_is_seen_by_who_prepares_it_alone(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "pilot").write_text("program")
    spec = msgspec.structs.replace(SPEC, rootfs=str(tmp_path / "root"), netns=None)
    _, pilot, stage = staged(spec, tmp_path / "pilot")
    make_stage()

    def look() -> tuple[str, bool]:
        stage.prepare()
        return pilot.read_text(), is_mounted(SYS)

    assert privately(look) == ("program", True)
    assert not is_mounted(STAGE) and list(STAGE.iterdir()) == []
