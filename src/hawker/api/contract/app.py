"""Bodies about apps and their addresses."""

from collections.abc import Mapping
from datetime import datetime
from types import NoneType
from typing import Any, ClassVar

import msgspec

from hawker.api.bounds import AppsLimit
from hawker.api.contract.body import Answer, Request
from hawker.api.route import NoParams, Rate, Tag, Unary
from hawker.errors import Conflict, NameTaken, NotFound, WrongState
from hawker.permission import Action


class Organization(Answer, frozen=True, kw_only=True):
    name: str
    """The same as the slug."""
    slug: str
    """Lower-case letters, digits and dashes."""
    internal_numeric_id: int = 0
    """1 for any: nothing here goes by it."""


class App(Answer, frozen=True, kw_only=True):
    """`status` is "pending" before the first machine, then "deployed". `created_at` is Unix milliseconds."""

    id: str
    """16 hexadecimal digits, never given twice: an app that is made again has another one."""
    internal_numeric_id: int
    """0 to 2147483647, by chance."""
    name: str
    """At most 63 lower-case letters, digits and dashes; unique in the cluster."""
    network: str
    """The name of its private network in its organization; empty for the organization's default one."""
    status: str
    machine_count: int
    """Without those that were destroyed."""
    volume_count: int
    """Without those that were destroyed."""
    organization: Organization
    created_at: int


class AppList(Answer, frozen=True, kw_only=True):
    total_apps: int
    """On all pages, of those that the token may see."""
    apps: tuple[App, ...]
    next_cursor: str | None = None
    """For the page behind this one; null on the last."""


class CreateAppRequest(Request, frozen=True, kw_only=True):
    """`app_name` is the older spelling of `name`. `org_slug` is one organization on a self-hosted node."""

    name: str | None = None
    app_name: str | None = None
    org_slug: str | None = None
    network: str | None = None
    """A private network of the organization, made where there is none of the name; absent: its default one."""
    enable_subdomains: bool | None = None
    """Taken for clients that send it; nothing is done with it."""
    app_role_id: str | None = None
    """Taken for clients that send it; nothing is done with it."""
    idempotency_key: str | None = None
    """A call with the same one is answered with the app that the first one made. The header goes behind it."""


# Calls about apps.


class AppParams(msgspec.Struct, frozen=True, kw_only=True):
    app_name: str
    """The app's name, up to 63 lower-case letters, digits and dashes."""


class ListAppsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`org_slug` selects one organization; `app_role` the apps of that role, of which there are none: clients take the
    first app of such a list for a builder of theirs, and delete it if it looks broken."""

    org_slug: str | None = None
    app_role: str | None = None
    limit: AppsLimit | None = None
    cursor: str | None = None
    """What the last page gave as the next one; absent for the first page."""


class CreateAppQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`wait` is always so: the app is there when the call answers."""

    wait: bool = False


class DeleteAppQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The app's machines go with it, and its volumes can be undeleted for a while; with `force=false` an app that has
    machines or volumes is left alone."""

    force: bool | None = None
    """False leaves an app with machines or volumes alone (409); absent is true."""

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


class AssignIpRequest(Request, frozen=True, kw_only=True):
    """`network` and `org_slug` say where a `private_v6` is to be."""

    rules: ClassVar[Mapping[str, Any]] = {
        "required": ["type"],
        "allOf": [{"properties": {"type": {"enum": ["v4", "v6", "shared_v4", "private_v6"]}}}],
    }

    type: str | None = None
    """What kind of address: see `rules`."""
    region: str | None = None
    """Must lead to the node's; absent or `global`: any."""
    org_slug: str | None = None
    network: str | None = None
    service_name: str | None = None
    """At most 63 characters, for people and flyctl."""


class IpNetwork(Answer, frozen=True, kw_only=True):
    name: str
    """The private network's."""
    org_slug: str
    """Of the organization whose network it is."""


class IpAssignment(Answer, frozen=True, kw_only=True):
    """`shared` says that other apps have it, too."""

    id: str
    """A ULID: later ones of an app have greater ones."""
    ip: str
    """IPv4 or IPv6, in its usual form."""
    type: str
    """`v4`, `v6`, `shared_v4` or `private_v6`."""
    region: str
    """As it was asked for; `global` where nothing was."""
    service_name: str
    """As it was asked for; may be empty."""
    shared: bool
    created_at: datetime
    network: IpNetwork | None = None


class IpAssignments(Answer, frozen=True, kw_only=True):
    ips: tuple[IpAssignment, ...]


# Calls about the addresses of an app.


class IpParams(msgspec.Struct, frozen=True, kw_only=True):
    app_name: str
    """The app that has the address."""
    ip: str
    """An IPv4 or IPv6 address of the app, as lists show it."""


LIST_IPS = Unary(
    name="list_ips",
    method="GET",
    path="/v1/apps/{app_name}/ip_assignments",
    params=AppParams,
    response=IpAssignments,
    tag=Tag.APPS,
    summary="List an app's addresses",
    errors=(NotFound,),
)

ASSIGN_IP = Unary(
    name="assign_ip",
    method="POST",
    path="/v1/apps/{app_name}/ip_assignments",
    params=AppParams,
    body=AssignIpRequest,
    response=IpAssignment,
    tag=Tag.APPS,
    summary="Allocate an address to an app",
    errors=(NotFound,),
    strict=True,
)

RELEASE_IP = Unary(
    name="release_ip",
    method="DELETE",
    path="/v1/apps/{app_name}/ip_assignments/{ip}",
    params=IpParams,
    response=NoneType,
    tag=Tag.APPS,
    summary="Release an address of an app",
    status=204,
    errors=(NotFound,),
    action=Action.WRITE,
)

IP_ROUTES = (LIST_IPS, ASSIGN_IP, RELEASE_IP)
