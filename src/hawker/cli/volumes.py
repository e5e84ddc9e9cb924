"""Volumes on the command line: the options and arguments that commands share; finding them, by id, by name, or by the
unique beginning of an id, in one app or in all; waiting for them; and volumes and snapshots as text.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime

import click

from hawker.api.call_metadata import CallMetadata
from hawker.api.caller import Caller
from hawker.api.contract.app import AppParams
from hawker.api.contract.volume import (
    GET_VOLUME,
    LIST_SNAPSHOTS,
    LIST_VOLUMES,
    ListVolumesQuery,
    Volume,
    VolumeDamage,
    VolumeParams,
    VolumeSnapshot,
)
from hawker.cli.exits import Failure
from hawker.cli.machines import Away, app_names
from hawker.cli.notation import Written
from hawker.cli.options import completed, gathered
from hawker.cli.output import age, fields, local, size, table
from hawker.clock import Clock
from hawker.errors import BadRequest, NotFound
from hawker.ids import NodeId
from hawker.value_object import ValueObject

_SIZE = re.compile(r"(\+?)(\d{1,6})\s*(?:g(?:i?b)?)?", re.IGNORECASE)

volume_argument = click.argument("volume", metavar="VOLUME", shell_complete=completed("volumes"))
"""An id, the unique beginning of one, or a name."""

volumes_argument = click.argument(
    "volumes", metavar="VOLUME...", nargs=-1, required=True, shell_complete=completed("volumes")
)


class SizeAsked(ValueObject, frozen=True):
    """In GiB: the new size, or the increase."""

    gib: int
    """1 or more."""
    more: bool = False
    """It is the increase."""


def size_gib(text: str) -> SizeAsked:
    """ "10", "10gb", "+5"."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or int(match[2]) == 0:
        raise ValueError(f"{text!r} is not a size in GiB such as 10, or an increase such as +5")
    return SizeAsked(int(match[2]), bool(match[1]))


def whole_gib(text: str) -> int:
    asked = size_gib(text)
    if asked.more:
        raise ValueError(f"{text!r}: a new volume needs a size, not an increase")
    return asked.gib


class Keeping(ValueObject, frozen=True, kw_only=True):
    """How a volume's snapshots are kept; None: as it is, or for a new one as the node has it."""

    snapshot_retention: int | None
    """Days after which snapshots of the schedule go."""
    scheduled_snapshots: bool | None
    """The node takes snapshots by schedule."""


keeping_options = gathered(
    Keeping,
    "keeping",
    (
        click.option("--snapshot-retention", metavar="DAYS", type=int, help="How many days snapshots are kept."),
        click.option(
            "--scheduled-snapshots/--no-scheduled-snapshots", default=None, help="Take a snapshot each day, or not."
        ),
    ),
)

size_option = click.option(
    "-s",
    "--size",
    metavar="GIB",
    type=Written(whole_gib, "size"),
    help="Size in GiB; default 3, or that of the volume whose content it gets.",
)


LEAVING = frozenset({"scheduling_destroy", "pending_destroy", "destroying", "destroyed"})
READY = "created"
_LOOKS_S = (0.1, 0.3, 1.0)  # between two looks; the last one from then on: a node answers once a second

Say = Callable[[str], None]


class OwnedVolume(ValueObject, frozen=True):
    """A volume and the app that it belongs to."""

    app: str
    """Its name."""
    volume: Volume

    @property
    def params(self) -> VolumeParams:
        return VolumeParams(app_name=self.app, volume_id=self.volume.id)


async def list_volumes(
    caller: Caller, app: str | None, query: ListVolumesQuery, away: Away | None = None
) -> list[OwnedVolume]:
    """Of one app, or of all when `app` is None."""
    away = away or Away()
    if app is not None:
        return await _volumes_of(caller, app, query, away)
    found: list[OwnedVolume] = []
    for name in await app_names(caller, away):
        with suppress(NotFound):  # destroyed since its name was read
            found += await _volumes_of(caller, name, query, away)
    return found


async def _volumes_of(caller: Caller, app: str, query: ListVolumesQuery, away: Away) -> list[OwnedVolume]:
    metadata = CallMetadata()
    page = await caller.call(LIST_VOLUMES, params=AppParams(app_name=app), query=query, metadata=metadata)
    away.add(metadata)
    return [OwnedVolume(app, volume) for volume in page.items]


async def volumes_on(caller: Caller, node_id: NodeId) -> list[OwnedVolume]:
    listed = await list_volumes(caller, None, ListVolumesQuery())
    return [each for each in listed if each.volume.zone == node_id]


def free_of(volumes: Iterable[OwnedVolume]) -> list[OwnedVolume]:
    """Those that no machine has, without those that were deleted."""
    return [each for each in volumes if not each.volume.attached_machine_id and each.volume.state not in LEAVING]


async def find_volume(caller: Caller, reference: str, app: str | None) -> OwnedVolume:
    """Also one that was deleted and can be taken back. Raises `NotFound`, and `BadRequest` when several fit."""
    return chosen(await list_volumes(caller, app, ListVolumesQuery(summary=True)), reference, app)


def chosen(volumes: Iterable[OwnedVolume], reference: str, app: str | None) -> OwnedVolume:
    """The best kind of match that there is: the whole id, then a name, then the beginning of an id. Deleted volumes
    count only where nothing else fits."""
    volumes = list(volumes)
    for leaves in (False, True):
        there = [owned for owned in volumes if (owned.volume.state in LEAVING) is leaves]
        for matches in (
            [owned for owned in there if owned.volume.id == reference],
            [owned for owned in there if owned.volume.name == reference],
            [owned for owned in there if reference and owned.volume.id.startswith(reference)],
        ):
            if len(matches) > 1:
                several = len({owned.app for owned in matches}) > 1
                raise BadRequest(
                    f"{reference!r} matches {', '.join(map(_told, matches))}: give the id{', or the app' * several}"
                )
            if matches:
                return matches[0]
    raise NotFound(f"volume {reference!r} not found in {f'app {app!r}' if app else 'any app'}")


def _told(owned: OwnedVolume) -> str:
    machine = owned.volume.attached_machine_id
    return f"{owned.volume.id} ({owned.app}/{owned.volume.name}, {f'of machine {machine}' if machine else 'free'})"


async def ready(caller: Caller, params: VolumeParams, clock: Clock, within_s: float, say: Say) -> Volume:
    """The volume once it is created. `say` hears each state on the way. Raises `Failure`."""
    deadline, looks = clock.monotonic() + within_s, iter(_LOOKS_S)
    while True:
        try:
            volume = await caller.call(GET_VOLUME, params=params)
        except NotFound:
            raise Failure(
                f"volume {params.volume_id} could not be created: see `hawker runs list --volume {params.volume_id}`"
            ) from None
        if volume.state == READY:
            return volume
        say(volume.state)
        if clock.monotonic() >= deadline:
            raise Failure(f"volume {volume.id} is still {volume.state} after {within_s:g} s")
        await clock.sleep(next(looks, _LOOKS_S[-1]))


async def taken(
    caller: Caller, params: VolumeParams, snapshot_id: str, clock: Clock, within_s: float, say: Say
) -> VolumeSnapshot:
    """The snapshot once it is whole. Raises `Failure`."""
    deadline, looks = clock.monotonic() + within_s, iter(_LOOKS_S)
    while True:
        answer = await caller.call(LIST_SNAPSHOTS, params=params)
        found = next((snapshot for snapshot in answer if snapshot.id == snapshot_id), None)
        if found is None or found.status == "failed":
            raise Failure(f"snapshot {snapshot_id} failed: see `hawker runs list --volume {params.volume_id}`")
        if found.status == READY:
            return found
        say(found.status)
        if clock.monotonic() >= deadline:
            raise Failure(f"snapshot {snapshot_id} is still {found.status} after {within_s:g} s")
        await clock.sleep(next(looks, _LOOKS_S[-1]))


_OK = "ok"
_HEADINGS = ("ID", "NAME", "APP", "STATE", "SIZE", "MACHINE", "AGE")
_WIDE = ("USED", "REGION", "ENCRYPTED")
_SNAPSHOT_HEADINGS = ("ID", "STATUS", "SIZE", "VOLUME SIZE", "KEPT FOR", "CREATED", "AGE")


def listing(volumes: Sequence[OwnedVolume], now: datetime, *, wide: bool = False) -> str:
    """Hosts are shown where one is away. Of such a volume all else is what the host said last."""
    hosts = wide or any(owned.volume.host_status != _OK for owned in volumes)
    rows = ((*_row(owned, now, hosts=hosts), *(_wide(owned.volume) if wide else ())) for owned in volumes)
    return table((*_HEADINGS[:4], *(("HOST",) * hosts), *_HEADINGS[4:], *(_WIDE if wide else ())), rows)


def _row(owned: OwnedVolume, now: datetime, *, hosts: bool) -> tuple[object, ...]:
    volume, there = owned.volume, owned.volume.host_status == _OK
    return (
        volume.id,
        volume.name,
        owned.app,
        f"{volume.state}, damaged" if is_damaged(volume) else volume.state,
        *((volume.zone if there else f"{volume.zone} away",) * hosts),
        f"{volume.size_gb} GiB",
        volume.attached_machine_id,
        age(volume.created_at, now) if there else None,
    )


def is_damaged(volume: Volume) -> bool:
    """Whether nobody may use it before what is lost of it is accepted."""
    return volume.damage is not None and not volume.damage.accepted


def _wide(volume: Volume) -> tuple[object, ...]:
    if volume.host_status != _OK:
        return (None, volume.region, None)
    used = None if volume.bytes_used is None else size(volume.bytes_used)
    return (used, volume.region, _yes(volume.encrypted))


def about(owned: OwnedVolume) -> str:
    volume = owned.volume
    used = volume.bytes_used is not None and volume.bytes_total is not None
    return fields(
        (
            ("id", volume.id),
            ("name", volume.name),
            ("app", owned.app),
            ("state", volume.state),
            ("size", f"{volume.size_gb} GiB"),
            ("used", f"{size(volume.bytes_used or 0)} of {size(volume.bytes_total or 0)}" if used else None),
            ("filesystem", volume.fstype),
            ("encrypted", _yes(volume.encrypted)),
            ("region", volume.region),
            ("machine", volume.attached_machine_id),
            ("snapshots", _snapshots(volume.auto_backup_enabled, volume.snapshot_retention)),
            ("created", local(volume.created_at)),
            *(() if volume.damage is None else _damage(volume.damage)),
        )
    )


_SHOWN = 20
_REST = "and {} more: see `--output json`"


def _damage(damage: VolumeDamage) -> Iterator[tuple[str, str]]:
    accepted = "accepted, its filesystem is repaired" if damage.repaired else "accepted: the next mount repairs it"
    accepted = accepted if damage.accepted else "not accepted: no machine starts with it"
    yield "damage", f"{size(damage.lost_bytes)} lost at node {damage.node}, {local(damage.noted_at)}; {accepted}"
    yield "lost bytes", ", ".join(_some([f"{offset} to {offset + count - 1}" for offset, count in damage.lost]))
    for path in _some(damage.files):
        yield "lost of", path
    yield "unnamed", "its files are looked for" if damage.unnamed is None else damage.unnamed


def _some(shown: Sequence[str]) -> list[str]:
    rest = len(shown) - _SHOWN
    return [*shown[:_SHOWN], *([_REST.format(rest)] if rest > 0 else [])]


def _snapshots(daily: bool, days: int) -> str:
    return f"{'one a day' if daily else 'manual'}, kept for {days} day{'s' * (days != 1)}"


def snapshots(answer: Sequence[VolumeSnapshot], now: datetime) -> str:
    """As they are told; with the node of those that have yet to follow their volume."""
    if any(each.node for each in answer):
        return table((*_SNAPSHOT_HEADINGS, "AT NODE"), ((*_snapshot(each, now), each.node or "") for each in answer))
    return table(_SNAPSHOT_HEADINGS, (_snapshot(each, now) for each in answer))


def _snapshot(snapshot: VolumeSnapshot, now: datetime) -> tuple[object, ...]:
    return (
        snapshot.id,
        snapshot.status,
        size(snapshot.size),
        size(snapshot.volume_size),
        f"{snapshot.retention_days} d",
        local(snapshot.created_at),
        age(snapshot.created_at, now),
    )


def _yes(value: bool) -> str:
    return "yes" if value else "no"
