"""Finding volumes: by id, by name, or by the unique beginning of an id, in one app or in all; and waiting for them."""

from collections.abc import Callable, Iterable
from contextlib import suppress

from hawker.api.call_metadata import CallMetadata
from hawker.api.caller import Caller
from hawker.api.contract.app import AppParams
from hawker.api.contract.volume import (
    GET_VOLUME,
    LIST_SNAPSHOTS,
    LIST_VOLUMES,
    ListVolumesQuery,
    Volume,
    VolumeParams,
    VolumeSnapshot,
)
from hawker.cli.exits import Failure
from hawker.cli.machines import Away, app_names
from hawker.clock import Clock
from hawker.errors import BadRequest, NotFound
from hawker.value_object import ValueObject

LEAVING = frozenset({"scheduling_destroy", "pending_destroy", "destroying", "destroyed"})
READY = "created"
_LOOKS_S = (0.1, 0.3, 1.0)  # between two looks; the last one from then on: a node answers once a second

Say = Callable[[str], None]


class OwnedVolume(ValueObject, frozen=True):
    """A volume and the app that it belongs to."""

    app: str
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
