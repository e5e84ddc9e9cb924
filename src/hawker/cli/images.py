"""Pulling an image while its progress is shown, and only if the node does not have it."""

from hawker.api.caller import Caller
from hawker.api.contract.image import LIST_IMAGES, PULL_IMAGE, PullEvent, PullRequest
from hawker.cli.progress import pull_display
from hawker.errors import NotServed, Unavailable


async def pull(caller: Caller, order: PullRequest) -> PullEvent:
    """The last event, which has the image's digest."""
    last: PullEvent | None = None
    with pull_display(order.reference) as display:
        async with caller.stream(PULL_IMAGE, body=order) as events:
            async for last in events:
                display.show(last)
        if last is None or last.digest is None:
            raise Unavailable("the pull ended without the image")
        display.done()
    return last


async def pull_if_missing(caller: Caller, reference: str) -> None:
    """So that the person who orders a machine sees what takes long. The order itself pulls what is missing, too."""
    try:
        images = await caller.call(LIST_IMAGES)
        if not any(reference in image.references for image in images.images):
            await pull(caller, PullRequest(reference=reference))
    except NotServed:
        return  # a driver that runs no images
