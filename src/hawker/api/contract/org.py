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
    """The reference of the image, as the machine's config names it."""
    guest: Guest | None = None
    metadata: dict[str, str] | None = None
    """The metadata of the machine's config, by key; null for none."""


class OrgMachine(Answer, frozen=True, kw_only=True):
    """A machine of the organization. `instance_id` is the value of `version` once more; a summary has no `config`."""

    id: str
    """The id of the machine, 14 hexadecimal digits, unique in the cluster."""
    app_name: str
    """The name of the machine's app."""
    name: str
    """The name of the machine, unique in its app."""
    state: State
    region: str
    """The code of the machine's region."""
    version: str
    """The machine's version, a ULID: a later version has a greater one."""
    instance_id: str
    private_ip: str
    """The IPv6 address of the machine in the app's private network."""
    created_at: datetime
    updated_at: datetime
    config: MachineOverview | None = None


class OrgMachines(Answer, frozen=True, kw_only=True):
    """One page, by machine id. `error_regions` are those that could not be asked."""

    machines: tuple[OrgMachine, ...]
    next_cursor: str = ""
    """The `cursor` with which the next call shows the next page; empty on the last page."""
    last_machine_id: str = ""
    """The id of the last machine on this page; empty for an empty page."""
    last_updated_at: datetime | None = None
    error_regions: tuple[str, ...]


# Calls about what an organization has, over all its apps.


class OrgParams(msgspec.Struct, frozen=True, kw_only=True):
    org_slug: str
    """The organization's slug, as it stands in paths."""


class OrgMachinesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`updated_after` is RFC 3339; `limit` at most 1000, which is also what it is without one; a `summary` leaves out
    configs."""

    include_deleted: bool = False
    """True also lists destroyed machines, as long as their nodes keep their records."""
    region: str | None = None
    """The code of a region: the answer has only machines of it; absent: of all regions."""
    state: tuple[State, ...] = ()
    summary: bool = False
    updated_after: datetime | None = None
    cursor: str | None = None
    """The `next_cursor` of the page before: this page begins after it; absent: the first page."""
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
    """The most machines that are not destroyed."""
    cpus: int | None = None
    """The most cpus, shared or dedicated, of all machines together."""
    memory_mb: int | None = None
    disk_mb: int | None = None
    volumes: int | None = None
    """The most volumes that are not destroyed."""
    snapshots: int | None = None
    """The most snapshots of all volumes together."""
    addresses: int | None = None
    """The most addresses of all apps together."""


class QuotaAmounts(Answer, frozen=True, kw_only=True):
    machines: int = 0
    """How many machines are not destroyed, 0 or more; each number below is 0 or more, too."""
    cpus: int = 0
    """How many cpus, shared or dedicated, all machines together have."""
    memory_mb: int = 0
    """Memory of all machines together, in MiB."""
    disk_mb: int = 0
    """Disk space of root filesystems, logs, volumes, snapshots and images together, in MiB."""
    volumes: int = 0
    """How many volumes are not destroyed."""
    snapshots: int = 0
    """How many snapshots all volumes together have."""
    addresses: int = 0
    """How many addresses all apps together have."""


class Quota(Answer, frozen=True, kw_only=True):
    """`subject` is org/NAME, app/NAME, or org/*: every organization without one of its own but the operator's.
    `used_here` is exact, `used_elsewhere` what the other nodes told last."""

    subject: str
    limits: QuotaLimits
    used_here: QuotaAmounts
    used_elsewhere: QuotaAmounts
    set_at: datetime
    set_by: str
    """The name of the token that set it."""


class QuotaList(Answer, frozen=True, kw_only=True):
    quotas: tuple[Quota, ...]


class QuotaParams(msgspec.Struct, frozen=True, kw_only=True):
    """`kind` is org or app."""

    kind: str
    name: str
    """The name of the organization or the app."""


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
