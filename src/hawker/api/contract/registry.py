"""Bodies about registries, and who an organization is there."""

from datetime import datetime
from types import NoneType

import msgspec

from hawker.api.contract.body import Answer, Request
from hawker.api.contract.org import OrgParams
from hawker.api.route import Tag, Unary
from hawker.errors import NotFound, Unavailable, Unprocessable


class LoginRequest(Request, frozen=True, kw_only=True):
    """A user name and a password or access token. `realm` is a host of another domain that may have the password too,
    as token server. With `unchecked` the registry is not asked whether it takes them."""

    username: str
    password: str
    realm: str | None = None
    unchecked: bool | None = None


class RegistryLogin(Answer, frozen=True, kw_only=True):
    """A login without its password. `nodes` are those that have it."""

    registry: str
    username: str
    at: datetime
    by: str = ""
    nodes: tuple[str, ...] = ()


class RegistryLoginList(Answer, frozen=True, kw_only=True):
    logins: tuple[RegistryLogin, ...]


class SealedLogin(Answer, frozen=True, kw_only=True):
    """A login, sealed under a key that only nodes of the cluster have."""

    sealed: bytes


class RegistryParams(msgspec.Struct, frozen=True, kw_only=True):
    """`registry` is HOST or HOST:PORT."""

    org_slug: str
    registry: str


_TIMEOUT_S = 60.0
_PEER_TIMEOUT_S = 5.0

LIST_LOGINS = Unary(
    name="list_registry_logins",
    method="GET",
    path="/hawker/v1/orgs/{org_slug}/registries",
    params=OrgParams,
    response=RegistryLoginList,
    tag=Tag.IMAGES,
    summary="List an organization's logins at registries",
    guarded=False,
)

PUT_LOGIN = Unary(
    name="put_registry_login",
    method="PUT",
    path="/hawker/v1/orgs/{org_slug}/registries/{registry}",
    params=RegistryParams,
    body=LoginRequest,
    response=RegistryLogin,
    tag=Tag.IMAGES,
    summary="Log an organization in at a registry",
    errors=(Unavailable, Unprocessable),
    guarded=False,
    strict=True,
    timeout_s=_TIMEOUT_S,
)

DELETE_LOGIN = Unary(
    name="delete_registry_login",
    method="DELETE",
    path="/hawker/v1/orgs/{org_slug}/registries/{registry}",
    params=RegistryParams,
    response=NoneType,
    tag=Tag.IMAGES,
    summary="Log an organization out of a registry",
    errors=(NotFound, Unavailable, Unprocessable),
    guarded=False,
)

REGISTRY_ROUTES = (LIST_LOGINS, PUT_LOGIN, DELETE_LOGIN)

HAND_LOGIN = Unary(
    name="hand_registry_login",
    method="GET",
    path="/internal/v1/orgs/{org_slug}/registries/{registry}",
    params=RegistryParams,
    response=SealedLogin,
    tag=Tag.IMAGES,
    summary="Hand an organization's login at a registry to a node that pulls for it",
    errors=(NotFound,),
    timeout_s=_PEER_TIMEOUT_S,
)

REGISTRY_PEER_ROUTES = (HAND_LOGIN,)
