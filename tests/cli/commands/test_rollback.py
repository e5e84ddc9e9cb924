"""`hawker rollback`."""

import pytest

from hawker.cli.commands.rollback import chosen
from hawker.cli.exits import Failure
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode
from tests.cli.fake_releases import release

SOME: dict[str, str] = {}


def test_after_a_failed_release_the_newest_complete_one_comes_back_whole(hawker: Hawker, node: FakeNode) -> None:
    assert hawker("rollback", "-a", "shop").status == 0
    body = node.call("create_deploy").body
    assert body.image == "registry.local/shop:2" and (body.definition or {})["env"] == {"A": "2"}
    assert body.skip_release_command and body.label == "rollback to release 2"
    assert body.strategy == "immediate"
    assert hawker("rollback", "-a", "shop", "--strategy", "canary").status == 0
    assert node.calls["create_deploy"][-1].body.strategy == "canary"


@pytest.mark.parametrize(
    ("statuses", "wanted", "version"),
    [
        (("complete", "complete"), None, 1),
        (("rolled_back", "complete", "complete"), None, 1),
        (("failed", "complete", "complete"), None, 2),
        (("interrupted", "complete"), None, 1),
        (("complete", "complete", "complete"), "v1", 1),
    ],
)
def test_the_release_to_come_back_to(statuses: tuple[str, ...], wanted: str | None, version: int) -> None:
    newest = len(statuses)
    releases = tuple(release(newest - index, status, SOME) for index, status in enumerate(statuses))
    assert chosen("shop", releases, wanted).version == version


@pytest.mark.parametrize("wanted", [None, "7", "2"])
def test_an_app_may_have_nothing_to_come_back_to(wanted: str | None) -> None:
    releases = (release(3, "complete", SOME), release(2, "failed", SOME), release(1, "complete"))
    with pytest.raises(Failure, match="has no"):
        chosen("shop", releases, wanted)


def test_the_image_that_comes_back_is_the_one_that_its_tag_meant_then(hawker: Hawker, node: FakeNode) -> None:
    node.releases = (release(3, "failed", SOME), release(2, "complete", SOME, pinned=True))
    assert hawker("rollback", "-a", "shop").status == 0
    assert node.call("create_deploy").body.image == f"registry.local/shop:2@sha256:{2:064d}"
