"""Answers about apps."""

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
from hawker.api.route import Call, NoParams, NoQuery
from hawker.app import DEFAULT_ORG
from hawker.errors import Unprocessable
from hawker.machine import GONE
from hawker.permission import Action, Attempt
from hawker.record import views
from hawker.record.app import AppRecord
from hawker.record.machine import Target, machine_resource
from hawker.worker.assembly import AssembledWorker
from hawker.worker.handlers.paging import page_of

_DESTROY_TIMEOUT_S = 60.0


class AppHandlers:
    def __init__(self, parts: AssembledWorker) -> None:
        self._parts = parts

    def bind(self, handlers: Handlers) -> None:
        handlers.on(LIST_APPS, self.list)
        handlers.on(CREATE_APP, self.create)
        handlers.on(GET_APP, self.get)
        handlers.on(DELETE_APP, self.delete)

    async def list(self, call: Call[NoParams, ListAppsQuery, None]) -> AppList:
        """Those that the caller's token may see."""
        every = self._parts.apps.list(call.query.org_slug)
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
        return self._view(await self._parts.apps.create(name, org=body.org_slug, network=body.network, key=key))

    async def get(self, call: Call[AppParams, NoQuery, None]) -> App:
        return self._view(self._parts.apps.get(self._parts.deps.store, call.params.app_name))

    async def delete(self, call: Call[AppParams, DeleteAppQuery, None]) -> None:
        app = self._parts.apps.get(self._parts.deps.store, call.params.app_name)
        if call.query.force:
            await self._destroy_machines(app)
        await self._parts.apps.delete(app.name, force=call.query.force)

    async def _destroy_machines(self, app: AppRecord) -> None:
        parts = self._parts
        machines = list(parts.deps.table.of_app(parts.deps.store, app.name))
        for record in machines:
            if record.state not in GONE:
                nonce = record.lease.nonce if record.lease else None
                await parts.operations.destroy(Target(app.name, record.id, nonce), force=True)
        for record in machines:
            run = parts.runner.list(resource=machine_resource(record.id), flow="destroy", limit=1)
            if run:
                await parts.runner.wait(run[0].run_id, _DESTROY_TIMEOUT_S)

    def _view(self, record: AppRecord) -> App:
        apps, store = self._parts.apps, self._parts.deps.store
        return views.app(record, apps.machine_count(store, record.name), apps.volume_count(store, record.name))
