"""A planted bug: a kit of parts of which one is wrong, to show that a simulator finds it."""

from collections.abc import Iterable
from typing import Generic, TypeVar

from hawker.proof.violation import Invariant
from hawker.value_object import ValueObject

K = TypeVar("K")


class PlantedBug(ValueObject, Generic[K], frozen=True, kw_only=True):
    """`what` says in a sentence what is wrong. `breaks` are the invariants of which a finding must be one; none where
    any finding will do."""

    name: str
    """As `--plant` takes it."""
    what: str
    kit: K
    breaks: frozenset[Invariant] = frozenset()


def kit_of(plants: Iterable[PlantedBug[K]], name: str | None, sound: K) -> K:
    """The kit with the bug of that name in it; `sound` without a name. Raises `KeyError` for a name that none has."""
    return sound if name is None else {plant.name: plant.kit for plant in plants}[name]
