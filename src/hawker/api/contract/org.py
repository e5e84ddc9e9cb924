"""Bodies about what an organization has, over all its apps, and quotas of organizations and apps: those are for
operators, and not part of the Machines API.
"""

from datetime import datetime

import msgspec

from hawker.api.bounds import PageLimit
from hawker.api.contract.body import Answer, Request
from hawker.api.route import NoParams, Tag, Unary
from hawker.config import Guest
from hawker.errors import NotFound, Unprocessable
from hawker.machine import State
from hawker.permission import Action


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
    """The organization's name in addresses."""


class OrgMachinesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`updated_after` is RFC 3339; `limit` at most 1000, which is also what it is without one; a `summary` leaves out
    configs."""

    include_deleted: bool = False
    """Also machines that were destroyed, as long as their nodes keep their records."""
    region: str | None = None
    """Only machines of this region; absent: of all."""
    state: tuple[State, ...] = ()
    summary: bool = False
    updated_after: datetime | None = None
    cursor: str | None = None
    """What the last page gave as the next one; absent for the first page."""
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


class QuotaLimits(Request, frozen=True, kw_only=True):
    """The most of each resource, 0 or more; without a value, as much as there is. `memory_mb` and `disk_mb` are MiB."""

    machines: int | None = None
    cpus: int | None = None
    memory_mb: int | None = None
    disk_mb: int | None = None
    volumes: int | None = None
    snapshots: int | None = None
    addresses: int | None = None


class QuotaAmounts(Answer, frozen=True, kw_only=True):
    machines: int = 0
    cpus: int = 0
    memory_mb: int = 0
    disk_mb: int = 0
    volumes: int = 0
    snapshots: int = 0
    addresses: int = 0


class Quota(Answer, frozen=True, kw_only=True):
    """`subject` is org/NAME, app/NAME, or org/*: every organization without one of its own but the operator's.
    `used_here` is exact, `used_elsewhere` what the other nodes told last."""

    subject: str
    limits: QuotaLimits
    used_here: QuotaAmounts
    used_elsewhere: QuotaAmounts
    set_at: datetime
    set_by: str


class QuotaList(Answer, frozen=True, kw_only=True):
    quotas: tuple[Quota, ...]


class QuotaParams(msgspec.Struct, frozen=True, kw_only=True):
    """`kind` is org or app."""

    kind: str
    name: str
    """Of the organization or the app."""


LIST_QUOTAS = Unary(
    name="list_quotas",
    method="GET",
    path="/hawker/v1/quotas",
    params=NoParams,
    response=QuotaList,
    tag=Tag.NODE,
    summary="List the quotas, and what is used of them",
)

PUT_QUOTA = Unary(
    name="put_quota",
    method="PUT",
    path="/hawker/v1/quotas/{kind}/{name}",
    params=QuotaParams,
    body=QuotaLimits,
    response=Quota,
    tag=Tag.NODE,
    summary="Set what an organization or an app may have",
    errors=(NotFound, Unprocessable),
    action=Action.ALL,
    strict=True,
)

CLEAR_QUOTA = Unary(
    name="clear_quota",
    method="DELETE",
    path="/hawker/v1/quotas/{kind}/{name}",
    params=QuotaParams,
    response=Quota,
    tag=Tag.NODE,
    summary="Let an organization or an app have as much as there is",
    errors=(NotFound,),
    action=Action.ALL,
)

QUOTA_ROUTES = (LIST_QUOTAS, PUT_QUOTA, CLEAR_QUOTA)
