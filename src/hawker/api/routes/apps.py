"""Calls about apps."""

from types import NoneType

import msgspec

from hawker.api.bodies import App, AppList, CreateAppRequest
from hawker.api.bounds import AppsLimit
from hawker.api.rate import Rate
from hawker.api.route import NoParams, NoQuery, Tag, Unary
from hawker.errors import Conflict, NameTaken, NotFound, WrongState


class AppParams(msgspec.Struct, frozen=True, kw_only=True):
    app_name: str


class ListAppsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`org_slug` selects one organization; `app_role` is accepted and ignored."""

    org_slug: str | None = None
    app_role: str | None = None
    limit: AppsLimit | None = None
    cursor: str | None = None


class CreateAppQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`wait` is always so: the app is there when the call answers."""

    wait: bool = False


class DeleteAppQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`force` destroys the app's machines with it, and lets go of its volumes."""

    force: bool = False


LIST_APPS = Unary(
    name="list_apps",
    method="GET",
    path="/v1/apps",
    params=NoParams,
    query=ListAppsQuery,
    body=NoneType,
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
    query=NoQuery,
    body=NoneType,
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
    body=NoneType,
    response=NoneType,
    tag=Tag.APPS,
    summary="Delete an app that has no machines and volumes left",
    status=202,
    errors=(NotFound, Conflict, WrongState),
    rate=Rate.APP_DELETION,
)

APP_ROUTES = (LIST_APPS, CREATE_APP, GET_APP, DELETE_APP)
