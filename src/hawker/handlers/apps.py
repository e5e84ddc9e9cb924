"""Answers about apps, their addresses, and files that are uploaded for their machines, and pieces of them."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from hawker.api.contract.app import (
    ASSIGN_IP,
    CREATE_APP,
    DELETE_APP,
    GET_APP,
    LIST_APPS,
    LIST_IPS,
    RELEASE_IP,
    App,
    AppList,
    AppParams,
    AssignIpRequest,
    CreateAppQuery,
    CreateAppRequest,
    DeleteAppQuery,
    IpAssignment,
    IpAssignments,
    IpNetwork,
    IpParams,
    ListAppsQuery,
)
from hawker.api.contract.app_file import (
    GET_APP_FILE,
    HAND_APP_FILE,
    PUT_APP_FILE,
    AppFile,
    AppFileParams,
    AppFileQuery,
    HandedFileParams,
    HandedFileQuery,
)
from hawker.api.contract.body import instant
from hawker.api.contract.image import PIECE_BYTES
from hawker.api.handlers import Handlers, answers
from hawker.api.paging import page_of
from hawker.api.route import Call, NoParams, NoQuery
from hawker.app import DEFAULT_ORG
from hawker.errors import NotFound, NotServed, Unprocessable
from hawker.fair.table import HANDOVERS
from hawker.fair.threads import Pool, in_thread
from hawker.fair.turns import Turns
from hawker.fsm.runner import Runner
from hawker.machine import GONE
from hawker.permission import Action, Attempt
from hawker.quota.quotas import Quotas
from hawker.record import views
from hawker.record.app import AppRecord, IpRecord
from hawker.record.machine import MachineTarget, machine_resource
from hawker.record.org import Amount
from hawker.secret.certificates import Certificates
from hawker.store.contract import Store
from hawker.worker.apps import AppFiles, AppTable
from hawker.worker.ip_assignments import IpAllocator, IpRequest
from hawker.worker.operations import Operations
from hawker.worker.table import MachineTable

_DESTROY_TIMEOUT_S = 60.0


class AppHandlers:
    def __init__(
        self,
        store: Store,
        table: MachineTable,
        runner: Runner[Any],
        operations: Operations,
        apps: AppTable,
        certificates: Certificates,
    ) -> None:
        self._store = store
        self._table = table
        self._runner = runner
        self._operations = operations
        self._apps = apps
        self._certificates = certificates

    def bind(self, handlers: Handlers) -> None:
        handlers.on(LIST_APPS, self.list)
        handlers.on(CREATE_APP, self.create)
        handlers.on(GET_APP, self.get)
        handlers.on(DELETE_APP, self.delete)

    async def list(self, call: Call[NoParams, ListAppsQuery, None]) -> AppList:
        """The apps that the caller's token may see."""
        every = [] if call.query.app_role else self._apps.list(call.query.org_slug)
        grant = call.grant
        records = [app for app in every if grant.permits(Attempt(Action.READ, org=app.org, app=app.name))]
        page = page_of(records, lambda record: record.name, call.query.limit, call.query.cursor)
        shown = tuple(self._view(record) for record in page.items)
        return AppList(total_apps=len(records), apps=shown, next_cursor=page.next_cursor)

    async def create(self, call: Call[NoParams, CreateAppQuery, CreateAppRequest]) -> App:
        body = call.body
        name = body.name or body.app_name
        if not name:
            raise Unprocessable("name is required")
        call.grant.check(Attempt(Action.CREATE, org=body.org_slug or DEFAULT_ORG, app=name))
        key = body.idempotency_key or call.idempotency_key
        return self._view(await self._apps.create(name, org=body.org_slug, network=body.network, key=key))

    async def get(self, call: Call[AppParams, NoQuery, None]) -> App:
        return self._view(self._apps.get(self._store, call.params.app_name))

    async def delete(self, call: Call[AppParams, DeleteAppQuery, None]) -> None:
        app = self._apps.get(self._store, call.params.app_name)
        if call.query.forced:
            await self._destroy_machines(app)
        hostnames = self._certificates.hostnames(app.name)
        await self._apps.delete(app.name, force=call.query.forced)
        for hostname in hostnames:
            await self._certificates.release(app.name, hostname)

    async def _destroy_machines(self, app: AppRecord) -> None:
        machines = list(self._table.of_app(self._store, app.name))
        for record in machines:
            if record.state not in GONE:
                nonce = record.lease.nonce if record.lease else None
                await self._operations.destroy(MachineTarget(app.name, record.id, nonce), force=True)
        for record in machines:
            run = self._runner.list(resource=machine_resource(record.id), flow="destroy", limit=1)
            if run:
                await self._runner.wait(run[0].run_id, _DESTROY_TIMEOUT_S)

    def _view(self, record: AppRecord) -> App:
        apps, store = self._apps, self._store
        return views.app(record, apps.machine_count(store, record.name), apps.volume_count(store, record.name))


_MIB = 1 << 20


class AppFileHandlers:
    """`files` is None on a node that keeps none."""

    def __init__(self, store: Store, apps: AppTable, quotas: Quotas, files: AppFiles | None) -> None:
        self._store = store
        self._apps = apps
        self._quotas = quotas
        self._kept = files
        self._handovers = Turns(HANDOVERS)

    @answers(GET_APP_FILE)
    async def get(self, call: Call[AppFileParams, NoQuery, None]) -> AppFile:
        app = self._apps.get(self._store, call.params.app_name)
        size = self._files.size_of(app.id, call.params.digest)
        if size is None:
            raise NotFound(f"file {call.params.digest} was not uploaded for app '{app.name}'")
        return AppFile(digest=call.params.digest, size=size)

    @answers(PUT_APP_FILE)
    async def put(self, call: Call[AppFileParams, AppFileQuery, None], data: AsyncIterator[bytes]) -> AppFile:
        app, digest, size = self._apps.get(self._store, call.params.app_name), call.params.digest, call.query.size
        if size is None:
            raise Unprocessable("size: say how many bytes come")
        if self._files.size_of(app.id, digest) is None:
            more = Amount(disk_mb=-(-size // _MIB))
            await self._store.write(partial(self._quotas.check, app=app.name, more=more))
        await self._files.receive(app.id, digest, size, data)
        return AppFile(digest=digest, size=size)

    @answers(HAND_APP_FILE)
    async def hand(self, call: Call[HandedFileParams, HandedFileQuery, None]) -> bytes:
        """The name under which another node asks is the node's."""
        offset, count = max(0, call.query.offset), min(max(0, call.query.count), PIECE_BYTES)
        async with self._handovers.hold(f"node {call.share}"):
            return await in_thread(
                Pool.IMAGES, self._files.piece, call.params.app_id, call.params.digest, offset, count
            )

    @property
    def _files(self) -> AppFiles:
        if self._kept is None:
            raise NotServed("this node keeps no uploaded files")
        return self._kept


class IpHandlers:
    def __init__(self, store: Store, apps: AppTable, ips: IpAllocator) -> None:
        self._store = store
        self._apps = apps
        self._ips = ips

    def bind(self, handlers: Handlers) -> None:
        handlers.on(LIST_IPS, self.list)
        handlers.on(ASSIGN_IP, self.assign)
        handlers.on(RELEASE_IP, self.release)

    async def list(self, call: Call[AppParams, NoQuery, None]) -> IpAssignments:
        app = self._apps.get(self._store, call.params.app_name)
        return IpAssignments(ips=tuple(map(_view, self._ips.list(app.name))))

    async def assign(self, call: Call[AppParams, NoQuery, AssignIpRequest]) -> IpAssignment:
        """An address in a network of another org needs a right there."""
        body, app = call.body, self._apps.get(self._store, call.params.app_name)
        if body.org_slug not in (None, "", app.org):
            call.grant.check(Attempt(Action.WRITE, org=body.org_slug))
        wish = IpRequest(
            type=body.type or "",
            region=body.region or "",
            service_name=body.service_name or "",
            network=body.network or "",
            org=body.org_slug or "",
        )
        return _view(await self._ips.allocate(app.name, wish))

    async def release(self, call: Call[IpParams, NoQuery, None]) -> None:
        await self._ips.release(call.params.app_name, call.params.ip)


def _view(record: IpRecord) -> IpAssignment:
    return IpAssignment(
        id=record.id,
        ip=record.ip,
        type=record.type,
        region=record.region,
        service_name=record.service_name,
        shared=record.shared,
        created_at=instant(record.created_at),
        network=IpNetwork(name=record.network, org_slug=record.org) if record.network else None,
    )
