"""What flyctl asks beside the Machines API, on the same origin: GraphQL, organizations, builds and releases.

Their handlers make calls of the route table in the caller's name, so each asks the token, the rate limit and the audit
log as that call does.
"""

from datetime import datetime
from types import NoneType
from typing import Any, TypeAlias

import msgspec

from hawker.api.bounds import ReleasesLimit
from hawker.api.contract.app import AppParams
from hawker.api.contract.app_log import LogPlace
from hawker.api.contract.body import Answer, Request
from hawker.api.route import AnyRoute, NoParams, Tag, Unary
from hawker.errors import Conflict, NotFound, Unprocessable
from hawker.permission import Action

MAX_GRAPHQL_BYTES = 1024 * 1024


class GraphqlRequest(Request, frozen=True, kw_only=True, rename={"operation_name": "operationName"}):
    """One operation. `operation_name` names it where the document has several fragments beside it."""

    query: str
    """The document, with one operation."""
    variables: dict[str, Any] | None = None
    operation_name: str | None = None


class FlyOrganization(Answer, frozen=True, kw_only=True):
    """`id` is the slug; all here are paid for and in order."""

    id: str
    internal_numeric_id: int
    """A number that clients expect, computed from the slug; no call takes it."""
    slug: str
    """The organization's slug, as it stands in paths of the Machines API."""
    raw_slug: str
    """The organization's slug once more, because clients read it here."""
    name: str
    """The organization's slug once more: an organization has no other name here."""
    paid_plan: bool
    """Always true: clients read it, and nothing is paid for here."""
    personal: bool
    """True for the organization that a call means when it names none."""
    billable: bool
    """Always true: clients read it, and nothing is paid for here."""
    billing_status: str
    """Always `CURRENT`: clients read it, and nothing is paid for here."""
    provisions_beta_extensions: bool
    """Always false: there are no extensions here."""
    remote_builder_image: str
    """Always empty: nothing is built here."""


class FlyOrganizations(Answer, frozen=True, kw_only=True):
    organizations: tuple[FlyOrganization, ...]


class FlyOrganizationAnswer(Answer, frozen=True, kw_only=True):
    organization: FlyOrganization


class BuildRequest(Request, frozen=True, kw_only=True):
    """What a client built, or began to: nothing of it is kept but the number, which its release names."""

    app_name: str = ""
    """The name of the app that is built; it has no effect."""
    build_id: int | None = None
    """The `id` that the answer to the build's begin gave; absent: 0 is answered."""
    status: str = ""
    """The state of the build as the client says it; the answer repeats it."""


class Build(Answer, frozen=True, kw_only=True):
    id: int
    """The number of the build: random, 1 to 2^48, for one that begins; then what the client names, or 0."""
    status: str
    """`started` for a build that begins; then the word that the client says, or `completed`."""
    wallclock_time_ms: int
    """Always 0: nothing was built here."""


class FlyReleaseRequest(Request, frozen=True, kw_only=True):
    app_name: str
    """The name of the app that gets the release."""
    build_id: int | None = None
    """The number of the build; it has no effect."""
    definition: dict[str, Any] | None = None
    image: str | None = None
    """The reference of the image that the app's machines are to run; absent: the release has none."""
    strategy: str | None = None
    """The order in which the client will change machines, as one word; absent: the release has none."""


class FlyReleaseUpdate(Request, frozen=True, kw_only=True):
    status: str
    """The release's new state: `running`, `complete`, `failed` or `interrupted`, in any case of letters."""
    metadata: dict[str, Any] | None = None


class FlyRelease(Answer, frozen=True, kw_only=True):
    """One release of an app. `status` is pending, running, complete, failed or interrupted, or for a deploy of the node
    rolling_back or rolled_back; `user` is the holder of the token that made it, as an address."""

    id: str
    """The release's id: the app's name, a dot and the release's number."""
    version: int
    """The release's number; the first release of an app has 1."""
    stable: bool
    """True when the release's `status` is complete."""
    in_progress: bool
    """True while the release's `status` is pending or running."""
    status: str
    strategy: str
    """The strategy of the deploy, as the release's maker named it; may be empty."""
    user: str
    created_at: datetime
    image_ref: str
    """The reference of the image, as the release's maker named it; may be empty."""


class FlyReleaseAnswer(Answer, frozen=True, kw_only=True):
    release: FlyRelease


class FlyReleases(Answer, frozen=True, kw_only=True):
    releases: tuple[FlyRelease, ...]


class OrganizationParams(msgspec.Struct, frozen=True, kw_only=True):
    org_slug: str
    """The organization's slug, as it stands in paths."""


class FlyReleaseParams(msgspec.Struct, frozen=True, kw_only=True):
    release_id: str
    """The id of a release, as GraphQL answers it."""


class FlyReleasesQuery(msgspec.Struct, frozen=True, kw_only=True):
    limit: ReleasesLimit = 25


class FlyLogsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines are asked for. `instance` is a machine's id. `next_token` is what the last answer gave: with it the
    answer waits up to 10 seconds for a line."""

    next_token: LogPlace = ""
    instance: str = ""
    region: str = ""
    """The code of a region: the answer has only lines of machines in it; empty: of all regions."""


class FlyLogEvent(Answer, frozen=True, kw_only=True):
    provider: str
    """The origin of the line: `app` for output of the machine; another word for what the node says."""


class FlyLogMeta(Answer, frozen=True, kw_only=True):
    instance: str
    """The id of the machine that the line is of."""
    region: str
    """The code of the region of the machine's node."""
    event: FlyLogEvent


class FlyLogAttributes(Answer, frozen=True, kw_only=True):
    timestamp: datetime
    message: str
    """One line of text, without its line end; the app wrote it, so clients must not trust it."""
    level: str
    """The level of the line: `info`, `warning` or `error`."""
    instance: str
    """The id of the machine that the line is of."""
    region: str
    """The code of the region of the machine's node."""
    meta: FlyLogMeta


class FlyLog(Answer, frozen=True, kw_only=True):
    id: str
    """The id of the line: no other line has it."""
    type: str = "log"
    """Always `log`: the kind of what this is."""
    attributes: FlyLogAttributes


class FlyLogsMeta(Answer, frozen=True, kw_only=True):
    next_token: str
    """The place where the next page begins: clients give it back as `next_token`."""


class FlyLogs(Answer, frozen=True, kw_only=True):
    data: tuple[FlyLog, ...]
    meta: FlyLogsMeta


AppTimes: TypeAlias = dict[str, datetime]

# The calls. None is guarded by itself: what they call asks the token.

GRAPHQL = Unary(
    name="graphql",
    method="POST",
    path="/graphql",
    params=NoParams,
    body=GraphqlRequest,
    response=dict[str, Any],
    tag=Tag.FLYCTL,
    summary="Answer one GraphQL operation",
    action=Action.READ,
    guarded=False,
    body_bytes=MAX_GRAPHQL_BYTES,
    listed_errors=True,
    timeout_s=90.0,
)

FLY_ORGANIZATIONS = Unary(
    name="fly_organizations",
    method="GET",
    path="/api/v1/organizations",
    params=NoParams,
    response=FlyOrganizations,
    tag=Tag.FLYCTL,
    summary="List the organizations that the token reaches",
    guarded=False,
)

FLY_ORGANIZATION = Unary(
    name="fly_organization",
    method="GET",
    path="/api/v1/organizations/{org_slug}",
    params=OrganizationParams,
    response=FlyOrganizationAnswer,
    tag=Tag.FLYCTL,
    summary="Show an organization",
    errors=(NotFound,),
    guarded=False,
)

BEGIN_BUILD = Unary(
    name="begin_build",
    method="POST",
    path="/api/v1/builds",
    params=NoParams,
    body=BuildRequest,
    response=Build,
    tag=Tag.FLYCTL,
    summary="Give a client's build a number",
    action=Action.READ,
    guarded=False,
)

FINISH_BUILD = Unary(
    name="finish_build",
    method="POST",
    path="/api/v1/builds/finish",
    params=NoParams,
    body=BuildRequest,
    response=Build,
    tag=Tag.FLYCTL,
    summary="Take note that a client's build has ended",
    action=Action.READ,
    guarded=False,
)

REMOTE_BUILDER = Unary(
    name="remote_builder",
    method="POST",
    path="/api/v1/builds/depot_builder",
    params=NoParams,
    response=NoneType,
    tag=Tag.FLYCTL,
    summary="Refuse a builder of Fly's, and say what to do instead",
    errors=(NotFound,),
    action=Action.READ,
    guarded=False,
)

BEGIN_RELEASE = Unary(
    name="begin_release",
    method="POST",
    path="/api/v1/releases",
    params=NoParams,
    body=FlyReleaseRequest,
    response=FlyReleaseAnswer,
    tag=Tag.FLYCTL,
    summary="Record what an app is to run from now on",
    status=201,
    errors=(NotFound, Unprocessable),
    action=Action.READ,
    guarded=False,
)

MOVE_RELEASE = Unary(
    name="move_release",
    method="PATCH",
    path="/api/v1/releases/{release_id}",
    params=FlyReleaseParams,
    body=FlyReleaseUpdate,
    response=FlyRelease,
    tag=Tag.FLYCTL,
    summary="Record where a release has come to",
    errors=(NotFound, Conflict, Unprocessable),
    action=Action.READ,
    guarded=False,
)

CURRENT_RELEASES = Unary(
    name="current_releases",
    method="GET",
    path="/api/v1/releases/all_current",
    params=NoParams,
    response=AppTimes,
    tag=Tag.FLYCTL,
    summary="Tell when each app was released last",
    guarded=False,
)

FLY_RELEASES = Unary(
    name="fly_releases",
    method="GET",
    path="/api/v1/apps/{app_name}/releases",
    params=AppParams,
    query=FlyReleasesQuery,
    response=FlyReleases,
    tag=Tag.FLYCTL,
    summary="List an app's releases",
    errors=(NotFound,),
)

CURRENT_RELEASE = Unary(
    name="current_release",
    method="GET",
    path="/api/v1/apps/{app_name}/releases/current",
    params=AppParams,
    response=FlyRelease,
    tag=Tag.FLYCTL,
    summary="Show an app's newest release",
    errors=(NotFound,),
)

FLY_LOGS = Unary(
    name="fly_logs",
    method="GET",
    path="/api/v1/apps/{app_name}/logs",
    params=AppParams,
    query=FlyLogsQuery,
    response=FlyLogs,
    tag=Tag.FLYCTL,
    summary="Show an app's last lines, or wait for what comes after a token",
    errors=(NotFound,),
    timeout_s=60.0,
)

FLYCTL_ROUTES: tuple[AnyRoute, ...] = (
    GRAPHQL,
    FLY_ORGANIZATIONS,
    FLY_ORGANIZATION,
    BEGIN_BUILD,
    FINISH_BUILD,
    REMOTE_BUILDER,
    BEGIN_RELEASE,
    MOVE_RELEASE,
    CURRENT_RELEASES,
    FLY_RELEASES,
    CURRENT_RELEASE,
    FLY_LOGS,
)
