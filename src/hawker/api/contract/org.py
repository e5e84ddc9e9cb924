"""Bodies about what an organization has, over all its apps."""

from datetime import datetime

import msgspec

from hawker.api.bounds import PageLimit
from hawker.api.contract.body import Answer
from hawker.api.route import Tag, Unary
from hawker.config import Guest
from hawker.machine import State


class MachineOverview(Answer, frozen=True, kw_only=True):
    """The part of a config that a list over many machines shows."""

    image: str | None
    guest: Guest | None = None
    metadata: dict[str, str] | None = None


class OrgMachine(Answer, frozen=True, kw_only=True):
    """`instance_id` is the version, as elsewhere; without a `config` in a summary."""

    id: str
    app_name: str
    name: str
    state: State
    region: str
    version: str
    instance_id: str
    private_ip: str
    created_at: datetime
    updated_at: datetime
    config: MachineOverview | None = None


class OrgMachines(Answer, frozen=True, kw_only=True):
    """One page, by machine id. `error_regions` are those that could not be asked."""

    machines: tuple[OrgMachine, ...]
    next_cursor: str = ""
    last_machine_id: str = ""
    last_updated_at: datetime | None = None
    error_regions: tuple[str, ...]


# Calls about what an organization has, over all its apps.


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
    response=OrgMachines,
    tag=Tag.MACHINES,
    summary="List an organization's machines over all its apps",
    guarded=False,  # those of the apps that the token may read
)

ORG_ROUTES = (LIST_ORG_MACHINES,)
