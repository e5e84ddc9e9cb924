"""Lists over several nodes: machines, volumes and runs, page by page. A region that cannot be asked is named, and the
rest is answered.

Of a host that does not answer, lists show the catalog's rows, as API bodies that say so: what the host published last.
What the catalog does not have (configs, events, blocks) is left out.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from hawker.api.bounds import IN_PAGE
from hawker.api.caller import Caller
from hawker.api.contract.app import AppParams
from hawker.api.contract.body import instant
from hawker.api.contract.machine import LIST_MACHINES, ImageRef, ListMachinesQuery, Machine
from hawker.api.contract.machine import Machine as MachineBody
from hawker.api.contract.org import LIST_ORG_MACHINES, OrgMachine, OrgMachines, OrgMachinesQuery, OrgParams
from hawker.api.contract.run import LIST_RUNS, ListRunsQuery, RunList, RunSummary
from hawker.api.contract.volume import (
    LIST_ORG_VOLUMES,
    LIST_VOLUMES,
    ListVolumesQuery,
    OrgVolume,
    OrgVolumes,
    OrgVolumesQuery,
    Volume,
)
from hawker.api.directory import AppIndex, KnownMachine, KnownVolume, Node
from hawker.api.grant import Grant
from hawker.api.handlers import Handlers
from hawker.api.paging import after_of, cursor_after
from hawker.api.route import Call, NoParams, Page, Q, Unary
from hawker.config import MachineConfig
from hawker.errors import NotFound
from hawker.gateway.fan_out import FanOut
from hawker.gateway.owners import Kind, Owners
from hawker.ids import AppName, NodeId, is_volume_id
from hawker.machine import State
from hawker.permission import Action, Attempt
from hawker.value_object import ValueObject

T = TypeVar("T")

UNREACHABLE = "unreachable"
ALL_ROWS = -1
"""The limit that means the whole list."""


class SilentRows(Protocol):
    """Rows of one node and app, by id, beyond `after`, at most `limit` or `ALL_ROWS`: of this region's nodes only."""

    def machines_at(self, node: NodeId, app: AppName, after: str, limit: int) -> Sequence[KnownMachine]: ...

    def volumes_at(self, node: NodeId, app: AppName, after: str, limit: int) -> Sequence[KnownVolume]: ...


def machine_of(row: KnownMachine, host: Node) -> Machine | None:
    """The machine as answers show it; None for one in a state that this version does not know."""
    try:
        state = State(row.state)
    except ValueError:
        return None
    return Machine(
        id=row.id,
        name=row.name,
        state=state,
        region=host.region,
        image_ref=ImageRef(registry="", repository="", tag="", digest=row.image),
        instance_id=row.version,
        version=row.version,
        private_ip=row.private_ip,
        created_at=instant(row.created_at),
        updated_at=instant(row.updated_at),
        host_status=UNREACHABLE,
        incomplete_config=MachineConfig(metadata=dict(row.metadata) or None),
        host=host.id,
        cordoned=row.cordoned,
    )


def volume_of(row: KnownVolume, host: Node) -> Volume:
    """The volume as answers show it. Its host is its zone, as of every volume; when it was made is not known."""
    return Volume(
        id=row.id,
        name=row.name,
        state=row.state,
        size_gb=row.size_gb,
        region=host.region,
        zone=host.id,
        encrypted=False,
        attached_machine_id=row.machine or None,
        attached_alloc_id=row.machine or None,
        created_at=instant(0),
        fstype="",
        snapshot_retention=0,
        auto_backup_enabled=False,
        host_status=UNREACHABLE,
        type="local",
    )


def selects(query: ListMachinesQuery) -> Callable[[KnownMachine], bool]:
    """The filter by which a worker would select its own machines for this query."""

    def selected(row: KnownMachine) -> bool:
        right_state = not query.state or row.state in query.state
        return right_state and all(row.metadata.get(key) == value for key, value in query.metadata.items())

    return selected


class PagePart(ValueObject, Generic[T], frozen=True, kw_only=True):
    """The page of one node: `items` in order, `upto` the key that it got to if there is more, else None."""

    items: Sequence[T]
    upto: str | None = None


class Whole(ValueObject, Generic[T], frozen=True, kw_only=True):
    """`upto` is the key to go on after, None at the end of the list."""

    items: tuple[T, ...]
    upto: str | None = None


def merged(
    parts: Iterable[PagePart[T]],
    key: Callable[[T], str],
    limit: int | None,
    *,
    newest_first: bool = False,
    better: Callable[[T, T], T] = lambda first, other: first,
) -> Whole[T]:
    """The pages as one: at most `limit` items, in the order of `key`, or against it with `newest_first`. Of several
    with one key `better` says which counts."""
    parts = tuple(parts)
    found: dict[str, T] = {}
    for part in parts:
        for item in part.items:
            name = key(item)
            found[name] = better(found[name], item) if name in found else item
    ends = [part.upto for part in parts if part.upto is not None]
    end = (max(ends) if newest_first else min(ends)) if ends else None
    names = sorted(found, reverse=newest_first)
    within = [name for name in names if end is None or (name >= end if newest_first else name <= end)]
    shown = within if limit is None else within[:limit]
    items = tuple(found[name] for name in shown)
    if len(shown) < len(within):
        return Whole(items=items, upto=shown[-1])
    return Whole(items=items, upto=end)


# Pages of one list from several nodes, as one page. Pure. Each node gives its first items beyond the same cursor.
# What a node did not get to show lies beyond its own cursor, so nothing beyond the least of these is shown: no item
# is ever passed over, whatever a page holds.

MOST_ROUNDS = 20
"""The most times that nodes are asked again for a page of which the caller may not see everything."""


class Lists:
    def __init__(self, owners: Owners, asking: FanOut, index: AppIndex, rows: SilentRows) -> None:
        self._owners = owners
        self._fan_out = asking
        self._index = index
        self._rows = rows

    def bind(self, handlers: Handlers) -> None:
        handlers.on(LIST_MACHINES, self.machines)
        handlers.on(LIST_VOLUMES, self.volumes)
        handlers.on(LIST_ORG_MACHINES, self.org_machines)
        handlers.on(LIST_ORG_VOLUMES, self.org_volumes)
        handlers.on(LIST_RUNS, self.runs)

    async def machines(self, call: Call[AppParams, ListMachinesQuery, None]) -> Page[MachineBody]:
        app, selected = AppName(call.params.app_name), selects(call.query)

        def last_said(host: Node, after: str, limit: int) -> PagePart[MachineBody]:
            rows = self._rows.machines_at(host.id, app, after, limit)
            made = [machine_of(row, host) for row in rows if selected(row)]
            return PagePart(items=[each for each in made if each is not None], upto=_end(rows, limit))

        return await self._of_app(LIST_MACHINES, call, "machine", call.query.region, last_said)

    async def volumes(self, call: Call[AppParams, ListVolumesQuery, None]) -> Page[Volume]:
        app = AppName(call.params.app_name)

        def last_said(host: Node, after: str, limit: int) -> PagePart[Volume]:
            rows = self._rows.volumes_at(host.id, app, after, limit)
            return PagePart(items=[volume_of(row, host) for row in rows], upto=_end(rows, limit))

        return await self._of_app(LIST_VOLUMES, call, "volume", None, last_said)

    async def org_machines(self, call: Call[OrgParams, OrgMachinesQuery, None]) -> OrgMachines:
        async def ask(cursor: str, caller: Caller) -> PagePart[OrgMachine]:
            query = _after(call.query, cursor)
            page = await caller.call(LIST_ORG_MACHINES, params=call.params, query=query)
            return PagePart(items=page.machines, upto=after_of(page.next_cursor) or None)

        whole, missing = await self._of_org(call, ask, lambda item: item.app_name, "machine")
        last = whole.items[-1] if whole.items else None
        return OrgMachines(
            machines=whole.items,
            next_cursor="" if whole.upto is None else cursor_after(whole.upto),
            last_machine_id="" if last is None else last.id,
            last_updated_at=None if last is None else last.updated_at,
            error_regions=missing,
        )

    async def org_volumes(self, call: Call[OrgParams, OrgVolumesQuery, None]) -> OrgVolumes:
        async def ask(cursor: str, caller: Caller) -> PagePart[OrgVolume]:
            query = _after(call.query, cursor)
            page = await caller.call(LIST_ORG_VOLUMES, params=call.params, query=query)
            return PagePart(items=page.volumes, upto=after_of(page.next_cursor) or None)

        whole, missing = await self._of_org(call, ask, lambda item: item.app_name, "volume")
        last = whole.items[-1] if whole.items else None
        return OrgVolumes(
            volumes=whole.items,
            next_cursor="" if whole.upto is None else cursor_after(whole.upto),
            last_volume_id="" if last is None else last.id,
            last_updated_at=None if last is None else last.updated_at,
            error_regions=missing,
        )

    async def runs(self, call: Call[NoParams, ListRunsQuery, None]) -> RunList:
        """The runs of one resource by its owner, else of all nodes."""
        query = call.query

        async def ask(caller: Caller) -> PagePart[RunSummary]:
            page = await caller.call(LIST_RUNS, query=query)
            return PagePart(items=page.runs, upto=page.next_cursor)

        asked = await self._fan_out.every(self._run_nodes(query.resource_id), call.behalf, ask)
        asked.some("runs")
        call.metadata.missing_regions = asked.regions
        whole = merged((part for _, part in asked.answers), lambda run: run.id, query.limit, newest_first=True)
        return RunList(runs=whole.items, next_cursor=whole.upto)

    def _run_nodes(self, resource_id: str | None) -> Iterable[NodeId]:
        if resource_id:
            owner = self._owners.known("volume" if is_volume_id(resource_id) else "machine", resource_id)
            if owner is not None:
                return (owner,)
        return (node.id for node in self._owners.directory.nodes())

    async def _of_app(
        self,
        route: Unary[AppParams, Any, None, Page[T]],
        call: Call[AppParams, Any, None],
        kind: Kind,
        region: str | None,
        last_said: Callable[[Node, str, int], PagePart[T]],
    ) -> Page[T]:
        """What nodes that do not answer said last is in it, where the catalog has it."""
        after = after_of(call.query.cursor) or ""
        app = AppName(call.params.app_name)
        nodes = self._owners.nodes_of_app(app, await self._owners.hint(call.version))
        if not nodes:
            raise NotFound("app not found")

        async def ask(caller: Caller) -> PagePart[T]:
            page = await caller.call(route, params=call.params, query=call.query)
            return PagePart(items=page.items, upto=after_of(page.next_cursor) or None)

        asked = await self._fan_out.every(self._in_region(nodes, region), call.behalf, ask)
        asked.some(f"app '{app}'")
        if not asked.answers and region is None:
            raise NotFound("app not found")
        call.metadata.missing_regions = asked.regions
        call.metadata.missing_nodes = tuple(node for node, _ in asked.silent)
        limit = call.query.limit or ALL_ROWS
        hosts = [host for node, _ in asked.silent if (host := self._owners.directory.node(node)) is not None]
        answers = (*asked.answers, *((host.id, last_said(host, after, limit)) for host in hosts))
        whole = self._whole(answers, kind, call.query.limit)
        return Page(whole.items, next_cursor=None if whole.upto is None else cursor_after(whole.upto))

    async def _of_org(
        self,
        call: Call[OrgParams, Any, None],
        ask: Callable[[str, Caller], Awaitable[PagePart[T]]],
        app_of: Callable[[T], str],
        kind: Kind,
    ) -> tuple[Whole[T], tuple[str, ...]]:
        """A page, and the regions that could not be asked. What the caller may not see makes room for more."""
        after_of(call.query.cursor)
        org, limit = call.params.org_slug, call.query.limit or IN_PAGE
        nodes = self._in_region([known.node for known in self._index.apps(org)], call.query.region)
        allowed = _Allowed(call.grant, org)
        items, missing, cursor = list[T](), set[str](), call.query.cursor or ""
        upto: str | None = None
        for _ in range(MOST_ROUNDS):
            asked = await self._fan_out.every(nodes, call.behalf, partial(ask, cursor))
            asked.some(f"organization '{org}'")
            missing.update(asked.regions)
            whole = self._whole(asked.answers, kind, None)
            seen = [item for item in whole.items if allowed(app_of(item))]
            left = limit - len(items)
            items += seen[:left]
            upto = _id(seen[left - 1]) if len(seen) > left else whole.upto
            if upto is None or len(items) == limit:
                break
            cursor = cursor_after(upto)
        return Whole(items=tuple(items), upto=upto), tuple(sorted(missing))

    def _in_region(self, nodes: Iterable[NodeId], region: str | None) -> list[NodeId]:
        return [node for node in nodes if not region or self._fan_out.reach.region_of(node) == region]

    def _whole(self, answers: Sequence[tuple[NodeId, PagePart[T]]], kind: Kind, limit: int | None) -> Whole[T]:
        """Of one that two nodes show, as may be while it moves, its owner's word counts."""

        def better(first: tuple[NodeId, T], other: tuple[NodeId, T]) -> tuple[NodeId, T]:
            return other if self._owners.known(kind, _id(other[1])) == other[0] else first

        parts = [PagePart(items=[(node, item) for item in part.items], upto=part.upto) for node, part in answers]
        whole = merged(parts, lambda pair: _id(pair[1]), limit, better=better)
        return Whole(items=tuple(item for _, item in whole.items), upto=whole.upto)


class _Allowed:
    """Whether the caller may read an app; asked once for each."""

    def __init__(self, grant: Grant, org: str) -> None:
        self._grant = grant
        self._org = org
        self._known: dict[str, bool] = {}

    def __call__(self, app: str) -> bool:
        if app not in self._known:
            self._known[app] = self._grant.permits(Attempt(Action.READ, org=self._org, app=app))
        return self._known[app]


def _id(item: Any) -> str:
    return str(item.id)


def _end(rows: Sequence[KnownMachine | KnownVolume], limit: int) -> str | None:
    return rows[-1].id if len(rows) == limit else None


def _after(query: Q, cursor: str) -> Q:
    return msgspec.structs.replace(query, cursor=cursor or None)
