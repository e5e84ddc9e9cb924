"""Regions: what is known of the codes that clients of the Machines API use, and which region an order may go to.

A node's region may have any name; one that is not a known code has no place on the map and no alias but `any`.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from math import asin, cos, inf, radians, sin, sqrt

from hawker.value_object import ValueObject

_EARTH_KM = 6371.0


class Area(StrEnum):
    AFRICA = "africa"
    ASIA_PACIFIC = "asia_pacific"
    EUROPE = "europe"
    NORTH_AMERICA = "north_america"
    SOUTH_AMERICA = "south_america"


class Coordinates(ValueObject, frozen=True):
    """The place on the map of a code: that of the city's airport. Degrees, north and east."""

    name: str
    """City and country, for people."""
    latitude: float
    """Degrees to the north, -90 to 90."""
    longitude: float
    """Degrees to the east, -180 to 180."""
    area: Area
    usa: bool = False
    """The place lies in the United States."""


SPOTS: Mapping[str, Coordinates] = {
    "ams": Coordinates("Amsterdam, Netherlands", 52.37, 4.90, Area.EUROPE),
    "arn": Coordinates("Stockholm, Sweden", 59.33, 18.07, Area.EUROPE),
    "bom": Coordinates("Mumbai, India", 19.08, 72.88, Area.ASIA_PACIFIC),
    "cdg": Coordinates("Paris, France", 48.86, 2.35, Area.EUROPE),
    "dfw": Coordinates("Dallas, Texas (US)", 32.78, -96.80, Area.NORTH_AMERICA, usa=True),
    "ewr": Coordinates("Secaucus, NJ (US)", 40.79, -74.06, Area.NORTH_AMERICA, usa=True),
    "fra": Coordinates("Frankfurt, Germany", 50.11, 8.68, Area.EUROPE),
    "gru": Coordinates("Sao Paulo, Brazil", -23.55, -46.63, Area.SOUTH_AMERICA),
    "iad": Coordinates("Ashburn, Virginia (US)", 39.04, -77.49, Area.NORTH_AMERICA, usa=True),
    "jnb": Coordinates("Johannesburg, South Africa", -26.20, 28.05, Area.AFRICA),
    "lax": Coordinates("Los Angeles, California (US)", 34.05, -118.24, Area.NORTH_AMERICA, usa=True),
    "lhr": Coordinates("London, United Kingdom", 51.51, -0.13, Area.EUROPE),
    "mad": Coordinates("Madrid, Spain", 40.42, -3.70, Area.EUROPE),
    "nrt": Coordinates("Tokyo, Japan", 35.68, 139.69, Area.ASIA_PACIFIC),
    "ord": Coordinates("Chicago, Illinois (US)", 41.88, -87.63, Area.NORTH_AMERICA, usa=True),
    "sin": Coordinates("Singapore, Singapore", 1.35, 103.82, Area.ASIA_PACIFIC),
    "sjc": Coordinates("San Jose, California (US)", 37.34, -121.89, Area.NORTH_AMERICA, usa=True),
    "syd": Coordinates("Sydney, Australia", -33.87, 151.21, Area.ASIA_PACIFIC),
    "yyz": Coordinates("Toronto, Canada", 43.65, -79.38, Area.NORTH_AMERICA),
}

_AREAS = {
    "na": Area.NORTH_AMERICA,
    "sa": Area.SOUTH_AMERICA,
    "eu": Area.EUROPE,
    "apac": Area.ASIA_PACIFIC,
}


def accepts(expression: str | None, region: str) -> bool:
    """Whether a list of codes and aliases (contract 3.11) has `region` in it; an absent or empty one takes any."""
    return any(means(word.strip(), region) for word in (expression or "any").split(","))


def preference(expression: str | None, regions: Collection[str], own: str) -> Sequence[str]:
    """The regions of `regions` that an order may go to, best first: in the order of the list, and what an alias stands
    for by its distance from `own`, where the broker is. An absent list means `own`."""
    near = by_distance(own, regions)
    words = [word.strip() for word in (expression or own).split(",")]
    return tuple(dict.fromkeys(region for word in words for region in near if means(word, region)))


def by_distance(own: str, regions: Collection[str]) -> Sequence[str]:
    """The nearest first, `own` before all; those that are on no map last, by name."""
    return sorted(set(regions), key=lambda region: (region != own, distance_km(own, region), region))


def distance_km(one: str, other: str) -> float:
    """The kilometres between two regions along the surface (haversine); infinite where one of them is on no map."""
    if one == other:
        return 0.0
    a, b = SPOTS.get(one), SPOTS.get(other)
    if a is None or b is None:
        return inf
    south = sin(radians(b.latitude - a.latitude) / 2) ** 2
    east = sin(radians(b.longitude - a.longitude) / 2) ** 2
    return 2 * _EARTH_KM * asin(sqrt(south + cos(radians(a.latitude)) * cos(radians(b.latitude)) * east))


def means(word: str, region: str) -> bool:
    """Whether a word of such a list, in lower case, is this region or an alias of it. An empty word takes any."""
    if word in ("", "any", region):
        return True
    spot = SPOTS.get(region)
    return spot is not None and (_AREAS.get(word) is spot.area or (word in ("us", "usa") and spot.usa))
