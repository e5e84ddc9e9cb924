"""The calls below /api/v1: organizations, builds, releases. They translate; what they call decides."""

from typing import get_args

from hawker.api.contract.app import AppParams
from hawker.api.contract.app_log import APP_LOG_PAGE, AppLogPageQuery
from hawker.api.contract.body import instant
from hawker.api.contract.flyctl import (
    BEGIN_BUILD,
    BEGIN_RELEASE,
    CURRENT_RELEASE,
    CURRENT_RELEASES,
    FINISH_BUILD,
    FLY_LOGS,
    FLY_ORGANIZATION,
    FLY_ORGANIZATIONS,
    FLY_RELEASES,
    MOVE_RELEASE,
    REMOTE_BUILDER,
    AppTimes,
    Build,
    BuildRequest,
    FlyLogs,
    FlyLogsMeta,
    FlyLogsQuery,
    FlyOrganizationAnswer,
    FlyOrganizations,
    FlyRelease,
    FlyReleaseAnswer,
    FlyReleaseParams,
    FlyReleaseRequest,
    FlyReleases,
    FlyReleasesQuery,
    FlyReleaseUpdate,
    OrganizationParams,
)
from hawker.api.contract.release import (
    CREATE_RELEASE,
    UPDATE_RELEASE,
    CreateReleaseRequest,
    ReleaseMove,
    ReleaseParams,
    UpdateReleaseRequest,
)
from hawker.api.handlers import answers
from hawker.api.on_behalf import OnBehalf
from hawker.api.route import Call, NoParams, NoQuery
from hawker.clock import Clock
from hawker.errors import NotFound, Unprocessable
from hawker.flyfront import shapes
from hawker.flyfront.asking import Asking

_NO_BUILDER = (
    "there is no remote builder here: give --image, or build with docker or podman, push to a registry and give its "
    "name; `flyctl deploy --buildkit-addr tcp://HOST:1234` asks a buildkitd of your own"
)
_MOVES: tuple[ReleaseMove, ...] = get_args(ReleaseMove)


_LAST_LINES = 100
_HELD_S = 10.0


class UiexHandlers:
    def __init__(self, behalf: OnBehalf, clock: Clock) -> None:
        self._behalf = behalf
        self._clock = clock

    @answers(FLY_ORGANIZATIONS)
    async def organizations(self, call: Call[NoParams, NoQuery, None]) -> FlyOrganizations:
        slugs = await Asking(self._behalf, call).organizations()
        return FlyOrganizations(organizations=tuple(map(shapes.organization, slugs)))

    @answers(FLY_ORGANIZATION)
    async def organization(self, call: Call[OrganizationParams, NoQuery, None]) -> FlyOrganizationAnswer:
        slug = call.params.org_slug
        await Asking(self._behalf, call).check_organization(slug)
        return FlyOrganizationAnswer(organization=shapes.organization(slug))

    @answers(BEGIN_BUILD)
    async def begin_build(self, call: Call[NoParams, NoQuery, BuildRequest]) -> Build:
        number = int.from_bytes(self._clock.token_bytes(6), "big") + 1
        return Build(id=number, status="started", wallclock_time_ms=0)

    @answers(FINISH_BUILD)
    async def finish_build(self, call: Call[NoParams, NoQuery, BuildRequest]) -> Build:
        return Build(id=call.body.build_id or 0, status=call.body.status or "completed", wallclock_time_ms=0)

    @answers(REMOTE_BUILDER)
    async def remote_builder(self, call: Call[NoParams, NoQuery, None]) -> None:
        raise NotFound(_NO_BUILDER)

    @answers(BEGIN_RELEASE)
    async def begin_release(self, call: Call[NoParams, NoQuery, FlyReleaseRequest]) -> FlyReleaseAnswer:
        body = call.body
        made = await Asking(self._behalf, call).call(
            CREATE_RELEASE,
            params=AppParams(app_name=body.app_name),
            body=CreateReleaseRequest(
                image=body.image or "", strategy=(body.strategy or "").lower(), definition=body.definition
            ),
        )
        return FlyReleaseAnswer(release=shapes.release(made))

    @answers(MOVE_RELEASE)
    async def move_release(self, call: Call[FlyReleaseParams, NoQuery, FlyReleaseUpdate]) -> FlyRelease:
        app, _, version = call.params.release_id.rpartition(".")
        for status in _MOVES:
            if call.body.status.lower() == status:
                params, body = ReleaseParams(app_name=app, version=version), UpdateReleaseRequest(status=status)
                moved = await Asking(self._behalf, call).call(UPDATE_RELEASE, params=params, body=body)
                return shapes.release(moved)
        raise Unprocessable(f"status: {call.body.status!r:.80} is none of {', '.join(_MOVES)}")

    @answers(CURRENT_RELEASES)
    async def current_releases(self, call: Call[NoParams, NoQuery, None]) -> AppTimes:
        asking, times = Asking(self._behalf, call), AppTimes()
        async for app in asking.apps():
            newest = await asking.current_release(app.name)
            if newest is not None:
                times[app.name] = newest.created_at
        return times

    @answers(FLY_RELEASES)
    async def releases(self, call: Call[AppParams, FlyReleasesQuery, None]) -> FlyReleases:
        found = await Asking(self._behalf, call).releases(call.params.app_name, call.query.limit)
        return FlyReleases(releases=tuple(map(shapes.release, found)))

    @answers(FLY_LOGS)
    async def logs(self, call: Call[AppParams, FlyLogsQuery, None]) -> FlyLogs:
        """The client asks again 128 ms after an answer without lines, so with a token the answer waits for one. Without
        a token it asks until it gets a line, so there is always one."""
        query = call.query
        wanted = AppLogPageQuery(
            after=query.next_token,
            tail=None if query.next_token else _LAST_LINES,
            machine=query.instance,
            region=query.region,
            wait_s=_HELD_S if query.next_token else 0.0,
        )
        page = await Asking(self._behalf, call).call(APP_LOG_PAGE, params=call.params, query=wanted)
        lines = [shapes.log_line(line) for line in page.lines]
        if not lines and not query.next_token:
            lines = [shapes.no_lines(call.params.app_name, instant(self._clock.now()))]
        return FlyLogs(data=tuple(lines), meta=FlyLogsMeta(next_token=page.next))

    @answers(CURRENT_RELEASE)
    async def current_release(self, call: Call[AppParams, NoQuery, None]) -> FlyRelease:
        found = await Asking(self._behalf, call).current_release(call.params.app_name)
        if found is None:
            raise NotFound(f"app '{call.params.app_name}' has no release yet")
        return shapes.release(found)
