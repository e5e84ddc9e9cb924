"""Answers about what an organization has, over all its apps, and about quotas."""

from collections.abc import Iterator
from functools import partial
from heapq import merge

import msgspec

from hawker.api.bounds import IN_PAGE
from hawker.api.contract.body import instant
from hawker.api.contract.org import (
    CLEAR_QUOTA,
    LIST_ORG_MACHINES,
    LIST_QUOTAS,
    PUT_QUOTA,
    MachineOverview,
    OrgMachine,
    OrgMachines,
    OrgMachinesQuery,
    OrgParams,
    Quota,
    QuotaAmounts,
    QuotaLimits,
    QuotaList,
    QuotaParams,
)
from hawker.api.grant import Grant
from hawker.api.handlers import Handlers, answers
from hawker.api.paging import after_of, page_found
from hawker.api.route import Call, NoParams, NoQuery
from hawker.config import with_guest
from hawker.errors import NotFound
from hawker.ids import AppName
from hawker.machine import State
from hawker.permission import Action, Attempt
from hawker.quota.quotas import Quotas
from hawker.record.machine import DESTROYED, MACHINES, MachineRecord
from hawker.record.org import Amount, QuotaRecord, QuotaRule
from hawker.store.contract import Bucket, Reader, Store, keys_of
from hawker.worker.apps import AppTable


class OrgHandlers:
    def __init__(self, store: Store, apps: AppTable) -> None:
        self._store = store
        self._apps = apps

    @answers(LIST_ORG_MACHINES)
    async def machines(self, call: Call[OrgParams, OrgMachinesQuery, None]) -> OrgMachines:
        query, limit = call.query, IN_PAGE if call.query.limit is None else call.query.limit
        apps = readable_apps(self._apps, call.params.org_slug, call.grant)
        with self._store.snapshot() as reader:
            find = partial(_find, reader, apps, query)
            page = await page_found(_ids(reader, query), find, limit, query.cursor, most=IN_PAGE)
        last = page.items[-1] if page.items else None
        return OrgMachines(
            machines=tuple(_shown(record, summary=query.summary) for record in page.items),
            next_cursor=page.next_cursor or "",
            last_machine_id="" if last is None else last.id,
            last_updated_at=None if last is None else instant(last.updated_at),
            error_regions=(),
        )


def readable_apps(apps: AppTable, org: str, grant: Grant) -> frozenset[AppName]:
    """The apps of the organization that the caller may read."""
    named = (record.name for record in apps.list(org) if record.org == org)
    return frozenset(name for name in named if grant.permits(Attempt(Action.READ, org=org, app=name)))


def _ids(reader: Reader, query: OrgMachinesQuery) -> Iterator[str]:
    """Of every machine after the cursor, in order."""
    there, gone = (keys_of(reader, bucket, after=after_of(query.cursor)) for bucket in (MACHINES, DESTROYED))
    return merge(there, gone) if query.include_deleted else there


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """What decides whether a machine is in the list: its config is read only if it is."""

    app: AppName
    state: State
    region: str
    updated_at: float


_HEADS = tuple((Bucket(bucket.name, _Head), bucket) for bucket in (MACHINES, DESTROYED))


def _find(reader: Reader, apps: frozenset[AppName], query: OrgMachinesQuery, machine_id: str) -> MachineRecord | None:
    for heads, bucket in _HEADS:
        head = reader.get(heads, machine_id)
        if head is not None:
            return reader.get(bucket, machine_id) if head.app in apps and _matches(head, query) else None
    return None


def _matches(record: _Head, query: OrgMachinesQuery) -> bool:
    since = None if query.updated_after is None else query.updated_after.timestamp()
    return (
        (not query.state or record.state in query.state)
        and (not query.region or record.region == query.region)
        and (since is None or record.updated_at > since)
    )


def _shown(record: MachineRecord, *, summary: bool) -> OrgMachine:
    config = with_guest(record.config)
    overview = MachineOverview(image=config.image, guest=config.guest, metadata=config.metadata)
    return OrgMachine(
        id=record.id,
        app_name=record.app,
        name=record.name,
        state=record.state,
        region=record.region,
        version=record.version,
        instance_id=record.version,
        private_ip=record.network.private_ip,
        created_at=instant(record.created_at),
        updated_at=instant(record.updated_at),
        config=None if summary else overview,
    )


_KINDS = ("org", "app")


class QuotaHandlers:
    def __init__(self, store: Store, quotas: Quotas) -> None:
        self._store = store
        self._quotas = quotas

    def bind(self, handlers: Handlers) -> None:
        handlers.on(LIST_QUOTAS, self.list)
        handlers.on(PUT_QUOTA, self.put)
        handlers.on(CLEAR_QUOTA, self.clear)

    async def list(self, call: Call[NoParams, NoQuery, None]) -> QuotaList:
        return QuotaList(quotas=tuple(map(self._shown, self._quotas.all(self._store).values())))

    async def put(self, call: Call[QuotaParams, NoQuery, QuotaLimits]) -> Quota:
        limits = QuotaRule(**msgspec.structs.asdict(call.body))
        return self._shown(await self._quotas.put(_subject(call.params), limits, call.caller))

    async def clear(self, call: Call[QuotaParams, NoQuery, None]) -> Quota:
        subject = _subject(call.params)
        if subject not in self._quotas.all(self._store):
            raise NotFound(f"there is no quota of {subject!r:.100}: see `hawker quotas show`")
        return self._shown(await self._quotas.put(subject, QuotaRule(), call.caller))

    def _shown(self, record: QuotaRecord) -> Quota:
        return Quota(
            subject=record.subject,
            limits=QuotaLimits(**msgspec.structs.asdict(record.limits)),
            used_here=_amounts(self._quotas.used(self._store, record.subject)),
            used_elsewhere=_amounts(self._quotas.elsewhere(record.subject)),
            set_at=instant(record.at),
            set_by=record.by,
        )


def _subject(params: QuotaParams) -> str:
    if params.kind not in _KINDS or (params.kind == "app" and params.name == "*"):
        raise NotFound(f"a quota is of an org or an app, not of {params.kind!r:.20}/{params.name!r:.80}")
    return f"{params.kind}/{params.name}"


def _amounts(amount: Amount) -> QuotaAmounts:
    return QuotaAmounts(**msgspec.structs.asdict(amount))
