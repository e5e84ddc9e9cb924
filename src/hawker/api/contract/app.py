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
    """The organization's name, which is its slug: an organization has no other name here."""
    slug: str
    """The organization's slug in paths: lower-case letters, digits and dashes."""
    internal_numeric_id: int = 0
    """A number that clients expect: 1 for any organization; no call takes it."""


class App(Answer, frozen=True, kw_only=True):
    """`status` is "pending" before the first machine, then "deployed". `created_at` is Unix milliseconds."""

    id: str
    """16 hexadecimal digits, never given twice: an app that is made again has another one."""
    internal_numeric_id: int
    """A random number that clients expect, 0 to 2147483647; no call takes it."""
    name: str
    """At most 63 lower-case letters, digits and dashes; unique in the cluster."""
    network: str
    """The name of the app's private network in its organization; `default` where the create named none."""
    status: str
    machine_count: int
    """How many machines the app has, 0 or more, without those that were destroyed."""
    volume_count: int
    """How many volumes the app has, 0 or more, without those that were destroyed."""
    organization: Organization
    created_at: int


class AppList(Answer, frozen=True, kw_only=True):
    total_apps: int
    """How many apps the token may see, 0 or more, on all pages together."""
    apps: tuple[App, ...]
    next_cursor: str | None = None
    """The `cursor` with which the next call shows the next page; null on the last page."""


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
    """A second call with the same key and name answers the first call's app. It wins over the header."""


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
    """The `next_cursor` of the page before: this page begins after it; absent: the first page."""


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
    """The kind of address: `v4`, `v6`, `shared_v4` or `private_v6`; another one is refused."""
    region: str | None = None
    """A region that the node's region must be in, else the call is refused; absent or `global`: any."""
    org_slug: str | None = None
    network: str | None = None
    service_name: str | None = None
    """A word of at most 63 characters, shown to people and flyctl, without another effect."""


class IpNetwork(Answer, frozen=True, kw_only=True):
    name: str
    """The name of the private network that the address is in."""
    org_slug: str
    """The slug of the organization that has the private network."""


class IpAssignment(Answer, frozen=True, kw_only=True):
    """`shared` says that other apps have it, too."""

    id: str
    """A ULID: later ones of an app have greater ones."""
    ip: str
    """The address, IPv4 or IPv6, in its usual form."""
    type: str
    """The kind of address: `v4`, `v6`, `shared_v4` or `private_v6`."""
    region: str
    """The region that the call asked for; `global` where it asked for none."""
    service_name: str
    """The service's name that the call gave; empty where it gave none."""
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
