"""Calls about the addresses of an app."""

from types import NoneType

import msgspec

from hawker.api.bodies import AssignIpRequest, IpAssignment, IpAssignments
from hawker.api.route import NoQuery, Tag, Unary
from hawker.api.routes.apps import AppParams
from hawker.errors import NotFound
from hawker.permission import Action


class IpParams(msgspec.Struct, frozen=True, kw_only=True):
    app_name: str
    ip: str


LIST_IPS = Unary(
    name="list_ips",
    method="GET",
    path="/v1/apps/{app_name}/ip_assignments",
    params=AppParams,
    query=NoQuery,
    body=NoneType,
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
    query=NoQuery,
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
    query=NoQuery,
    body=NoneType,
    response=NoneType,
    tag=Tag.APPS,
    summary="Release an address of an app",
    status=204,
    errors=(NotFound,),
    action=Action.WRITE,
)

IP_ROUTES = (LIST_IPS, ASSIGN_IP, RELEASE_IP)
