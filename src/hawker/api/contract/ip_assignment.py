"""Bodies about the addresses of an app."""

from collections.abc import Mapping
from datetime import datetime
from types import NoneType
from typing import Any, ClassVar

import msgspec

from hawker.api.contract.app import AppParams
from hawker.api.contract.body import Answer, Request
from hawker.api.route import Tag, Unary
from hawker.errors import NotFound
from hawker.permission import Action


class AssignIpRequest(Request, frozen=True, kw_only=True):
    """`network` and `org_slug` say where a `private_v6` is to be."""

    rules: ClassVar[Mapping[str, Any]] = {
        "required": ["type"],
        "allOf": [{"properties": {"type": {"enum": ["v4", "v6", "shared_v4", "private_v6"]}}}],
    }

    type: str | None = None
    region: str | None = None
    org_slug: str | None = None
    network: str | None = None
    service_name: str | None = None


class IpNetwork(Answer, frozen=True, kw_only=True):
    name: str
    org_slug: str


class IpAssignment(Answer, frozen=True, kw_only=True):
    """`shared` says that other apps have it, too."""

    id: str
    ip: str
    type: str
    region: str
    service_name: str
    shared: bool
    created_at: datetime
    network: IpNetwork | None = None


class IpAssignments(Answer, frozen=True, kw_only=True):
    ips: tuple[IpAssignment, ...]


# Calls about the addresses of an app.


class IpParams(msgspec.Struct, frozen=True, kw_only=True):
    app_name: str
    ip: str


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
