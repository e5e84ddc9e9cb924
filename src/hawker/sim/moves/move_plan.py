"""What happens in a run of moves, drawn from its seed: machines with volumes write and move between three hosts while
daemons are killed, the power fails, calls are lost or late, links are cut, disks lie and nodes refuse.
"""

from enum import StrEnum

from hawker.sim.harness.plan import Chance, RunOperation, RunPlan, numbered
from hawker.sim.harness.seeded_run import drawn

HOSTS = 3
RUN_S = 240.0
DARK_FROM = 20.0  # of the amount of an ambush: longer ones take the power, too
DROPS = "drop"  # the word of a move for which the machine loses its memory
_ACTOR = "world"


class MoveVerb(StrEnum):
    MOVE = "move"
    MOVE_VOLUME = "move_volume"
    CANCEL = "cancel"
    KILL = "kill"
    POWER = "power"
    BOOT = "boot"
    CUT = "cut"
    HEAL = "heal"
    LATE = "late"
    LOSE = "lose"
    SPOIL = "spoil"
    REFUSE = "refuse"
    AMBUSH = "ambush"
    RECLAIM = "reclaim"
    AGE = "age"
    DUD = "dud"
    SUSPEND = "suspend"
    START = "start"


_WEIGHTS = {
    MoveVerb.MOVE: 10.0,
    MoveVerb.MOVE_VOLUME: 4.0,
    MoveVerb.CANCEL: 2.0,
    MoveVerb.KILL: 4.0,
    MoveVerb.POWER: 3.0,
    MoveVerb.CUT: 2.0,
    MoveVerb.LATE: 4.0,
    MoveVerb.LOSE: 2.0,
    MoveVerb.SPOIL: 2.0,
    MoveVerb.REFUSE: 2.0,
    MoveVerb.AMBUSH: 4.0,
}
_AMBUSHED = (
    "accept_move",
    "accept_move",
    "offer_move",
    "hand_volume",
    "hand_volume_blocks",
    "digest_volume_blocks",
    "list_changed_blocks",
    "show_incoming_move",
    "show_outgoing_move",
)
_MODES = ("", "", "cold")
_LOSES = 3  # every fourth seed
_DUDS = 6  # every eighth seed
_AGES = 9  # every 16th seed
_SLEEPS = 13  # every 16th seed
_LATE = ("accept_move", "offer_move", "drop_incoming_move")


class MoveOperation(RunOperation[MoveVerb], frozen=True):
    """`label` is a host's number, `word` what else the verb takes."""


class MovePlan(RunPlan[MoveOperation], frozen=True):
    """Three hosts, a machine and a volume that no machine has. Every second machine keeps its root filesystem."""

    @property
    def keeps_root(self) -> bool:
        return self.seed % 2 == 0

    @property
    def rots(self) -> bool:
        """Whether the first host's disk cannot read some of the volumes, which moves mostly accept."""
        return self.seed % 8 == 7

    @property
    def sleeps(self) -> bool:
        """Whether the machine has a kernel of its own, and is suspended to disk and started now and then."""
        return self.seed % 16 == _SLEEPS


def draw(seed: int) -> MovePlan:
    """What happens, and when: blows come in the seconds around a move."""
    losses = drawn(seed, RUN_S, {MoveVerb.RECLAIM: 1.0}, _loss_at) if seed % 4 == _LOSES else ()
    duds = drawn(seed, RUN_S, {MoveVerb.DUD: 1.0}, _dud_at) if seed % 8 == _DUDS else ()
    aged = drawn(seed, RUN_S, {MoveVerb.AGE: 1.0}, _aged_at) if seed % 16 == _AGES else ()
    sleeps = drawn(seed, RUN_S, {MoveVerb.SUSPEND: 1.0}, _asleep_at) if seed % 16 == _SLEEPS else ()
    operations = [*drawn(seed, RUN_S, _WEIGHTS, _drawn_at), *losses, *duds, *aged, *sleeps]
    return MovePlan(seed=seed, operations=numbered(operations))


def _asleep_at(chance: Chance, verb: MoveVerb, at: float) -> tuple[list[MoveOperation], float]:
    """The machine is suspended, mostly moved, and started some time later."""
    host, awake = str(chance.between(1, HOSTS)), at + chance.one_of((1.0, 2.0, 4.0, 12.0, 30.0))
    rows = [(at, verb, ""), (awake, MoveVerb.START, "")]
    if chance.between(1, 4) > 1:
        rows.append((at + chance.one_of((0.2, 0.5, 1.0)), MoveVerb.MOVE, chance.one_of(("", "", "", DROPS))))
    return [MoveOperation(0, when, _ACTOR, each, host, 0.0, word) for when, each, word in rows], awake + chance.one_of(
        (0.5, 2.0, 8.0)
    )


def _loss_at(chance: Chance, verb: MoveVerb, at: float) -> tuple[list[MoveOperation], float]:
    """A host is moved to, and loses its power until long after it was taken for lost."""
    host, away = str(chance.between(1, HOSTS)), chance.one_of((5.0, 30.0, 90.0))
    begins = at + chance.one_of((0.3, 0.6, 1.0, 2.0, 8.0))
    rows = (
        (at, MoveVerb.MOVE, ""),
        (begins, MoveVerb.POWER, chance.one_of(("0", "0.5", "1"))),
        (begins + 1.0, verb, chance.one_of(("", "now"))),
        (begins + away, MoveVerb.BOOT, ""),
    )
    return [MoveOperation(0, when, _ACTOR, each, host, 0.0, word) for when, each, word in rows], begins + away + 2.0


def _aged_at(chance: Chance, verb: MoveVerb, at: float) -> tuple[list[MoveOperation], float]:
    """A host is moved to; what was left behind grows a day old; later it loses its power until long after it was taken
    for lost."""
    host, lost = str(chance.between(1, HOSTS)), at + 10.0 + chance.one_of((1.0, 30.0, 70.0, 130.0))
    rows = (
        (at, MoveVerb.MOVE, ""),
        (at + 10.0, verb, ""),
        (lost, MoveVerb.POWER, chance.one_of(("0", "0.5", "1"))),
        (lost + 1.0, MoveVerb.RECLAIM, chance.one_of(("", "now"))),
        (lost + chance.one_of((5.0, 30.0)), MoveVerb.BOOT, ""),
    )
    return [MoveOperation(0, when, _ACTOR, each, host, 0.0, word) for when, each, word in rows], lost + 32.0


def _dud_at(chance: Chance, verb: MoveVerb, at: float) -> tuple[list[MoveOperation], float]:
    """A host is moved to, and cannot start what comes; for a while, or for longer than it is tried."""
    host, heals = str(chance.between(1, HOSTS)), chance.one_of((8.0, 40.0))
    rows = ((at, verb, ""), (at + 0.1, MoveVerb.MOVE, ""), (at + heals, MoveVerb.HEAL, verb))
    return [MoveOperation(0, when, _ACTOR, each, host, 0.0, word) for when, each, word in rows], at + heals + 2.0


def _drawn_at(chance: Chance, verb: MoveVerb, at: float) -> tuple[list[MoveOperation], float]:
    host, word, amount = str(chance.between(1, HOSTS)), "", 0.0
    match verb:
        case MoveVerb.MOVE:
            word = chance.one_of(_MODES)
        case MoveVerb.LATE:
            word = chance.one_of(_LATE)
        case MoveVerb.CUT:
            word, amount = str(chance.between(1, HOSTS)), float(chance.between(1, 60))
        case MoveVerb.AMBUSH:
            word, amount = chance.one_of(_AMBUSHED), float(chance.between(1, 40))
        case MoveVerb.REFUSE:
            amount = float(chance.between(2, 6))
        case MoveVerb.KILL | MoveVerb.POWER | MoveVerb.LOSE:
            word, amount = chance.one_of(("0", "0.5", "1")), float(chance.between(1, 40))
        case _:
            pass
    operations = [MoveOperation(0, at, _ACTOR, verb, host, amount, word)]
    if verb is MoveVerb.REFUSE:
        for late, next_verb, next_word in ((0.1, MoveVerb.MOVE, ""), (0.2, MoveVerb.LATE, "accept_move")):
            operations.append(MoveOperation(0, at + late, _ACTOR, next_verb, host, 0.0, next_word))
    if verb in (MoveVerb.KILL, MoveVerb.POWER, MoveVerb.AMBUSH):
        operations.append(MoveOperation(0, at + amount / 4, _ACTOR, MoveVerb.BOOT, host))
    if verb in (MoveVerb.CUT, MoveVerb.LOSE, MoveVerb.REFUSE):
        operations.append(MoveOperation(0, at + amount, _ACTOR, MoveVerb.HEAL, host, 0.0, verb))
    return operations, at + chance.one_of((0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 4.0, 12.0))
