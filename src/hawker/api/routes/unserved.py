"""Calls of the Machines API that are understood and not answered yet: a typed 501, where a 404 would mean absence."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unserved:
    """`path` as in a route, where a last `*` is everything below; `what` completes "... is not served by this node"."""

    path: str
    what: str


_APP = "/v1/apps/{app_name}"
_MACHINE = f"{_APP}/machines/{{machine_id}}"

UNSERVED = (
    Unserved(f"{_MACHINE}/suspend", "suspending a machine"),
    Unserved(f"{_MACHINE}/memory", "changing the memory of a running machine"),
    Unserved(f"{_MACHINE}/memory/reclaim", "changing the memory of a running machine"),
    Unserved(f"{_APP}/volumes", "storage on volumes"),
    Unserved(f"{_APP}/volumes/*", "storage on volumes"),
    Unserved(f"{_APP}/certificates", "serving certificates"),
    Unserved(f"{_APP}/certificates/*", "serving certificates"),
    Unserved(f"{_APP}/ip_assignments", "assigning public addresses"),
    Unserved(f"{_APP}/ip_assignments/*", "assigning public addresses"),
    Unserved(f"{_APP}/network_policies", "network policies"),
    Unserved(f"{_APP}/network_policies/*", "network policies"),
    Unserved("/v1/orgs/{org_slug}/volumes", "storage on volumes"),
    Unserved("/v1/platform/placements", "planning placements"),
    Unserved("/v1/tokens/oidc", "making OIDC tokens"),
    Unserved("/v1/tokens/kms", "making KMS tokens"),
)
