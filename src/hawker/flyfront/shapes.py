"""Answers of the route table in the words of flyctl's other services. Pure."""

import zlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from hawker.api.contract.app_log import LogLine
from hawker.api.contract.flyctl import (
    FlyLog,
    FlyLogAttributes,
    FlyLogEvent,
    FlyLogMeta,
    FlyOrganization,
    FlyRelease,
)
from hawker.api.contract.machine import ImageRef
from hawker.api.contract.node import Region
from hawker.api.contract.release import Release
from hawker.app import DEFAULT_ORG

DOMAIN = "hawker.internal"
_UNDER_WAY = frozenset({"pending", "running"})


def address_of(holder: str) -> str:
    """Clients show whom a token stands for as an address."""
    return holder if "@" in holder else f"{holder or 'nobody'}@{DOMAIN}"


def number_of(slug: str) -> int:
    """The same at every node, above 0."""
    return zlib.crc32(slug.encode()) | 1


def organization(slug: str) -> FlyOrganization:
    return FlyOrganization(
        id=slug,
        internal_numeric_id=number_of(slug),
        slug=slug,
        raw_slug=slug,
        name=slug,
        paid_plan=True,
        personal=slug == DEFAULT_ORG,
        billable=True,
        billing_status="CURRENT",
        provisions_beta_extensions=False,
        remote_builder_image="",
    )


def release(told: Release) -> FlyRelease:
    return FlyRelease(
        id=told.id,
        version=told.version,
        stable=told.status == "complete",
        in_progress=told.status in _UNDER_WAY,
        status=told.status,
        strategy=told.strategy,
        user=address_of(told.user),
        created_at=told.created_at,
        image_ref=told.image,
    )


def graph_release(told: Release) -> dict[str, Any]:
    return {
        "id": told.id,
        "version": told.version,
        "status": told.status,
        "stable": told.status == "complete",
        "inProgress": told.status in _UNDER_WAY,
        "description": told.description or f"Release {told.version}",
        "reason": told.strategy,
        "imageRef": told.image or None,
        "evaluationId": None,
        "user": {"__typename": "User", **_user(told.user)},
        "createdAt": told.created_at,
        "configDefinition": told.definition,
    }


def log_line(line: LogLine) -> FlyLog:
    return _log(
        f"{line.node}:{line.position}", line.at, line.text, line.level, line.machine, line.region, line.provider
    )


def no_lines(app: str, at: datetime) -> FlyLog:
    return _log("none", at, f"app '{app}' has no lines yet", "info", "", "", "runner")


def _log(id: str, at: datetime, message: str, level: str, machine: str, region: str, provider: str) -> FlyLog:
    return FlyLog(
        id=id,
        attributes=FlyLogAttributes(
            timestamp=at,
            message=message,
            level=level,
            instance=machine,
            region=region,
            meta=FlyLogMeta(instance=machine, region=region, event=FlyLogEvent(provider=provider)),
        ),
    )


def principal(holder: str, *, narrowed: bool) -> dict[str, Any]:
    """The root token stands for a user, one that was made from it for itself."""
    return {"__typename": "Macaroon" if narrowed else "User", **_user(holder)}


def graph_region(region: Region) -> dict[str, Any]:
    return {
        "code": region.code,
        "name": region.name,
        "latitude": region.latitude,
        "longitude": region.longitude,
        "gatewayAvailable": region.gateway_available,
        "requiresPaidPlan": region.requires_paid_plan,
        "deprecated": region.deprecated,
    }


def graph_image(image: ImageRef) -> dict[str, Any]:
    return {
        "registry": image.registry,
        "repository": image.repository,
        "tag": image.tag,
        "version": None,
        "digest": image.digest,
    }


def nodes(items: Sequence[object] = ()) -> dict[str, Any]:
    """A connection in GraphQL's words, whole on one page."""
    return {"nodes": list(items), "pageInfo": {"hasNextPage": False, "endCursor": None}}


def _user(holder: str) -> dict[str, Any]:
    return {"id": holder or "nobody", "email": address_of(holder), "name": holder, "enablePaidHobby": True}
