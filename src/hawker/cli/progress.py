"""The progress of what takes long, for the person who waits: a bar per layer of a pull on a terminal, two lines
elsewhere; what is being done to a volume."""

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from hawker.api.caller import Caller
from hawker.api.contract.image import LIST_IMAGES, PULL_IMAGE, PUSH_IMAGE, PullEvent, PullRequest, PushRequest
from hawker.cli.output import note
from hawker.errors import BadRequest, Forbidden, NotServed, Unavailable

_SHOWN = 12  # of a digest


class PullDisplay:
    """Says nothing until bytes are fetched or unpacked: an image that is there already needs no words."""

    def __init__(self, reference: str, progress: Progress, verb: str = "pull") -> None:
        self._reference = reference
        self._verb = verb
        self._progress = progress
        self._bars: dict[str, TaskID] = {}
        self._said = False

    def show(self, event: PullEvent) -> None:
        if event.stage in ("downloading", "unpacking", "building", "uploading"):
            self._announce()
            if event.layer is not None or event.stage != "downloading":  # each layer has a bar of its own
                self._bar(event)

    def done(self) -> None:
        if self._said:
            self._progress.stop()
            note(f"{self._verb}ed {self._reference}")

    def _announce(self) -> None:
        if not self._said:
            self._said = True
            note(f"{self._verb}ing {self._reference}")
            self._progress.start()

    def _bar(self, event: PullEvent) -> None:
        name = layer_name(event)
        if name not in self._bars:
            self._bars[name] = self._progress.add_task(name, total=event.total_bytes or None)
        total = event.total_bytes or None
        self._progress.update(self._bars[name], completed=event.done_bytes, total=total)


def layer_name(event: PullEvent) -> str:
    """What a bar is called: the beginning of a layer's digest, or what is done to the whole image."""
    if event.layer is None:
        return event.stage
    return event.layer.removeprefix("sha256:")[:_SHOWN]


def _progress() -> Progress:
    """Silent where there is no terminal."""
    console = Console(file=sys.stderr)
    columns = (TextColumn("{task.description:12}"), BarColumn(), DownloadColumn(binary_units=True))
    return Progress(*columns, TransferSpeedColumn(), console=console, disable=not console.is_terminal)


@contextmanager
def pull_display(reference: str, verb: str = "pull") -> Iterator[PullDisplay]:
    progress = _progress()
    try:
        yield PullDisplay(reference, progress, verb)
    finally:
        progress.stop()


@contextmanager
def upload_display(name: str, total_bytes: int | None) -> Iterator[Callable[[int], None]]:
    """Yields what to call with the number of bytes that were sent."""
    with _progress() as progress:
        bar = progress.add_task(name, total=total_bytes)
        yield lambda count: progress.advance(bar, count)


@contextmanager
def states_display(name: str) -> Iterator[Callable[[str], None]]:
    """Yields what to call with the state that something is in now, as often as one likes: shown with a spinner on a
    terminal, said once each elsewhere."""
    console = Console(file=sys.stderr)
    if console.is_terminal:
        with console.status(name) as status:
            yield lambda state: status.update(f"{name}: {state}")
        return
    said: list[str] = []

    def say(state: str) -> None:
        if said[-1:] != [state]:
            said.append(state)
            note(f"{name}: {state}")

    yield say


# Pulling an image while its progress is shown, and only if the node does not have it.


async def pull(caller: Caller, order: PullRequest) -> PullEvent:
    """The last event, which has the image's digest."""
    with pull_display(order.reference) as display:
        async with caller.stream(PULL_IMAGE, body=order) as events:
            return await _shown(events, display)


async def push(caller: Caller, order: PushRequest) -> PullEvent:
    """The last event, which has the image's digest."""
    with pull_display(order.to or order.reference, "push") as display:
        async with caller.stream(PUSH_IMAGE, body=order) as events:
            return await _shown(events, display)


async def _shown(events: AsyncIterator[PullEvent], display: PullDisplay) -> PullEvent:
    last: PullEvent | None = None
    async for last in events:
        display.show(last)
    if last is None or last.digest is None:
        raise Unavailable("the call ended without the image")
    display.done()
    return last


async def pull_if_missing(caller: Caller, reference: str, app: str) -> None:
    """So that the person who orders a machine sees what takes long. The order itself pulls what is missing, too, maybe
    at another node, and says what is wrong with the image."""
    try:
        images = await caller.call(LIST_IMAGES)
        if not any(reference in image.references for image in images.images):
            await pull(caller, PullRequest(reference=reference, app=app))
    except (NotServed, BadRequest, Forbidden):
        return  # a driver that runs no images, nothing to be had from here, or a token that does not see the node's
