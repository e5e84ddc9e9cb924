"""Answers about volumes."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from hawker.api.bounds import IN_PAGE
from hawker.api.contract.app import AppParams
from hawker.api.contract.body import instant
from hawker.api.contract.org import OrgParams
from hawker.api.contract.volume import (
    CREATE_BACKUP,
    CREATE_SNAPSHOT,
    CREATE_VOLUME,
    DELETE_VOLUME,
    DETACH_VOLUME,
    EXTEND_VOLUME,
    FIND_SNAPSHOT,
    GET_BACKUP,
    GET_VOLUME,
    LIST_BACKUPS,
    LIST_ORG_VOLUMES,
    LIST_SNAPSHOTS,
    LIST_VOLUMES,
    MOVE_VOLUME,
    UNDELETE_VOLUME,
    UPDATE_VOLUME,
    BackupParams,
    BackupState,
    CreateVolumeRequest,
    ExtendVolumeAnswer,
    ExtendVolumeRequest,
    KeptBackup,
    ListVolumesQuery,
    MoveVolumeRequest,
    OrgVolume,
    OrgVolumes,
    OrgVolumesQuery,
    SnapshotBackup,
    SnapshotCreated,
    SnapshotOwner,
    SnapshotParams,
    UpdateVolumeRequest,
    Volume,
    VolumeBackup,
    VolumeParams,
    VolumeSnapshot,
)
from hawker.api.grant import Grant
from hawker.api.handlers import Handlers
from hawker.api.paging import after_of, page_of
from hawker.api.route import Call, NoQuery, Page
from hawker.backup.checks import BackupCheck
from hawker.backup.format import saved_at
from hawker.clock import Clock
from hawker.errors import BadRequest, Fault, NotFound, Unprocessable
from hawker.fsm.run import State
from hawker.handlers.orgs import readable_apps
from hawker.ids import AppName, NodeId, SnapshotId, VolumeId
from hawker.log import bind
from hawker.permission import Action, Attempt
from hawker.record.app import APPS, AppRecord, org_of
from hawker.record.machine import MACHINES, MachineRecord
from hawker.record.move import MoveRecord, MoveState, awaited_snapshots
from hawker.record.node import NodeRecord
from hawker.record.volume import (
    GB,
    GONE_VOLUMES,
    SNAPSHOTS,
    VOLUMES,
    SnapshotRecord,
    VolumeRecord,
    VolumeState,
)
from hawker.settings import Settings
from hawker.store.contract import Reader, Store, Tx
from hawker.volume.attachment import volume_id_of
from hawker.volume.backups import VolumeBackups
from hawker.volume.disks import BackupSize, Disks, Usage, disk_of
from hawker.volume.encryption import VolumeKeys
from hawker.volume.losses import shown_damage
from hawker.volume.operations import SoftDeletes, Volumes, check_retention, new_volume
from hawker.volume.restore import VolumeClones, VolumeOrigin, completed, origin_of
from hawker.volume.snapshots import Snapshots
from hawker.volume.table import VolumeTable
from hawker.worker import leases
from hawker.worker.apps import AppTable
from hawker.worker.order import serves_region
from hawker.worker.table import MachineTable, volume_event

if TYPE_CHECKING:
    from hawker.worker.unique_zones import UniqueZones


def volume(record: VolumeRecord, zone: str, usage: Usage | None) -> Volume:
    return Volume(**_fields(record, zone, usage))


def org_volume(record: VolumeRecord, zone: str, usage: Usage | None) -> OrgVolume:
    updated_at = instant(record.updated_at)
    return OrgVolume(**_fields(record, zone, usage), app_name=record.app, updated_at=updated_at)


def _fields(record: VolumeRecord, zone: str, usage: Usage | None) -> dict[str, Any]:
    """`attached_machine_id` is null and never empty when it is free; `zone` is the host."""
    return {
        "id": record.id,
        "name": record.name,
        "state": record.state.value,
        "size_gb": record.size_gb,
        "region": record.region,
        "zone": zone,
        "encrypted": record.encrypted,
        "attached_machine_id": record.machine,
        "attached_alloc_id": record.machine,
        "created_at": instant(record.created_at),
        "fstype": record.fstype.value,
        "snapshot_retention": record.snapshot_retention,
        "auto_backup_enabled": record.auto_backup,
        "host_status": "ok",
        "type": "local",
        "damage": shown_damage(record),
        **_blocks(usage),
    }


def _blocks(usage: Usage | None) -> dict[str, int]:
    if usage is None:
        return {}
    return {
        "blocks": usage.blocks,
        "block_size": usage.block_size,
        "blocks_free": usage.blocks_free,
        "blocks_avail": usage.blocks_avail,
        "bytes_used": usage.bytes_used,
        "bytes_total": usage.bytes_total,
    }


SETTLE_S = 20.0
"""The seconds that an answer waits for the flow behind it, so that most clients never see a volume in the making."""

_log = bind("hawker.volumes")


class VolumeHandlers:
    def __init__(
        self,
        store: Store,
        settings: Settings,
        clock: Clock,
        volume_table: VolumeTable,
        disks: Disks | None,
        volume_keys: VolumeKeys | None,
        node: NodeRecord,
        apps: AppTable,
        volumes: Volumes,
        origins: VolumeClones,
        backups: VolumeBackups,
        soft_deletes: SoftDeletes,
        machines: MachineTable,
        zones: Callable[[], "UniqueZones"],
    ) -> None:
        self._machines = machines
        self._zones = zones
        self._store = store
        self._settings = settings
        self._clock = clock
        self._volume_table = volume_table
        self._disks = disks
        self._volume_keys = volume_keys
        self._node = node
        self._apps = apps
        self._origins = origins
        self._backups = backups
        self._soft_deletes = soft_deletes
        self._volumes = volumes
        self._zone = node.id

    def bind(self, handlers: Handlers) -> None:
        handlers.on(LIST_VOLUMES, self.list_)
        handlers.on(CREATE_VOLUME, self.create)
        handlers.on(GET_VOLUME, self.get)
        handlers.on(UPDATE_VOLUME, self.update)
        handlers.on(DELETE_VOLUME, self.delete)
        handlers.on(EXTEND_VOLUME, self.extend)
        handlers.on(LIST_ORG_VOLUMES, self.of_org)
        handlers.on(UNDELETE_VOLUME, self.undelete)
        handlers.on(DETACH_VOLUME, self.detach)
        handlers.on(MOVE_VOLUME, self.move)

    async def list_(self, call: Call[AppParams, ListVolumesQuery, None]) -> Page[Volume]:
        query = call.query
        app = self._apps.get(self._store, call.params.app_name)
        with self._store.snapshot() as reader:
            there = self._volume_table.of_app(reader, app.name, after_of(query.cursor))
            page = page_of(there, lambda record: record.id, query.limit, query.cursor)
        shown = [await self._show(record, summary=query.summary) for record in page.items]
        return Page(tuple(shown), next_cursor=page.next_cursor)

    async def create(self, call: Call[AppParams, NoQuery, CreateVolumeRequest]) -> Volume:
        body = call.body
        app = self._apps.get(self._store, call.params.app_name)
        serves_region(self._node.region, body.region)
        origin = await self._origin(body, app, call.grant)
        if origin is not None:
            if self._settings.volume_encryption == "wished" and body.encrypted and not origin.encrypted:
                body = msgspec.structs.replace(body, encrypted=None)
            body = completed(body, origin)
        encrypted = await self._encrypted(body) if origin is None else origin.encrypted
        max_gb = self._settings.max_volume_gb
        record = new_volume(self._clock, app.name, self._node.region, body, encrypted=encrypted, max_gb=max_gb)
        if origin is None:
            record = await self._volumes.create(self._with_key(record))
        elif origin.backup is not None:
            record = await self._backups.restore(record, origin)
        elif body.require_unique_zone and (zones := self._zones()).wanted(record, body, origin):
            return await self._elsewhere(*await zones.create(record, body, origin, partial(self._note_copy, origin)))
        else:
            record = await self._origins.create(record, body, origin, partial(self._note_copy, origin))
        return await self.settled(app.name, record)

    async def _elsewhere(self, record: VolumeRecord, move: MoveRecord) -> Volume:
        """Where it is once it has moved: here, where no other host took it, or while it is still on its way."""
        if move.state is MoveState.ABORTED:
            return await self._kept(record, move.reason)
        state = VolumeState.CREATED if move.state is MoveState.DONE else VolumeState.HYDRATING
        shown = msgspec.structs.replace(record, state=state)
        return volume(shown, self._zone if move.granted_at is None else move.to, None)

    async def _kept(self, record: VolumeRecord, reason: str) -> Volume:
        """What was not brought to its end. Raises `Fault` when nothing of it is left."""
        try:
            kept = self._volumes.get(record.app, record.id)
        except NotFound as error:
            raise Fault(f"volume {record.id} could not be made: {reason}") from error
        _log.warning("a volume stays as it was made", extra={"volume": record.id, "reason": reason})
        return await self._show(kept)

    def _note_copy(self, origin: VolumeOrigin, tx: Tx, made: VolumeRecord) -> None:
        """The machine whose volume is copied hears of it."""
        volume = None if origin.volume is None else tx.get(VOLUMES, origin.volume)
        machine = None if volume is None or volume.machine is None else tx.get(MACHINES, volume.machine)
        if machine is not None:
            self._machines.change(tx, machine, volume_event("copied", f"{origin.volume} to {made.id}"))

    async def settled(self, app: AppName, record: VolumeRecord) -> Volume:
        """A new volume, as soon as it is made, or if it stays though it could not be made as large as ordered: a client
        that is told of a failure makes another one. Raises `Fault` when it could not be made."""
        run = await self._volumes.settled(record.id, SETTLE_S)
        if run is not None and run.error is not None:
            return await self._kept(record, run.error)
        return await self._show(self._volumes.get(app, record.id))

    async def get(self, call: Call[VolumeParams, NoQuery, None]) -> Volume:
        return await self._show(self._find(call.params))

    async def update(self, call: Call[VolumeParams, NoQuery, UpdateVolumeRequest]) -> Volume:
        params, body = call.params, call.body
        if body.snapshot_retention is not None:
            try:
                check_retention(body.snapshot_retention)
            except Unprocessable as error:
                raise BadRequest(str(error)) from error
        updated = await self._volumes.update(AppName(params.app_name), params.volume_id, body)
        return await self._show(updated)

    async def delete(self, call: Call[VolumeParams, NoQuery, None]) -> Volume:
        params = call.params
        return await self._show(await self._volumes.delete(AppName(params.app_name), params.volume_id))

    async def undelete(self, call: Call[VolumeParams, NoQuery, None]) -> Volume:
        params = call.params
        return await self._show(await self._soft_deletes.undelete(AppName(params.app_name), params.volume_id))

    async def detach(self, call: Call[VolumeParams, NoQuery, None]) -> Volume:
        def may(tx: Tx, machine: MachineRecord) -> None:
            leases.check(machine, call.nonce, self._clock.now())
            self._machines.change(tx, machine, volume_event("detached", str(volume_id_of(machine.config))))
            self._machines.note_return(tx, self._volumes.get(app, volume_id), machine)

        app, volume_id = AppName(call.params.app_name), call.params.volume_id
        return await self._show(await self._volumes.detach(app, volume_id, may))

    async def move(self, call: Call[VolumeParams, NoQuery, MoveVolumeRequest]) -> Volume:
        to = AppName(call.body.app)
        call.grant.check(Attempt(Action.CREATE, org=org_of(self._store, to) or None, app=to))
        return await self._show(await self._volumes.move(AppName(call.params.app_name), call.params.volume_id, to))

    async def extend(self, call: Call[VolumeParams, NoQuery, ExtendVolumeRequest]) -> ExtendVolumeAnswer:
        """A restart is needed only where the host cannot grow what is in use; then that is said."""
        app, size_gb = AppName(call.params.app_name), call.body.size_gb
        record = await self._volumes.extend(app, call.params.volume_id, size_gb)
        await self._volumes.settled(record.id, SETTLE_S)
        extended = self._volumes.get(app, record.id)
        held = await self._volumes.disks.held({extended.id}) if extended.behind else {}
        return ExtendVolumeAnswer(
            volume=await self._show(extended), needs_restart=extended.behind, held_by=held.get(extended.id, ())
        )

    async def of_org(self, call: Call[OrgParams, OrgVolumesQuery, None]) -> OrgVolumes:
        query, limit = call.query, IN_PAGE if call.query.limit is None else call.query.limit
        apps = readable_apps(self._apps, call.params.org_slug, call.grant)
        with self._store.snapshot() as reader:
            there = (record for record in _beyond(reader, query) if record.app in apps and _matches(record, query))
            page = page_of(there, lambda record: record.id, limit, query.cursor, most=IN_PAGE)
        last = page.items[-1] if page.items else None
        shown = [
            org_volume(record, self._zone, await self._usage(record, summary=query.summary)) for record in page.items
        ]
        return OrgVolumes(
            volumes=tuple(shown),
            next_cursor=page.next_cursor or "",
            last_volume_id="" if last is None else last.id,
            last_updated_at=None if last is None else instant(last.updated_at),
            error_regions=(),
        )

    async def _origin(self, body: CreateVolumeRequest, app: AppRecord, grant: Grant) -> VolumeOrigin | None:
        """What it is to be made from: of the same organization, and nothing that the caller may not read."""
        if not body.backup:
            return self._origin_here(body, app.org, grant)
        if body.snapshot_id or body.source_volume_id:
            raise Unprocessable("backup, snapshot_id and source_volume_id: a volume is made from one of them")
        grant.check(Attempt(Action.READ, org=app.org, app=app.name))
        origin = await self._backups.origin(app.name, body.backup)
        lacks = await self._volumes.disks.lacks_encryption() if origin.encrypted else None
        if lacks is not None:
            raise Unprocessable(f"backup: {origin.what} is encrypted, and this host cannot have such volumes: {lacks}")
        return origin

    def _origin_here(self, body: CreateVolumeRequest, org: str, grant: Grant) -> VolumeOrigin | None:
        """On this host."""
        found = origin_of(body, self._store)
        if found is None:
            return None
        app, origin = found
        owner = self._store.get(APPS, app)
        if owner is not None and owner.org != org:
            raise NotFound(f"{origin.what} not found")
        grant.check(Attempt(Action.READ, org=org, app=app))
        return origin

    def _find(self, params: VolumeParams) -> VolumeRecord:
        return self._volumes.get(AppName(params.app_name), params.volume_id)

    async def _encrypted(self, body: CreateVolumeRequest) -> bool:
        """As asked for; by default where the host can."""
        lacks = await self._volumes.disks.lacks_encryption()
        wished = self._settings.volume_encryption == "wished"
        if body.encrypted and lacks is not None and not wished:
            raise Unprocessable(
                f"encrypted: this host cannot encrypt volumes: {lacks}. Leave it out, or ask for encrypted=false, for "
                "a volume that is not"
            )
        return lacks is None and body.encrypted is not False

    def _with_key(self, record: VolumeRecord) -> VolumeRecord:
        keys = self._volume_keys
        return msgspec.structs.replace(record, key=keys.new(record.id)) if record.encrypted and keys else record

    async def _show(self, record: VolumeRecord, *, summary: bool = False) -> Volume:
        return volume(record, self._zone, await self._usage(record, summary=summary))

    async def _usage(self, record: VolumeRecord, *, summary: bool) -> Usage | None:
        disks = self._disks
        return None if summary or disks is None else await disks.usage(disk_of(record))


def _beyond(reader: Reader, query: OrgVolumesQuery) -> Iterator[VolumeRecord]:
    """Every volume after the cursor, by id."""
    after = after_of(query.cursor)
    there = [record for _, record in reader.scan(VOLUMES, after=after)]
    gone = [record for _, record in reader.scan(GONE_VOLUMES, after=after)] if query.include_deleted else []
    yield from sorted([*there, *gone], key=lambda record: record.id)


def _matches(record: VolumeRecord, query: OrgVolumesQuery) -> bool:
    since = None if query.updated_after is None else query.updated_after.timestamp()
    return (
        (not query.state or record.state in query.state)
        and (not query.region or record.region == query.region)
        and (since is None or record.updated_at > since)
    )


# Answers about backups of volumes.


class BackupHandlers:
    def __init__(self, store: Store, clock: Clock, apps: AppTable, backups: VolumeBackups) -> None:
        self._store = store
        self._clock = clock
        self._apps = apps
        self._backups = backups

    def bind(self, handlers: Handlers) -> None:
        handlers.on(CREATE_BACKUP, self.create)
        handlers.on(GET_BACKUP, self.get)
        handlers.on(LIST_BACKUPS, self.list)

    async def create(self, call: Call[VolumeParams, NoQuery, None]) -> VolumeBackup:
        app, volume_id = AppName(call.params.app_name), VolumeId(call.params.volume_id)
        return self._show(app, volume_id, await self._backups.begin(app, volume_id))

    async def get(self, call: Call[BackupParams, NoQuery, None]) -> VolumeBackup:
        params = call.params
        app = self._apps.get(self._store, params.app_name)
        return self._show(app.name, VolumeId(params.volume_id), SnapshotId(params.snapshot))

    async def list(self, call: Call[AppParams, NoQuery, None]) -> tuple[KeptBackup, ...]:
        app = self._apps.get(self._store, call.params.app_name)
        now = self._clock.now()
        return tuple(_kept(name, check, now) for name, check in await self._backups.list(app.name))

    def _show(self, app: AppName, volume_id: VolumeId, snapshot_id: SnapshotId) -> VolumeBackup:
        run = self._backups.run(app, volume_id, snapshot_id)
        _, _, name = run.input["backup"].split("/", 2)
        size = msgspec.convert(run.result, BackupSize) if run.state is State.DONE else None
        return VolumeBackup(
            backup=name,
            snapshot=snapshot_id,
            state=_BACKUP_STATES.get(run.state, BackupState.RUNNING),
            error=run.error if run.ended else None,
            stored_bytes=None if size is None else size.stored_bytes,
            sent_bytes=None if size is None else size.sent_bytes,
        )


def _kept(name: str, check: BackupCheck, now: float) -> KeptBackup:
    return KeptBackup(
        backup=name,
        volume=name.partition("/")[0],
        verified_at=None if check.verified_at is None else instant(check.verified_at),
        restored_at=None if check.restored_at is None else instant(check.restored_at),
        stale=check.is_stale(saved_at(name), now),
        damage=check.found,
    )


_BACKUP_STATES = {
    State.QUEUED: BackupState.WAITING,
    State.DELAYED: BackupState.WAITING,
    State.DONE: BackupState.CREATED,
    State.FAILED: BackupState.FAILED,
    State.CANCELLED: BackupState.FAILED,
}


# Answers about snapshots of volumes.


class SnapshotHandlers:
    def __init__(self, store: Store, snapshots: Snapshots) -> None:
        self._store = store
        self._snapshots = snapshots

    def bind(self, handlers: Handlers) -> None:
        handlers.on(LIST_SNAPSHOTS, self.list)
        handlers.on(CREATE_SNAPSHOT, self.create)
        handlers.on(FIND_SNAPSHOT, self.find)

    async def find(self, call: Call[SnapshotParams, NoQuery, None]) -> SnapshotOwner:
        """The owner of a snapshot. A snapshot that the caller may not read is none."""
        record = self._store.get(SNAPSHOTS, SnapshotId(call.params.snapshot_id))
        found = None if record is None else Attempt(Action.READ, org=org_of(self._store, record.app), app=record.app)
        if record is None or found is None or not call.grant.permits(found):
            raise NotFound(f"snapshot {call.params.snapshot_id:.40} not found")
        return SnapshotOwner(id=record.id, app=record.app)

    async def create(self, call: Call[VolumeParams, NoQuery, None]) -> SnapshotCreated:
        app, volume_id = AppName(call.params.app_name), VolumeId(call.params.volume_id)
        return SnapshotCreated(Msg=SnapshotBackup(backup=_shown(await self._snapshots.take(app, volume_id))))

    async def list(self, call: Call[VolumeParams, NoQuery, None]) -> tuple[VolumeSnapshot, ...]:
        """The snapshots of a volume, also of a volume that is gone, as long as they are kept; last those that have yet
        to follow it."""
        volume_id = VolumeId(call.params.volume_id)
        with self._store.snapshot() as reader:
            volume = reader.get(VOLUMES, volume_id) or reader.get(GONE_VOLUMES, volume_id)
            if volume is None or volume.app != call.params.app_name:
                raise NotFound("volume not found")
            away = [_shown(each.snapshot, each.source) for each in awaited_snapshots(reader, volume_id)]
            return (*map(_shown, self._snapshots.of_volume(reader, volume_id)), *away)


def _shown(record: SnapshotRecord, node: NodeId | None = None) -> VolumeSnapshot:
    return VolumeSnapshot(
        id=record.id,
        size=record.size,
        volume_size=record.volume_gb * GB,
        digest="",
        created_at=instant(record.created_at),
        status=record.status.value,
        retention_days=record.retention_days,
        node=node,
    )
