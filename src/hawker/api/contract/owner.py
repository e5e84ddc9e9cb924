"""Bodies of what nodes ask each other about apps and what belongs to whom."""

from types import NoneType
from typing import Annotated, Literal

import msgspec

from hawker.api.contract.app import App, AppParams
from hawker.api.contract.body import Answer, Request
from hawker.api.contract.market import OrderedApp
from hawker.api.route import Tag, Unary
from hawker.errors import Conflict, Forbidden, NotFound, QuotaExceeded, Unavailable, Unprocessable
from hawker.permission import Action


class Owner(Answer, frozen=True, kw_only=True):
    """The node that has it, and the app that it is of."""

    node: str
    """The id of the node."""
    app: str
    """The name of the app."""


class NameRequest(Request, frozen=True, kw_only=True):
    """Keep the name of an app for `claim`, who will make it at the node `home`; also if it is kept for the claim
    `instead_of`, whose app was not made."""

    claim: str
    home: str
    instead_of: str | None = None


class HomeRequest(Request, frozen=True, kw_only=True):
    """The node is asked for its copy of an app. With `take` it becomes the app's home, instead of the forgotten node
    `old`."""

    old: str = ""
    take: bool = False


class AppCopy(Answer, frozen=True, kw_only=True):
    """What a node has of an app: its home as the node knows it, in which reign, the number of the secrets and when they
    were read there."""

    home: str
    """The id of the node that is the app's home."""
    reign: int
    """How often another node became the app's home, 0 or more."""
    number: int
    """The version of the app's secrets, 0 or more; it rises by one with each change."""
    read_at: float
    """The moment when the secrets were read at the home, Unix seconds, by the home's clock."""


class NameKept(Answer, frozen=True, kw_only=True):
    """Whom the name is kept for, and for how many seconds. `taken`: an app of this name is known here."""

    claim: str
    """The claim that keeps the name; a call with the same claim has the name."""
    home: str
    """The id of the node that is to be the app's home."""
    age_s: float
    """The seconds for which the name is kept, 0 or more, by this node's clock."""
    taken: bool = False


class NetworkRequest(Request, frozen=True, kw_only=True):
    """Keep the number for the private network of this organization; `settled`: a majority of its keepers does, so it
    is the network's number."""

    org: str
    """The slug of the organization."""
    network: str
    """The name of the network; empty or `default` for the organization's default one."""
    settled: bool = False


class NetworkKept(Answer, frozen=True, kw_only=True):
    """The network that the number is kept for."""

    org: str
    """The slug of the organization."""
    network: str
    """The name of the network; `default` for the organization's default one."""


class HostnameRequest(Request, frozen=True, kw_only=True):
    """Keep the host name for `app` of the organization `org`, whose home is the node `home`; also if it is kept for the
    app `instead_of`, which made nothing of it. Homes of older versions name no organization."""

    app: str
    home: str
    instead_of: str | None = None
    org: str | None = None


class HostnameKept(Answer, frozen=True, kw_only=True):
    """The app that the host name is kept for, the app's home, and for how long."""

    app: str
    """The name of the app."""
    home: str
    """The id of the node that is the app's home."""
    age_s: float
    """The seconds for which the host name is kept, 0 or more, by this node's clock."""


# Calls that nodes of a cluster make to each other about apps, and about what belongs to whom.

PEER_TIMEOUT_S = 5.0


class OwnerParams(msgspec.Struct, frozen=True, kw_only=True):
    kind: Literal["machine", "volume", "snapshot"]
    id: str
    """The id of the machine, volume or snapshot whose node is asked for."""


class ReleaseQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which claim gives the name up."""

    claim: str = ""
    """The claim that the name must be kept for, or nothing is released; empty: any claim."""


class HostnameParams(msgspec.Struct, frozen=True, kw_only=True):
    """The host name that is kept."""

    hostname: str
    """The host name, in lower case; its first label may be `*`."""


class ReleaseHostnameQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The app that gives the host name up."""

    app: str
    """The name of the app; a host name that is kept for another app stays."""


class NetworkParams(msgspec.Struct, frozen=True, kw_only=True):
    """The 32 bits of a private network, as 8 hexadecimal digits."""

    number: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{8}$")]


GET_OWNER = Unary(
    name="get_owner",
    method="GET",
    path="/internal/v1/owners/{kind}/{id}",
    params=OwnerParams,
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
    body=NameRequest,
    response=NameKept,
    tag=Tag.NODE,
    summary="Reserve the name of an app",
    timeout_s=PEER_TIMEOUT_S,
)

KEEP_NETWORK = Unary(
    name="keep_network",
    method="POST",
    path="/internal/v1/networks/{number}",
    params=NetworkParams,
    body=NetworkRequest,
    response=NetworkKept,
    tag=Tag.NODE,
    summary="Claim the number of a private network",
    errors=(Unavailable, Unprocessable),
    timeout_s=PEER_TIMEOUT_S,
)

RELEASE_NAME = Unary(
    name="release_name",
    method="DELETE",
    path="/internal/v1/names/{app_name}",
    params=AppParams,
    query=ReleaseQuery,
    response=NoneType,
    tag=Tag.NODE,
    summary="Release the reserved name of an app",
    action=Action.WRITE,
    timeout_s=PEER_TIMEOUT_S,
)

KEEP_HOSTNAME = Unary(
    name="keep_hostname",
    method="POST",
    path="/internal/v1/hostnames/{hostname}",
    params=HostnameParams,
    body=HostnameRequest,
    response=HostnameKept,
    tag=Tag.NODE,
    summary="Claim a host name for an app",
    errors=(Forbidden, QuotaExceeded, Unprocessable),
    timeout_s=PEER_TIMEOUT_S,
)

RELEASE_HOSTNAME = Unary(
    name="release_hostname",
    method="DELETE",
    path="/internal/v1/hostnames/{hostname}",
    params=HostnameParams,
    query=ReleaseHostnameQuery,
    response=NoneType,
    tag=Tag.NODE,
    summary="Release a claimed host name",
    action=Action.WRITE,
    errors=(Forbidden,),
    timeout_s=PEER_TIMEOUT_S,
)

SETTLE_HOME = Unary(
    name="settle_home",
    method="POST",
    path="/internal/v1/apps/{app_name}/home",
    params=AppParams,
    body=HomeRequest,
    response=AppCopy,
    tag=Tag.NODE,
    summary="Show this node's copy of an app, and on request make this node its home",
    errors=(Conflict, NotFound),
    timeout_s=PEER_TIMEOUT_S,
)

OWNER_PEER_ROUTES = (
    GET_OWNER,
    CARRY_APP,
    KEEP_NAME,
    RELEASE_NAME,
    KEEP_NETWORK,
    KEEP_HOSTNAME,
    RELEASE_HOSTNAME,
    SETTLE_HOME,
)
