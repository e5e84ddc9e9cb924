"""The call that asks where machines would find room."""

from hawker.api.bodies import Placements, PlacementsRequest
from hawker.api.route import NoParams, NoQuery, Tag, Unary

LIST_PLACEMENTS = Unary(
    name="list_placements",
    method="POST",
    path="/v1/platform/placements",
    params=NoParams,
    query=NoQuery,
    body=PlacementsRequest,
    response=Placements,
    tag=Tag.PLATFORM,
    summary="Count how many machines of a size have room, and where",
    strict=True,
    guarded=False,
)

PLACEMENT_ROUTES = (LIST_PLACEMENTS,)
