"""What both faces of the front ask: calls of the route table in the name of who made theirs, and lists whole."""

from collections.abc import AsyncIterator
from typing import Any, Unpack

import msgspec
from anyio.lowlevel import checkpoint

from hawker.api.caller import CallOptions
from hawker.api.contract.app import GET_APP, LIST_APPS, App, AppParams, ListAppsQuery
from hawker.api.contract.release import LIST_RELEASES, ListReleasesQuery, Release
from hawker.api.on_behalf import OnBehalf
from hawker.api.route import B, Call, P, Q, R, Unary
from hawker.app import DEFAULT_ORG
from hawker.errors import NotFound, Unprocessable
from hawker.value_object import ValueObject

_PAGES = 20
"""How many pages of apps, of 5,000 each, one question goes through."""


MAX_COST = 30_000
"""Calls that one call leads to, things that these list, and fields that are answered of them, together."""


class Cost:
    """Lists within lists grow faster than any bound on what a question says, so what it leads to is counted."""

    def __init__(self) -> None:
        self._left = MAX_COST

    def spend(self, count: int) -> None:
        """Raises `Unprocessable` once it is too much."""
        self._left -= count
        if self._left < 0:
            raise Unprocessable(f"the question leads to more than {MAX_COST} things: ask for less at once")


class Asking(ValueObject, frozen=True):
    """One client's call, and the calls that it leads to."""

    behalf: OnBehalf
    outer: Call[Any, Any, Any]
    cost: Cost = msgspec.field(default_factory=Cost)

    async def call(self, route: Unary[P, Q, B, R], **options: Unpack[CallOptions[P, Q, B]]) -> R:
        """Others have a turn of the event loop before it."""
        self.cost.spend(1)
        await checkpoint()
        return await self.behalf.call(self.outer, route, **options)

    async def apps(self, org: str | None = None) -> AsyncIterator[App]:
        """All that the token may read."""
        cursor = None
        for _ in range(_PAGES):
            page = await self.call(LIST_APPS, query=ListAppsQuery(org_slug=org, cursor=cursor))
            self.cost.spend(len(page.apps))
            for app in page.apps:
                yield app
            cursor = page.next_cursor
            if cursor is None:
                return
        raise Unprocessable("there are too many apps for this question: ask by organization")

    async def app(self, name: str) -> App:
        """Raises `NotFound` with the text that flyctl looks for."""
        try:
            return await self.call(GET_APP, params=AppParams(app_name=name))
        except NotFound:
            raise NotFound(f'Could not find App "{name:.80}"') from None

    async def organizations(self) -> list[str]:
        """Those that own an app which the token may read, and the default one."""
        return sorted({DEFAULT_ORG, *[app.organization.slug async for app in self.apps()]})

    async def check_organization(self, slug: str) -> None:
        """Raises `NotFound`. Asks for no other organization's apps."""
        if slug == DEFAULT_ORG:
            return
        async for _ in self.apps(slug):
            return
        raise NotFound(f"organization '{slug:.80}' has no app here that this token may read")

    async def releases(self, app: str, limit: int, status: str | None = None) -> tuple[Release, ...]:
        query = ListReleasesQuery(limit=limit, status=status)
        return (await self.call(LIST_RELEASES, params=AppParams(app_name=app), query=query)).releases

    async def current_release(self, app: str) -> Release | None:
        """The newest that came to its end, else the newest."""
        whole = await self.releases(app, 1, "complete")
        return next(iter(whole or await self.releases(app, 1)), None)
