"""Answers about releases of apps."""

import msgspec

from hawker.api.contract.app import AppParams
from hawker.api.contract.body import instant
from hawker.api.contract.release import (
    CREATE_RELEASE,
    LIST_RELEASES,
    UPDATE_RELEASE,
    CreateReleaseRequest,
    ListReleasesQuery,
    Release,
    ReleaseList,
    ReleaseParams,
    UpdateReleaseRequest,
)
from hawker.api.handlers import answers
from hawker.api.route import Call, NoQuery
from hawker.clock import Clock
from hawker.deploys.releases import ReleaseTable, pinned_of
from hawker.errors import NotFound
from hawker.record.app import APPS, ReleaseRecord
from hawker.store.contract import Store


class ReleaseHandlers:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._releases = ReleaseTable(store, clock)

    @answers(LIST_RELEASES)
    async def list_(self, call: Call[AppParams, ListReleasesQuery, None]) -> ReleaseList:
        record = self._store.get(APPS, call.params.app_name)
        if record is None:
            raise NotFound("app not found")
        app = record.name
        wanted = call.query.status
        found = [record for record in self._releases.list(app) if wanted in (None, record.status)]
        return ReleaseList(releases=tuple(self._view(app, record) for record in found[: call.query.limit]))

    @answers(CREATE_RELEASE)
    async def create(self, call: Call[AppParams, NoQuery, CreateReleaseRequest]) -> Release:
        body, app = call.body, call.params.app_name
        record = await self._releases.add(
            app,
            image=body.image,
            strategy=body.strategy,
            description=body.description,
            definition=b"" if body.definition is None else msgspec.json.encode(body.definition),
            user=call.caller,
        )
        return self._view(app, record)

    @answers(UPDATE_RELEASE)
    async def update(self, call: Call[ReleaseParams, NoQuery, UpdateReleaseRequest]) -> Release:
        app, version = call.params.app_name, call.params.version
        if not version.isdecimal() or len(version) > 9:
            raise NotFound(f"app '{app}' has no release {version:.80}")
        return self._view(app, await self._releases.move(app, int(version), call.body.status))

    def _view(self, app: str, record: ReleaseRecord) -> Release:
        return Release(
            id=f"{app}.{record.version}",
            app_name=app,
            version=record.version,
            status=record.status,
            strategy=record.strategy,
            image=record.image,
            pinned=pinned_of(self._store, app, record),
            description=record.description,
            user=record.user,
            created_at=instant(record.created_at),
            updated_at=instant(record.updated_at),
            definition=msgspec.json.decode(record.definition) if record.definition else None,
        )
