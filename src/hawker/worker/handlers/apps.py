"""Answers about apps."""

from typing import Any

from hawker.api.contract.app import (
    CREATE_APP,
    DELETE_APP,
    GET_APP,
    LIST_APPS,
    App,
    AppList,
    AppParams,
    CreateAppQuery,
    CreateAppRequest,
    DeleteAppQuery,
    ListAppsQuery,
)
from hawker.api.handlers import Handlers
from hawker.api.paging import page_of
from hawker.api.route import Call, NoParams, NoQuery
from hawker.app import DEFAULT_ORG
from hawker.errors import Unprocessable
from hawker.fsm.runner import Runner
from hawker.machine import GONE
from hawker.permission import Action, Attempt
from hawker.record import views
from hawker.record.app import AppRecord
from hawker.record.machine import MachineTarget, machine_resource
from hawker.store.contract import Store
from hawker.worker.apps import AppTable
from hawker.worker.operations import Operations
from hawker.worker.table import MachineTable

_DESTROY_TIMEOUT_S = 60.0


class AppHandlers:
    def __init__(
        self, store: Store, table: MachineTable, runner: Runner[Any], operations: Operations, apps: AppTable
    ) -> None:
        self._store = store
        self._table = table
        self._runner = runner
        self._operations = operations
        self._apps = apps

    def bind(self, handlers: Handlers) -> None:
        handlers.on(LIST_APPS, self.list)
        handlers.on(CREATE_APP, self.create)
        handlers.on(GET_APP, self.get)
        handlers.on(DELETE_APP, self.delete)

    async def list(self, call: Call[NoParams, ListAppsQuery, None]) -> AppList:
        """Those that the caller's token may see."""
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
        await self._apps.delete(app.name, force=call.query.forced)

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
