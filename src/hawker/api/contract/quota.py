"""Quotas of organizations and apps. For operators: not part of the Machines API."""

from datetime import datetime

import msgspec

from hawker.api.contract.body import Answer, Request
from hawker.api.route import NoParams, Tag, Unary
from hawker.errors import NotFound, Unprocessable
from hawker.permission import Action


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
