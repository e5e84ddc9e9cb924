"""Planted holes, to show that a scene finds them: a node in which one wall is missing.

`python -m hawker.chaos.hostile.planted HOLE,HOLE HAWKER up ...` runs one.
"""

import runpy
import sys
from collections.abc import Sequence

import anyio

from hawker.fair.table import CHECKS
from hawker.fair.turns import Share, Turns
from hawker.flyfront import graphql
from hawker.fsm import runner
from hawker.host import egress
from hawker.http import incoming
from hawker.value_object import ValueObject
from hawker.worker import health, operations

_SLOTS = 3
_ENDLESS = 1 << 40
_AZURE = "168.63.129.16/32"


class PlantedHole(ValueObject, frozen=True):
    """`what` says in a sentence what is missing; `scene` is one that finds it. The attribute of `owner` has another
    value in such a node."""

    name: str
    """As `--plant` takes it."""
    what: str
    scene: str
    owner: object
    attribute: str
    """Its name."""
    value: object

    def plant(self) -> None:
        """Raises `AttributeError` where the wall has another name by now."""
        getattr(self.owner, self.attribute)
        setattr(self.owner, self.attribute, self.value)


class OnePool(Turns):
    """All have a few slots together, and nobody has any of their own."""

    def __init__(self, share: Share) -> None:
        own = Share(name=share.name, total=_SLOTS, each=_SLOTS, waiting=_ENDLESS, key="none", over=share.over)
        super().__init__(own)

    async def take(self, key: str) -> None:
        await super().take("all")

    def give_back(self, key: str) -> None:
        super().give_back("all")


_connections = OnePool(CHECKS)


async def _probe_in_one_pool(prober: health.NetworkProber, probe: health.Probe) -> health.ProbeResult:
    """The time in which it waits for a connection counts as the machine's."""
    with anyio.move_on_after(probe.timeout_s):
        async with _connections.hold("all"):
            return await prober._probe(probe)
    return health.ProbeResult(False, f"no answer within {probe.timeout_s:g} s")


def _ask_nothing(*_: object) -> None:
    return None


_all_but_azure = {network: source for network, source in egress.METADATA.items() if network != _AZURE}

HOLES = (
    PlantedHole(
        "unkeyed-pool", "pulls of all organizations wait in one queue", "a registry a byte at a time",
        runner, "Turns", OnePool,
    ),
    PlantedHole(
        "shared-connections", "checks of all apps share a few connections", "checks that get no answer",
        health.NetworkProber, "__call__", _probe_in_one_pool,
    ),
    PlantedHole(
        "missing-app-check", "a spare may name any app's machine", "a spare for a foreign machine",
        operations, "check_standbys", _ask_nothing,
    ),
    PlantedHole(
        "unbounded-head", "the head of a request has no limit", "a head of many headers",
        incoming, "HEAD_BYTES", _ENDLESS,
    ),
    PlantedHole(
        "unbounded-question", "a GraphQL operation may ask for the same field without end", "GraphQL bombs",
        graphql, "MAX_ALIKE", _ENDLESS,
    ),
    PlantedHole(
        "open-egress", "an address of a cloud's metadata is not withheld", "metadata of clouds",
        egress, "METADATA", _all_but_azure,
    ),
)  # fmt: skip


def before_it(names: Sequence[str]) -> tuple[str, ...]:
    """The command that runs a node with these holes in it; empty without any."""
    return (sys.executable, "-m", "hawker.chaos.hostile.planted", ",".join(names)) if names else ()


def main() -> None:
    names, *sys.argv = sys.argv[1:]
    for hole in HOLES:
        if hole.name in names.split(","):
            hole.plant()
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
