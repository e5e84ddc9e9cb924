"""`hawker scale`."""

from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode
from tests.cli.fake_releases import release


def test_a_count_is_a_deploy_of_the_newest_complete_release(hawker: Hawker, node: FakeNode) -> None:
    assert hawker("scale", "count", "3", "-a", "shop", "--group", "web").status == 0
    body = node.call("create_deploy").body
    assert (body.image, body.counts, body.skip_release_command) == ("registry.local/shop:2", {"web": 3}, True)


def test_an_app_that_was_never_deployed_cannot_be_scaled(hawker: Hawker, node: FakeNode) -> None:
    node.releases = ()
    said = hawker("scale", "count", "3", "-a", "shop")
    assert said.status == 3 and "deploy it first" in said.err


def test_a_count_that_is_no_number_is_refused_in_plain_words(hawker: Hawker) -> None:
    said = hawker("scale", "count", "abc", "-a", "shop")
    assert said.status == 2 and "'abc' is not a whole number" in said.err


def test_a_new_machine_has_the_image_that_the_others_have(hawker: Hawker, node: FakeNode) -> None:
    node.releases = (release(2, "complete", {}, pinned=True),)
    assert hawker("scale", "count", "3", "-a", "shop").status == 0
    assert node.call("create_deploy").body.image == f"registry.local/shop:2@sha256:{2:064d}"
