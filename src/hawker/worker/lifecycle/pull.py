"""Flow `pull`: bring one image here. Its resource is the image's digest, so machines of one image share one run."""

import msgspec

from hawker.fsm.contract import Backoff, Done, Flow, Outcome, Resource, Step
from hawker.ids import Digest
from hawker.image.resolve import Resolved
from hawker.worker.lifecycle.deps import Context

IMAGE = "image"  # the kind of resource


class PullInput(msgspec.Struct, frozen=True, kw_only=True):
    """What to fetch, pinned to a digest, and where from."""

    image: Resolved


async def fetch(context: Context[PullInput]) -> Outcome:
    """Have every layer here, each verified; what an earlier try downloaded is kept."""
    await context.deps.images.fetch(context.input.image)
    return Done()


async def build(context: Context[PullInput]) -> Outcome:
    """Unpack the layers into the block image that machines are started from."""
    await context.deps.images.build(context.input.image)
    return Done()


def image_resource(digest: Digest) -> Resource:
    return Resource(kind=IMAGE, id=digest)


_FETCH = Backoff(attempts=4, first_s=0.5)
_FETCHED = ("written", "verified", "kept")

PULL = Flow(
    name="pull",
    input=PullInput,
    steps=(
        Step("fetch", fetch, timeout_s=1800, queue="pulls", backoff=_FETCH, points=_FETCHED),
        Step("build", build, timeout_s=900, queue="pulls", points=("staged", "made", "placed", "shelved")),
    ),
)
