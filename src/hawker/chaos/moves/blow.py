"""What a trial of moves is to do: how each move is ordered, who dies at which of its places, and when a link is cut.
Pure.
"""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from hawker.record.move import MoveState
from hawker.value_object import ValueObject

NEVER_ACCEPTED = ("move.accept.before", "scheduled_move.accept.before")
_FLOWS = ("move.", "deliver.", "receive.")
_AT_DESTINATION = ("receive.", "bring_snapshots.", "surrender.")


class MoveKind(StrEnum):
    """`SCHEDULED` is ordered for a time that has come; `FOLLOWED` has a snapshot of the volume that follows it; after
    `BACK` the machine does not start at its destination, and goes back; after `RECLAIMED` the destination is lost, the
    source takes the machine back, and the lost one returns."""

    PLAIN = "plain"
    SCHEDULED = "scheduled"
    FOLLOWED = "followed"
    BACK = "back"
    RECLAIMED = "reclaimed"


_ABOUT = {
    MoveKind.PLAIN: _FLOWS,
    MoveKind.SCHEDULED: ("scheduled_move.",),
    MoveKind.FOLLOWED: ("bring_snapshots.",),
    MoveKind.BACK: _FLOWS,
    MoveKind.RECLAIMED: ("reclaim.", "surrender."),
}
MOVE_FLOWS = tuple(sorted({place.removesuffix(".") for places in _ABOUT.values() for place in places}))
"""At the places of which daemons die."""


class OrderedMove(ValueObject, frozen=True):
    """How a move is ordered: at `cancel_at` its client cancels it."""

    mode: str
    """`warm`, `cold` or `auto`."""
    cancel_at: MoveState | None = None
    kind: MoveKind = MoveKind.PLAIN

    @property
    def name(self) -> str:
        told = self.mode if self.kind is MoveKind.PLAIN else f"{self.mode}, {self.kind}"
        return told if self.cancel_at is None else f"{told}, cancelled"

    @property
    def goes_back(self) -> bool:
        return self.kind is MoveKind.BACK

    @property
    def is_reclaimed(self) -> bool:
        return self.kind is MoveKind.RECLAIMED

    def has_one_of(self, places: Sequence[str]) -> bool:
        """Whether it may come by a place that begins so."""
        return any(each.startswith(own) or own.startswith(each) for own in _ABOUT[self.kind] for each in places)

    def about(self, met: Sequence[str], narrowed: tuple[str, ...]) -> list[str]:
        """Of the places that its nodes came by, those at which one is to die, each once."""
        undoing = self.cancel_at is not None
        kept = [each for each in met if each.startswith(_ABOUT[self.kind]) and each.startswith(narrowed or ("",))]
        return list(dict.fromkeys(each for each in kept if (".undo" in each) is undoing))


class Blow(ValueObject, frozen=True):
    """A daemon that dies at `place`, or a link that is cut for `cut_s` once the move has got to `cut_at`, or both: then
    the link is cut while the daemon is away. With `both` the daemon of the other end dies with it."""

    move: OrderedMove
    place: str = ""
    cut_s: float = 0.0
    cut_at: MoveState | None = None
    both: bool = False

    @property
    def at_destination(self) -> bool:
        """Of the move that was ordered. One that goes back has its ends the other way round."""
        return self.place.startswith(_AT_DESTINATION) is not (self.move.goes_back and bool(self.place))

    def __str__(self) -> str:
        cut = f"cut {self.cut_s:g} s" + (f" at {self.cut_at}" if self.cut_at else "")
        told = [self.place, "both" if self.both else "", cut if self.cut_s else ""]
        return ", ".join(filter(None, told)) or "none"


class MoveTrialPlan(ValueObject, frozen=True, kw_only=True):
    """`workload` is ledger, root, blocks, git or database. `modes` are those of moves; `places` narrows to those that
    begin with one of these. `cancels`: moves are cancelled, too, for the places of their undos. `kinds` are played
    beside plain moves, in the first mode. `both`: at each place both daemons die."""

    workload: str = "ledger"
    modes: tuple[str, ...] = ("warm", "cold")
    places: tuple[str, ...] = ()
    cancels: bool = True
    kinds: tuple[MoveKind, ...] = ()
    both: bool = False
    cuts: tuple[Blow, ...] = ()
    where: Path | None = None

    def moves(self) -> list[OrderedMove]:
        found = [OrderedMove(mode) for mode in self.modes]
        if self.cancels and "warm" in self.modes:
            found.append(OrderedMove("warm", MoveState.WARMING))
        if self.cancels and "cold" in self.modes:
            found.append(OrderedMove("cold", MoveState.COPYING))
        found += [OrderedMove(self.modes[0], kind=kind) for kind in self.kinds]
        return [move for move in found if not self.places or move.has_one_of(self.places)]


CUTS = (
    Blow(OrderedMove("warm"), cut_s=3, cut_at=MoveState.PREPARING),
    Blow(OrderedMove("warm"), cut_s=3, cut_at=MoveState.WARMING),
    Blow(OrderedMove("warm"), "move.close.after", cut_s=3),
    Blow(OrderedMove("warm"), "move.grant.after", cut_s=5),
    Blow(OrderedMove("cold"), cut_s=3, cut_at=MoveState.COPYING),
    Blow(OrderedMove("cold"), cut_s=45, cut_at=MoveState.COPYING),
)
"""The last is longer than a machine stays off for a destination that is silent: it starts where it was."""
