"""Bodies about apps."""

from types import NoneType

import msgspec

from hawker.api.bounds import AppsLimit
from hawker.api.contract.body import Answer, Request
from hawker.api.route import NoParams, Rate, Tag, Unary
from hawker.errors import Conflict, NameTaken, NotFound, WrongState


class Organization(Answer, frozen=True, kw_only=True):
    name: str
    slug: str
    internal_numeric_id: int = 0


class App(Answer, frozen=True, kw_only=True):
    """`status` is "pending" before the first machine, then "deployed". `created_at` is Unix milliseconds."""

    id: str
    internal_numeric_id: int
    name: str
    network: str
    status: str
    machine_count: int
    volume_count: int
    organization: Organization
    created_at: int


class AppList(Answer, frozen=True, kw_only=True):
    total_apps: int
    apps: tuple[App, ...]
    next_cursor: str | None = None


class CreateAppRequest(Request, frozen=True, kw_only=True):
    """`app_name` is the older spelling of `name`. `org_slug` is one organization on a self-hosted node."""

    name: str | None = None
    app_name: str | None = None
    org_slug: str | None = None
    network: str | None = None
    enable_subdomains: bool | None = None
    app_role_id: str | None = None
    idempotency_key: str | None = None


# Calls about apps.


class AppParams(msgspec.Struct, frozen=True, kw_only=True):
    app_name: str


class ListAppsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`org_slug` selects one organization; `app_role` the apps of that role, of which there are none: clients take the
    first app of such a list for a builder of theirs, and delete it if it looks broken."""

    org_slug: str | None = None
    app_role: str | None = None
    limit: AppsLimit | None = None
    cursor: str | None = None


class CreateAppQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`wait` is always so: the app is there when the call answers."""

    wait: bool = False


class DeleteAppQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The app's machines go with it, and its volumes can be had back for a while; with `force=false` an app that has
    machines or volumes is left alone."""

    force: bool | None = None

    @property
    def forced(self) -> bool:
        return self.force is not False


LIST_APPS = Unary(
    name="list_apps",
    method="GET",
    path="/v1/apps",
    params=NoParams,
    query=ListAppsQuery,
    response=AppList,
    tag=Tag.APPS,
    summary="List apps",
    guarded=False,  # those that the token may see
)

CREATE_APP = Unary(
    name="create_app",
    method="POST",
    path="/v1/apps",
    params=NoParams,
    query=CreateAppQuery,
    body=CreateAppRequest,
    response=App,
    tag=Tag.APPS,
    summary="Create an app",
    status=201,
    errors=(NameTaken,),
    guarded=False,  # the body says in which organization
)

GET_APP = Unary(
    name="get_app",
    method="GET",
    path="/v1/apps/{app_name}",
    params=AppParams,
    response=App,
    tag=Tag.APPS,
    summary="Show an app",
    errors=(NotFound,),
)

DELETE_APP = Unary(
    name="delete_app",
    method="DELETE",
    path="/v1/apps/{app_name}",
    params=AppParams,
    query=DeleteAppQuery,
    response=NoneType,
    tag=Tag.APPS,
    summary="Delete an app, its machines with it",
    status=202,
    errors=(NotFound, Conflict, WrongState),
    rate=Rate.APP_DELETION,
)

APP_ROUTES = (LIST_APPS, CREATE_APP, GET_APP, DELETE_APP)
