"""What is lost of volumes whose disk could not be read. All of it is listed; where there are more places than a record
may have, those that lie nearest to each other become one, and what lies between them is given up too.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from hawker.api.contract.body import instant
from hawker.api.contract.volume import VolumeDamage
from hawker.errors import Damaged
from hawker.host.unreadable import FileRange, joined
from hawker.ids import NodeId
from hawker.record.volume import DamageRecord, VolumeRecord

MOST_PLACES = 1024
"""The most places of one volume that are noted as lost."""

Places = tuple[tuple[int, int], ...]
"""The places as records have them: offset and count of each range, in order."""


def ranges_of(places: Places) -> tuple[FileRange, ...]:
    return tuple(FileRange(*each) for each in places)


def noted(places: Places, more: Iterable[FileRange]) -> Places:
    """`places` with what else is lost."""
    return tuple((each.offset, each.count) for each in bounded(joined([*ranges_of(places), *more])))


def bounded(ranges: Sequence[FileRange], most: int = MOST_PLACES) -> tuple[FileRange, ...]:
    """The ranges made fewer: at least the same bytes, in at most `most` ranges; `ranges` are in order, and do not
    touch."""
    if len(ranges) <= most:
        return tuple(ranges)
    gaps = sorted(range(1, len(ranges)), key=lambda index: ranges[index].offset - ranges[index - 1].end)
    filled = gaps[: len(ranges) - most]
    return joined([*ranges, *(FileRange(ranges[at - 1].end, ranges[at].offset - ranges[at - 1].end) for at in filled)])


def damaged_by(volume: VolumeRecord, node: NodeId, lost: Places, now: float) -> VolumeRecord:
    """The volume as the next node has it when this was lost on its way from `node`, beside what was lost before."""
    if not lost:
        return volume
    before = () if volume.damage is None else volume.damage.lost
    damage = DamageRecord(node=node, lost=noted(before, ranges_of(lost)), noted_at=now)
    return replace(volume, damage=damage)


def shown_damage(volume: VolumeRecord) -> VolumeDamage | None:
    """The damage of a volume as clients see it; None of a volume of which nothing was ever lost."""
    damage = volume.damage
    if damage is None:
        return None
    return VolumeDamage(
        node=damage.node,
        accepted=damage.accepted_at is not None,
        repaired=damage.repaired_at is not None,
        lost=damage.lost,
        lost_bytes=damage.lost_bytes,
        noted_at=instant(damage.noted_at),
        files=damage.files,
        unnamed=damage.unnamed,
    )


def check_usable(volume: VolumeRecord) -> None:
    """Checks that a volume may be used. Raises `Damaged` while nobody has accepted what is lost of it."""
    if volume.damage is not None and volume.damaged:
        raise Damaged(
            f"volume {volume.id} has lost {volume.damage.lost_bytes} bytes, which the disk of node"
            f" {volume.damage.node} could not read: see `hawker volumes show {volume.id}`; use a backup, or go on"
            f" without them by `hawker volumes update {volume.id} --accept-damage`"
        )
