"""Calls that nodes of a cluster make to each other about apps, and about what belongs to whom."""

from types import NoneType
from typing import Literal

import msgspec

from hawker.api.bodies import App, AppCopy, HomeRequest, NameKept, NameRequest, OrderedApp, Owner
from hawker.api.route import NoQuery, Tag, Unary
from hawker.api.routes.apps import AppParams
from hawker.errors import Conflict, NotFound, Unavailable
from hawker.permission import Action

PEER_TIMEOUT_S = 5.0


class OwnerParams(msgspec.Struct, frozen=True, kw_only=True):
    kind: Literal["machine", "volume", "snapshot"]
    id: str


class ReleaseQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Only if it is kept for this claim; whomever it is kept for, if empty."""

    claim: str = ""


GET_OWNER = Unary(
    name="get_owner",
    method="GET",
    path="/internal/v1/owners/{kind}/{id}",
    params=OwnerParams,
    query=NoQuery,
    body=NoneType,
    response=Owner,
    tag=Tag.NODE,
    summary="Show which node has a machine, volume or snapshot, as far as this node knows",
    errors=(NotFound,),
    timeout_s=PEER_TIMEOUT_S,
)

CARRY_APP = Unary(
    name="carry_app",
    method="PUT",
    path="/internal/v1/apps/{app_name}",
    params=AppParams,
    query=NoQuery,
    body=OrderedApp,
    response=App,
    tag=Tag.NODE,
    summary="Make an app known to this node, with the secrets and policies that its home has",
    errors=(Conflict, NotFound, Unavailable),
    timeout_s=PEER_TIMEOUT_S,
)

KEEP_NAME = Unary(
    name="keep_name",
    method="POST",
    path="/internal/v1/names/{app_name}",
    params=AppParams,
    query=NoQuery,
    body=NameRequest,
    response=NameKept,
    tag=Tag.NODE,
    summary="Reserve the name of an app",
    timeout_s=PEER_TIMEOUT_S,
)

RELEASE_NAME = Unary(
    name="release_name",
    method="DELETE",
    path="/internal/v1/names/{app_name}",
    params=AppParams,
    query=ReleaseQuery,
    body=NoneType,
    response=NoneType,
    tag=Tag.NODE,
    summary="Release the reserved name of an app",
    action=Action.WRITE,
    timeout_s=PEER_TIMEOUT_S,
)

SETTLE_HOME = Unary(
    name="settle_home",
    method="POST",
    path="/internal/v1/apps/{app_name}/home",
    params=AppParams,
    query=NoQuery,
    body=HomeRequest,
    response=AppCopy,
    tag=Tag.NODE,
    summary="Show this node's copy of an app, and on request make this node its home",
    errors=(Conflict, NotFound),
    timeout_s=PEER_TIMEOUT_S,
)

OWNER_PEER_ROUTES = (GET_OWNER, CARRY_APP, KEEP_NAME, RELEASE_NAME, SETTLE_HOME)
