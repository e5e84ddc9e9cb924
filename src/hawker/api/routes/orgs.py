"""Calls about what an organization has, over all its apps."""

from datetime import datetime
from types import NoneType

import msgspec

from hawker.api.bodies import OrgMachines
from hawker.api.bounds import PageLimit
from hawker.api.route import Tag, Unary
from hawker.machine import State


class OrgParams(msgspec.Struct, frozen=True, kw_only=True):
    org_slug: str


class OrgMachinesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`updated_after` is RFC 3339; `limit` at most 1000, which is also what it is without one; a `summary` leaves out
    configs."""

    include_deleted: bool = False
    region: str | None = None
    state: tuple[State, ...] = ()
    summary: bool = False
    updated_after: datetime | None = None
    cursor: str | None = None
    limit: PageLimit | None = None


LIST_ORG_MACHINES = Unary(
    name="list_org_machines",
    method="GET",
    path="/v1/orgs/{org_slug}/machines",
    params=OrgParams,
    query=OrgMachinesQuery,
    body=NoneType,
    response=OrgMachines,
    tag=Tag.MACHINES,
    summary="List an organization's machines over all its apps",
    guarded=False,  # those of the apps that the token may read
)

ORG_ROUTES = (LIST_ORG_MACHINES,)
