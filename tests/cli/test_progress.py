from io import StringIO

import pytest
from rich.console import Console
from rich.progress import Progress

from hawker.api.contract.image import PullEvent, PullRequest
from hawker.api.in_process import InProcessCaller
from hawker.cli.progress import (
    PullDisplay,
    layer_name,
    pull,
    pull_display,
    pull_if_missing,
    states_display,
    upload_display,
)
from hawker.clock import ManualClock
from hawker.errors import Forbidden, NotFound, NotServed, Unavailable
from tests.cli.fake_node import DIGEST, FakeNode, image

LAYER = "sha256:" + "0123456789abcdef" * 4


def loading(layer: str | None, done: int, total: int = 100) -> PullEvent:
    return PullEvent(stage="downloading", layer=layer, done_bytes=done, total_bytes=total)


def test_each_layer_has_a_bar_of_its_own() -> None:
    console = Console(file=StringIO(), force_terminal=True, width=120)
    progress = Progress(console=console, auto_refresh=False)
    display = PullDisplay("web:3", progress)
    for event in (
        PullEvent(stage="resolving"),
        loading(None, 3),
        loading(LAYER, 10),
        loading("sha256:ff", 5),
        loading(LAYER, 90),
        PullEvent(stage="unpacking", done_bytes=7),
        PullEvent(stage="building", done_bytes=9, total_bytes=10),
        PullEvent(stage="done", digest=LAYER),
    ):
        display.show(event)
    display.done()
    bars = [(task.description, task.completed, task.total) for task in progress.tasks]
    assert bars == [("0123456789ab", 90, 100), ("ff", 5, 100), ("unpacking", 7, None), ("building", 9, 10)]


def test_without_a_terminal_there_are_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with pull_display("web:3") as display:
        display.show(loading(LAYER, 10))
        display.show(loading(LAYER, 100))
        display.done()
    assert capsys.readouterr() == ("", "pulling web:3\npulled web:3\n")


def test_an_image_that_is_there_needs_no_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pull_display("web:3") as display:
        display.show(PullEvent(stage="resolving"))
        display.show(PullEvent(stage="done", digest=LAYER))
        display.done()
    assert capsys.readouterr() == ("", "")


def test_a_bar_is_called_by_its_layer_or_by_what_is_done() -> None:
    assert layer_name(loading(LAYER, 1)) == "0123456789ab"
    assert layer_name(loading(None, 1)) == "downloading"


def test_an_upload_without_a_terminal_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with upload_display("web.tar", 10) as sent:
        sent(10)
    assert capsys.readouterr().err.strip() == ""


def test_without_a_terminal_each_state_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    with states_display("volume vol_1") as say:
        for state in ("creating", "creating", "restoring"):
            say(state)
    assert capsys.readouterr() == ("", "volume vol_1: creating\nvolume vol_1: restoring\n")


def test_an_answer_at_once_needs_no_words(capsys: pytest.CaptureFixture[str]) -> None:
    with states_display("volume vol_1"):
        pass
    assert capsys.readouterr() == ("", "")


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
    await pull_if_missing(caller(node), "web:3", "shop")
    assert "pull_image" not in node.calls
    await pull_if_missing(caller(node), "web:4", "shop")
    assert "pull_image" in node.calls


async def test_a_driver_without_images_is_left_to_the_order() -> None:
    node = FakeNode()
    node.failures["list_images"] = NotServed("no images here")
    await pull_if_missing(caller(node), "web:3", "shop")


async def test_a_token_that_sees_no_images_leaves_them_to_the_order() -> None:
    node = FakeNode()
    node.failures["list_images"] = Forbidden("this token does not allow r on the node")
    await pull_if_missing(caller(node), "web:3", "shop")


async def test_an_unknown_image_is_an_error() -> None:
    node = FakeNode()
    node.failures["pull_image"] = NotFound("no such image")
    with pytest.raises(NotFound):
        await pull_if_missing(caller(node), "web:3", "shop")
