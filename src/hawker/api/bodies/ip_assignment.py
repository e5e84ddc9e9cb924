"""Bodies about the addresses of an app."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

from hawker.api.bodies.body import Answer, Request


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
