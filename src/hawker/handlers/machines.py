"""Answers about machines as a whole: show, list, update, destroy, their metadata, events and versions, and a machine's
history: from the store while that has it, else from the archive.

Changes of metadata need no lease and make no new version (contract 3.2, 3.4).
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from heapq import merge

import msgspec
from anyio.lowlevel import checkpoint

from hawker.api.bounds import APPS_IN_PAGE
from hawker.api.contract.app import AppParams
from hawker.api.contract.body import Ok
from hawker.api.contract.machine import (
    DELETE_MACHINE,
    DELETE_METADATA,
    GET_MACHINE,
    GET_METADATA,
    LIST_EVENTS,
    LIST_MACHINES,
    LIST_METADATA,
    LIST_VERSIONS,
    SET_METADATA,
    UPDATE_MACHINE,
    UPDATE_METADATA,
    CreateMachineRequest,
    DeleteMachineQuery,
    GetMachineQuery,
    ListEventsQuery,
    ListMachinesQuery,
    Machine,
    MachineEvent,
    MachineParams,
    MachineVersion,
    MetadataKeyParams,
    MetadataValue,
    SetMetadataRequest,
    UpdateMachineRequest,
    UpdateMetadataRequest,
)
from hawker.api.contract.run import MACHINE_HISTORY, HistoryParams, Kept, MachineHistory
from hawker.api.handlers import Handlers
from hawker.api.paging import after_of, page_found
from hawker.api.route import Call, NoQuery, Page
from hawker.archive.archive import Archive
from hawker.archive.history_file import History
from hawker.auth.image_names import check_image_names
from hawker.config import MachineConfig, validate, validate_metadata
from hawker.errors import BadRequest, NotFound, Unprocessable, WrongState
from hawker.history.machine_history import answer, live_history
from hawker.ids import AppName, MachineId
from hawker.machine import GONE, State
from hawker.netpolicy.policies import PolicyEnforcer
from hawker.permission import Action, Attempt
from hawker.record import views
from hawker.record.app import APPS, org_of
from hawker.record.machine import BY_APP, DESTROYED, EventRecord, MachineRecord, MachineTarget, VersionRecord
from hawker.store.contract import Reader, Store, Tx, keys_of
from hawker.volume import attachment
from hawker.worker import leases
from hawker.worker.apps import AppTable
from hawker.worker.assembly import AssembledWorker
from hawker.worker.images import OrgImages, resolve
from hawker.worker.operations import ConfigChange
from hawker.worker.order import check_uploads
from hawker.worker.table import MachineTable


def target_of(params: MachineParams, nonce: str | None) -> MachineTarget:
    """`nonce` is the lease's that the call carries."""
    return MachineTarget(AppName(params.app_name), params.machine_id, nonce)


class MachineFinder:
    """Finds the machine that a call names."""

    def __init__(self, store: Reader, table: MachineTable, apps: AppTable) -> None:
        self._store = store
        self._table = table
        self._apps = apps

    def find(self, params: MachineParams | MetadataKeyParams) -> MachineRecord:
        """The record of the machine that a path names. Raises `NotFound` for the app first, then for the machine."""
        app = self._apps.get(self._store, params.app_name)
        return self._table.find(self._store, app.name, params.machine_id)


_EVENTS_IN_MACHINE = 20
_MOST_EVENTS = 50
_SHOWN_AT_ONCE = 32


class MachineHandlers:
    def __init__(self, parts: AssembledWorker) -> None:
        self._parts = parts
        self._machines = MachineFinder(parts.deps.store, parts.deps.table, parts.apps)

    def bind(self, handlers: Handlers) -> None:
        handlers.on(GET_MACHINE, self.get)
        handlers.on(LIST_MACHINES, self.list_)
        handlers.on(UPDATE_MACHINE, self.update)
        handlers.on(DELETE_MACHINE, self.delete)
        handlers.on(LIST_EVENTS, self.events)
        handlers.on(LIST_VERSIONS, self.versions)

    async def get(self, call: Call[MachineParams, GetMachineQuery, None]) -> Machine:
        record = self._machines.find(call.params)
        wanted = call.query.version
        if wanted is not None and wanted != record.version:
            record = self._as_of(record, wanted)
        return self.show(record, with_lease=call.query.include_leases)

    async def list_(self, call: Call[AppParams, ListMachinesQuery, None]) -> Page[Machine]:
        query, parts = call.query, self._parts
        app = parts.apps.get(parts.deps.store, call.params.app_name)
        show = self._summary if query.summary else self.show
        with parts.deps.store.snapshot() as reader:
            find = partial(self._listed, reader, app.name, query)
            page = await page_found(_ids(reader, app.name, query), find, query.limit, query.cursor, most=APPS_IN_PAGE)
            shown: list[Machine] = []
            for records in _batches(page.items):
                shown += [show(record, reader=reader, with_lease=query.include_leases) for record in records]
                await checkpoint()  # so that a long list holds up nobody else
        return Page(tuple(shown), next_cursor=page.next_cursor)

    def _listed(self, reader: Reader, app: AppName, query: ListMachinesQuery, machine_id: str) -> MachineRecord | None:
        record = self._parts.deps.table.listed(reader, app, MachineId(machine_id))
        return record if record is not None and _matches(record, query) else None

    async def update(self, call: Call[MachineParams, NoQuery, UpdateMachineRequest]) -> Machine:
        parts, body = self._parts, call.body
        current = self._machines.find(call.params)
        validate(body.config, parts.deps.driver.features)
        if body.name not in (None, "", current.name) or body.region not in (None, "", current.region):
            raise Unprocessable("name and region of a machine cannot be changed")
        leases.check(current, call.nonce, parts.deps.clock.now())
        check_image_names(call.grant, body.config, parts.deps.settings.listed_registries)
        skip = self._check_secrets(current.app, body)
        await check_uploads(parts.deps, parts.apps.get(parts.deps.store, current.app), body.config)
        org = org_of(parts.deps.store, current.app)
        images = await resolve(OrgImages(parts.deps.images, parts.deps.logins, org), body.config)
        change = ConfigChange(
            config=body.config,
            image=images.shown,
            container_images=images.of_containers,
            launch=not body.skip_launch,
            current_version=body.current_version or None,
            skip_secrets=skip,
            lease=leases.new(parts.deps.clock, call.caller, "", body.lease_ttl) if body.lease_ttl else None,
        )
        updated = await parts.operations.update(target_of(call.params, call.nonce), change)
        return self.show(updated, nonce=updated.lease.nonce if updated.lease and body.lease_ttl else None)

    async def delete(self, call: Call[MachineParams, DeleteMachineQuery, None]) -> Ok:
        record = self._machines.find(call.params)
        if record.state is State.DESTROYED:
            raise NotFound("machine not found")
        await self._parts.operations.destroy(
            target_of(call.params, call.nonce), force=call.query.force or call.query.kill
        )
        return Ok(ok=True)

    async def events(self, call: Call[MachineParams, ListEventsQuery, None]) -> tuple[MachineEvent, ...]:
        limit = call.query.limit
        if limit < 1:
            raise BadRequest(f"limit must be between 1 and {_MOST_EVENTS}, not {limit}")
        record = self._machines.find(call.params)
        return tuple(map(views.event, self._events(self._parts.deps.store, record, min(limit, _MOST_EVENTS))))

    async def versions(self, call: Call[MachineParams, NoQuery, None]) -> tuple[MachineVersion, ...]:
        record = self._machines.find(call.params)
        return tuple(map(views.version, self._versions(record)))

    def _check_secrets(self, app: AppName, body: CreateMachineRequest | UpdateMachineRequest) -> bool:
        """Whether the machine is to go without; raises when it cannot have those that it names."""
        deps, skip = self._parts.deps, bool(body.skip_secrets)
        deps.secrets.check_version(deps.store, app, body.min_secrets_version)
        deps.secrets.check_names(app, body.config, skip=skip)
        return skip

    def _as_of(self, record: MachineRecord, version: str) -> MachineRecord:
        """An old version of a machine is replaced for ever (contract 3.1)."""
        for old in self._versions(record):
            if old.version == version:
                return msgspec.structs.replace(
                    record,
                    version=old.version,
                    config=old.config,
                    image=old.image,
                    container_images=old.container_images,
                    state=State.REPLACED,
                )
        raise NotFound("machine not found")

    def show(
        self,
        record: MachineRecord,
        *,
        nonce: str | None = None,
        reader: Reader | None = None,
        with_lease: bool = False,
    ) -> Machine:
        lease_at = self._parts.deps.clock.now() if with_lease else None
        reader = reader or self._parts.deps.store
        events = self._events(reader, record, _EVENTS_IN_MACHINE)
        container_supervisors = self._parts.container_supervisors
        checks = (*self._parts.health.of(record), *container_supervisors.checks(record))
        containers = container_supervisors.containers(record)
        whole = msgspec.structs.replace(record, config=attachment.shown(reader, record))
        return views.machine(
            whole, events, checks, nonce=nonce, lease_at=lease_at, containers=containers, host=self._parts.node.id
        )

    def _summary(self, record: MachineRecord, *, reader: Reader, with_lease: bool = False) -> Machine:
        lease_at = self._parts.deps.clock.now() if with_lease else None
        shown = views.machine(record, [], (), lease_at=lease_at, host=self._parts.node.id)
        return msgspec.structs.replace(shown, config=None)

    def _events(self, reader: Reader, record: MachineRecord, limit: int) -> list[EventRecord]:
        return self._parts.deps.table.events(reader, record.id, limit)

    def _versions(self, record: MachineRecord) -> list[VersionRecord]:
        return self._parts.deps.table.versions(self._parts.deps.store, record.id)


def _ids(reader: Reader, app: AppName, query: ListMachinesQuery) -> Iterator[str]:
    """Of the app's machines after the cursor, in order; of those that are gone, if asked for, of all apps."""
    after = after_of(query.cursor)
    there = keys_of(reader, BY_APP, f"{app}/", after=after)
    return merge(there, keys_of(reader, DESTROYED, after=after)) if query.include_deleted else there


def _matches(record: MachineRecord, query: ListMachinesQuery) -> bool:
    metadata = record.config.metadata or {}
    return (
        (not query.state or record.state in query.state)
        and (not query.region or record.region == query.region)
        and all(metadata.get(key) == value for key, value in query.metadata.items())
    )


def _batches(records: Sequence[MachineRecord]) -> Iterator[Sequence[MachineRecord]]:
    return (records[start : start + _SHOWN_AT_ONCE] for start in range(0, len(records), _SHOWN_AT_ONCE))


class HistoryHandlers:
    def __init__(self, store: Store, archive: Archive | None) -> None:
        self._store = store
        self._archive = archive

    def bind(self, handlers: Handlers) -> None:
        handlers.on(MACHINE_HISTORY, self.tell)

    async def tell(self, call: Call[HistoryParams, NoQuery, None]) -> MachineHistory:
        history, kept = await self._find(call.params.machine_id)
        if history is None or not call.grant.permits(self._attempt(history)):
            raise NotFound("machine not found")
        return answer(history, kept)

    async def _find(self, machine_id: str) -> tuple[History | None, Kept]:
        archive = self._archive
        with self._store.snapshot() as reader:
            history = live_history(reader, MachineId(machine_id))
        if history is not None or archive is None:
            return history, Kept.NODE
        return await archive.read(machine_id), Kept.ARCHIVE

    def _attempt(self, history: History) -> Attempt:
        """Whoever may read the app may read its machines' histories; not those of an earlier app of the same name,
        which may have been somebody else's: these take someone who may read the whole node."""
        machine = history.machine
        app = self._store.get(APPS, machine.app)
        if app is None or app.created_at > machine.created_at.timestamp():
            return Attempt(Action.READ)
        return Attempt(Action.READ, app=machine.app, machine=machine.id)


class MetadataHandlers:
    def __init__(self, machines: MachineFinder, store: Store, table: MachineTable, enforcer: PolicyEnforcer) -> None:
        self._machines = machines
        self._store = store
        self._table = table
        self._enforcer = enforcer

    def bind(self, handlers: Handlers) -> None:
        handlers.on(LIST_METADATA, self.list)
        handlers.on(UPDATE_METADATA, self.update)
        handlers.on(GET_METADATA, self.get)
        handlers.on(SET_METADATA, self.set)
        handlers.on(DELETE_METADATA, self.delete)

    async def list(self, call: Call[MachineParams, NoQuery, None]) -> dict[str, str]:
        return self._machines.find(call.params).config.metadata or {}

    async def get(self, call: Call[MetadataKeyParams, NoQuery, None]) -> MetadataValue:
        metadata = self._machines.find(call.params).config.metadata or {}
        if call.params.key not in metadata:
            raise NotFound(f"metadata key '{call.params.key}' not found")
        return MetadataValue(value=metadata[call.params.key])

    async def update(self, call: Call[MachineParams, NoQuery, UpdateMetadataRequest]) -> None:
        record = self._machines.find(call.params)
        await self._merge(record, call.body.metadata or {}, call.body.machine_version or None)

    async def set(self, call: Call[MetadataKeyParams, NoQuery, SetMetadataRequest]) -> None:
        await self._merge(self._machines.find(call.params), {call.params.key: call.body.value}, None)

    async def delete(self, call: Call[MetadataKeyParams, NoQuery, None]) -> None:
        await self._merge(self._machines.find(call.params), {call.params.key: None}, None)

    async def _merge(self, seen: MachineRecord, changes: Mapping[str, str | None], version: str | None) -> None:
        """Null and "" remove a key; what is not named stays. Raises `Moved` once another node owns the machine."""
        table = self._table

        def apply(tx: Tx) -> AppName:
            record = table.find(tx, seen.app, seen.id)
            if record.state in GONE:
                raise NotFound("machine not found")
            if version not in (None, record.version):
                raise WrongState(f"machine version {version} is stale, the current one is {record.version}")
            previous = record.previous
            if previous is not None:  # an update that falls back must not lose what is acknowledged here
                previous = msgspec.structs.replace(previous, config=_merged(previous.config, changes))
            table.change(tx, record, config=_merged(record.config, changes), previous=previous)
            return record.app

        app = await self._store.write(apply)
        await self._enforcer.renew_soon(app)


def _merged(config: MachineConfig, changes: Mapping[str, str | None]) -> MachineConfig:
    before = config.metadata or {}
    metadata = {key: value for key, value in {**before, **changes}.items() if value}
    validate_metadata(metadata, before)
    return msgspec.structs.replace(config, metadata=metadata or None)
