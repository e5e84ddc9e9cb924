import pytest

from hawker.api.contract.image import PullEvent, PullRequest
from hawker.api.in_process import InProcessCaller
from hawker.cli.images import pull, pull_if_missing
from hawker.clock import ManualClock
from hawker.errors import NotFound, NotServed, Unavailable
from tests.cli.fake_node import DIGEST, FakeNode, image

pytestmark = pytest.mark.anyio


def caller(node: FakeNode) -> InProcessCaller:
    return InProcessCaller(node.handlers(), ManualClock(), "tester")


async def test_a_pull_ends_with_the_images_digest() -> None:
    node = FakeNode()
    node.pull = (PullEvent(stage="resolving"), PullEvent(stage="done", digest=DIGEST))
    assert (await pull(caller(node), PullRequest(reference="web:3"))).digest == DIGEST


@pytest.mark.parametrize("events", [(), (PullEvent(stage="downloading", layer=DIGEST, done_bytes=1),)])
async def test_a_pull_that_breaks_off_is_an_error(events: tuple[PullEvent, ...]) -> None:
    node = FakeNode()
    node.pull = events
    with pytest.raises(Unavailable, match="ended without"):
        await pull(caller(node), PullRequest(reference="web:3"))


async def test_an_image_that_is_there_is_not_pulled() -> None:
    node = FakeNode()
    node.images = (image("web:3"),)
    await pull_if_missing(caller(node), "web:3")
    assert "pull_image" not in node.calls
    await pull_if_missing(caller(node), "web:4")
    assert "pull_image" in node.calls


async def test_a_driver_without_images_is_left_to_the_order() -> None:
    node = FakeNode()
    node.failures["list_images"] = NotServed("no images here")
    await pull_if_missing(caller(node), "web:3")


async def test_an_unknown_image_is_an_error() -> None:
    node = FakeNode()
    node.failures["pull_image"] = NotFound("no such image")
    with pytest.raises(NotFound):
        await pull_if_missing(caller(node), "web:3")
