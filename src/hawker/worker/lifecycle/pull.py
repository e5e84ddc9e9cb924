"""Flow `pull`: bring one image here. Its resource is the image's digest and where it comes from, so machines of one
image of an organization share one run, and nobody waits for a registry that another one named."""

import msgspec

from hawker.fsm.contract import Backoff, Done, Flow, Outcome, Resource, Step
from hawker.image.blobs import NODE, ImageReader
from hawker.image.manifest import Resolved
from hawker.image.registry import Credentials
from hawker.worker.lifecycle.deps import Context

IMAGE = "image"  # the kind of resource


class PullInput(msgspec.Struct, frozen=True, kw_only=True):
    """The image to fetch, pinned to a digest, with where it comes from, and the organization whose login it is fetched
    with; an input from before there were organizations is for the node."""

    image: Resolved
    org: str = NODE
    """The slug of the organization."""


async def fetch(context: Context[PullInput]) -> Outcome:
    """Have every layer here, each verified; what an earlier try downloaded is kept."""
    org, credentials = ImageReader(context.input.org), await _credentials(context)
    await context.deps.images.fetch(context.input.image, credentials, org=org)
    return Done()


async def build(context: Context[PullInput]) -> Outcome:
    """Unpack the layers into the block image that machines are started from."""
    org, credentials = ImageReader(context.input.org), await _credentials(context)
    await context.deps.images.build(context.input.image, org=org, credentials=credentials)
    return Done()


async def _credentials(context: Context[PullInput]) -> Credentials | None:
    image, org = context.input.image, context.input.org
    return await context.deps.logins.find(org, image.registry) if org and image.registry else None


def image_resource(image: Resolved, org: str) -> Resource:
    """The resource of an image. That of an upload, or of what comes with the program, is its digest alone."""
    source = f"@{image.registry}/{image.repository} for {org}" if image.registry else ""
    return Resource(kind=IMAGE, id=f"{image.digest}{source}")


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
