"""What can befall a deploy in a trial, and how it may end after that. Pure."""

from enum import StrEnum

from hawker.deploys.releases import ReleaseStatus
from hawker.value_object import ValueObject

UPDATES = "update."
CREATES = "create."
_COMPLETE = frozenset({ReleaseStatus.COMPLETE})
_BACK = frozenset({ReleaseStatus.ROLLED_BACK})


class BlowKind(StrEnum):
    """`client`: who ordered it is killed. `driver`: the daemon that coordinates it is; `driver_host`: its host loses
    its power. `voters`: the daemons of the two other voters are killed, one after the other. `edge`: an edge process
    is killed. `region`: a region is parted from the others. `pause`: it is paused, then the driver's daemon is killed,
    then it is resumed. `abort`: it is aborted, then the driver's daemon is killed. `bad`: no machine of its release
    passes its checks. `bad_driver`: likewise, and the driver's host loses its power while it goes back. `place`: a node
    with a machine of the app dies at a place of the flow that changes it."""

    NONE = "none"
    CLIENT = "client killed"
    DRIVER = "driver's daemon killed"
    DRIVER_HOST = "driver's host without power"
    VOTERS = "two voters' daemons killed"
    EDGE = "edge process killed"
    REGION = "region parted"
    PAUSE = "paused, driver's daemon killed, resumed"
    ABORT = "aborted, driver's daemon killed"
    BAD = "bad release"
    BAD_DRIVER = "bad release, driver's host without power"
    PLACE = "a machine's node"

    @property
    def ends(self) -> frozenset[ReleaseStatus]:
        """How the deploy may end. Where hosts are away, it may go on without them or go back."""
        if self in (BlowKind.ABORT, BlowKind.BAD, BlowKind.BAD_DRIVER):
            return _BACK
        return _COMPLETE | _BACK if self in (BlowKind.DRIVER_HOST, BlowKind.REGION) else _COMPLETE

    @property
    def is_bad(self) -> bool:
        return self in (BlowKind.BAD, BlowKind.BAD_DRIVER)


class TrialBlow(ValueObject, frozen=True):
    """`place` is where the node dies, for a blow of that kind."""

    strategy: str
    """Of the deploy that gets it: `rolling`, `canary` and so on."""
    kind: BlowKind
    place: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value} dies at {self.place}" if self.place else self.kind.value


WHOLE = tuple(kind for kind in BlowKind if kind is not BlowKind.PLACE)
"""Every kind of blow that names no place."""
