"""Bodies about the images that a node holds."""

from datetime import datetime

from hawker.api.bodies.body import Answer, Request


class ImageInfo(Answer, frozen=True, kw_only=True):
    """An image on the node. `references` are the names it was pulled by; `machines` how many use it."""

    digest: str
    references: tuple[str, ...]
    size_bytes: int
    layers: int
    machines: int
    pulled_at: datetime
    used_at: datetime | None = None


class ImageList(Answer, frozen=True, kw_only=True):
    images: tuple[ImageInfo, ...]


class PullRequest(Request, frozen=True, kw_only=True):
    reference: str
    username: str | None = None
    password: str | None = None


class PullEvent(Answer, frozen=True, kw_only=True):
    """Progress of a pull. `stage` is resolving, downloading, unpacking or done; bytes are of `layer`, or of the whole
    image when there is none. The last event has the image's `digest`."""

    stage: str
    layer: str | None = None
    done_bytes: int = 0
    total_bytes: int = 0
    digest: str | None = None


class PruneRequest(Request, frozen=True, kw_only=True):
    """Remove what no machine uses, or with `unused_for_s` only what was not used for so long."""

    unused_for_s: float | None = None


class PruneAnswer(Answer, frozen=True, kw_only=True):
    removed: tuple[str, ...]
    freed_bytes: int
