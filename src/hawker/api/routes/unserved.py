"""Calls of the Machines API that are understood and not answered yet: a typed 501, where a 404 would mean absence."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unserved:
    """`path` as in a route, where a last `*` is everything below; `what` completes "... is not served by this node"."""

    path: str
    what: str


_APP = "/v1/apps/{app_name}"

UNSERVED = (
    Unserved(f"{_APP}/certificates", "serving certificates"),
    Unserved(f"{_APP}/certificates/*", "serving certificates"),
    Unserved("/v1/tokens/oidc", "making OIDC tokens"),
    Unserved("/v1/tokens/kms", "making KMS tokens"),
)
