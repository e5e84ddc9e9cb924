"""Where a machine wants to be, as its metadata says it: node labels, driver, spread. Pure.

In the metadata, because any client can set it there, and a machine that is moved to another host takes it along. It is
read when a machine is placed; changing it moves nothing.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from hawker.config.machine import MachineConfig
from hawker.errors import Unprocessable
from hawker.value_object import ValueObject

LABELS, DRIVER, SPREAD = "hawker_labels", "hawker_driver", "hawker_spread"
APART_FROM = "hawker_apart_from"


class Spread(StrEnum):
    """The distance that the machines of one app keep from each other: none, as far as it costs little (the usual), or
    never two on one node."""

    OFF = "off"
    SOFT = "soft"
    HARD = "hard"


class Placement(ValueObject, frozen=True, kw_only=True):
    """`labels` are all to be there; without a `driver` any will do."""

    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    driver: str | None = None
    spread: Spread = Spread.SOFT

    def metadata(self) -> dict[str, str]:
        """The metadata that says the same in a config."""
        said = {LABELS: ",".join(f"{key}={value}" for key, value in self.labels.items()), DRIVER: self.driver or ""}
        said[SPREAD] = "" if self.spread is Spread.SOFT else self.spread.value
        return {key: value for key, value in said.items() if value}


def placement_of(config: MachineConfig) -> Placement:
    """The placement that a config's metadata asks for. Raises `Unprocessable` naming the key."""
    metadata = config.metadata or {}
    try:
        spread = Spread(metadata.get(SPREAD) or Spread.SOFT)
    except ValueError as error:
        known = ", ".join(Spread)
        raise Unprocessable(f"config.metadata.{SPREAD}: {metadata[SPREAD]!r:.80} is not one of {known}") from error
    return Placement(labels=parse_labels(metadata.get(LABELS, "")), driver=metadata.get(DRIVER) or None, spread=spread)


def apart_from(config: MachineConfig) -> tuple[str, ...]:
    """Ids of machines on whose nodes it is not to be, now."""
    ids = (each.strip() for each in (config.metadata or {}).get(APART_FROM, "").split(","))
    return tuple(filter(None, ids))


def parse_labels(text: str) -> dict[str, str]:
    """The labels of a text "KEY=VALUE,KEY=VALUE". Raises `Unprocessable`."""
    found: dict[str, str] = {}
    for pair in filter(None, (each.strip() for each in text.split(","))):
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise Unprocessable(f"config.metadata.{LABELS}: {pair!r:.80} is not KEY=VALUE")
        found[key] = value
    return found


def lacking(wanted: Mapping[str, str], there: Mapping[str, str]) -> str | None:
    """The first label that is not as it is wanted, as KEY=VALUE."""
    for key, value in wanted.items():
        if there.get(key) != value:
            return f"{key}={value}"
    return None
