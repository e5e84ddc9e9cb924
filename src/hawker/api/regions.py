"""Regions as the API shows them. Pure."""

from collections.abc import Iterable

from hawker.api.contract.node import Region, RegionList
from hawker.region import SPOTS


def region_of(code: str) -> Region:
    """One that is on no map is at 0, 0."""
    spot = SPOTS.get(code)
    return Region(
        code=code,
        name=spot.name if spot else code,
        latitude=spot.latitude if spot else 0.0,
        longitude=spot.longitude if spot else 0.0,
        gateway_available=True,
        requires_paid_plan=False,
        deprecated=False,
        geo_region=spot.area.value if spot else "",
    )


def region_list(codes: Iterable[str], nearest: str) -> RegionList:
    regions = tuple(map(region_of, sorted(set(codes))))
    return RegionList(regions=regions, nearest=nearest, Regions=regions, Nearest=nearest)
