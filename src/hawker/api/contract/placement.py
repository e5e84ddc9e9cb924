"""Bodies about where machines would find room."""

from hawker.api.contract.body import Answer, Request
from hawker.api.route import NoParams, Tag, Unary
from hawker.config.machine import Guest


class PlacementsRequest(Request, frozen=True, kw_only=True):
    """`count` 0 asks how many would fit. `weights` maps `region` and `spread` to how much they matter."""

    org_slug: str
    compute: Guest | None = None
    region: str | None = None
    count: int | None = None
    volume_name: str | None = None
    volume_size_bytes: int | None = None
    weights: dict[str, int] | None = None


class RegionPlacement(Answer, frozen=True, kw_only=True):
    """`count` machines would fit; `concurrency` of them could be ordered at once. Each key in both spellings: the
    document's and the live API's."""

    region: str
    count: int
    concurrency: int
    Region: str
    Count: int
    Concurrency: int


class Placements(Answer, frozen=True, kw_only=True):
    """The best region first."""

    regions: tuple[RegionPlacement, ...]
    Regions: tuple[RegionPlacement, ...]


# The call that asks where machines would find room.

LIST_PLACEMENTS = Unary(
    name="list_placements",
    method="POST",
    path="/v1/platform/placements",
    params=NoParams,
    body=PlacementsRequest,
    response=Placements,
    tag=Tag.PLATFORM,
    summary="Count how many machines of a size have room, and where",
    strict=True,
    guarded=False,
)

PLACEMENT_ROUTES = (LIST_PLACEMENTS,)
