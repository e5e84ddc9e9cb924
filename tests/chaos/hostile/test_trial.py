"""The scenes, and how a plan shares its time among them."""

from hawker.chaos.hostile.planted import HOLES
from hawker.chaos.hostile.stage import From
from hawker.chaos.hostile.trial import SCENES, HostilePlan


def test_every_scene_has_a_name_of_its_own() -> None:
    assert len({scene.name for scene in SCENES}) == len(SCENES)


def test_the_short_form_has_each_kind_of_attacker() -> None:
    scenes = HostilePlan(minutes=1.0, short=True).scenes
    assert {scene.by for scene in scenes} == {scene.by for scene in SCENES} - {From.PEER}


def test_a_plan_shares_its_minutes_among_its_scenes() -> None:
    [one] = HostilePlan(minutes=0.25, names=(SCENES[0].name,)).scenes
    assert one is SCENES[0]
    assert HostilePlan(minutes=0.25, names=(one.name,)).seconds == 10.0
    assert HostilePlan(minutes=0.1).seconds == 3.0
    assert HostilePlan(minutes=240).seconds == 30.0


def test_each_hole_has_its_scene() -> None:
    names = {scene.name for scene in SCENES}
    assert all(hole.scene in names for hole in HOLES)
