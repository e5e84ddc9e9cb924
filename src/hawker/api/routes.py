"""The route table: every call that a node answers. `ROUTES` is the only list of them; all else is derived from it.

Beside it stand the calls that only nodes of a cluster make to each other, which the public API never serves, and the
calls of the Machines API that are not answered yet.
"""

from dataclasses import dataclass

from hawker.api.contract.app import APP_ROUTES
from hawker.api.contract.catalog import CATALOG_ROUTES
from hawker.api.contract.cluster import CLUSTER_PEER_ROUTES, CLUSTER_ROUTES
from hawker.api.contract.doctor import DOCTOR_ROUTES
from hawker.api.contract.exec import INSIDE_ROUTES
from hawker.api.contract.history import HISTORY_ROUTES
from hawker.api.contract.image import IMAGE_ROUTES
from hawker.api.contract.ip_assignment import IP_ROUTES
from hawker.api.contract.lease import LEASE_ROUTES
from hawker.api.contract.machine import MACHINE_ROUTES
from hawker.api.contract.machine_operation import OPERATION_ROUTES
from hawker.api.contract.market import MARKET_PEER_ROUTES, MARKET_ROUTES
from hawker.api.contract.memory import MEMORY_ROUTES
from hawker.api.contract.metadata import METADATA_ROUTES
from hawker.api.contract.network_policy import POLICY_ROUTES
from hawker.api.contract.node import NODE_ROUTES
from hawker.api.contract.org import ORG_ROUTES
from hawker.api.contract.owner import OWNER_PEER_ROUTES
from hawker.api.contract.placement import PLACEMENT_ROUTES
from hawker.api.contract.run import RUN_ROUTES
from hawker.api.contract.secret import SECRET_ROUTES
from hawker.api.contract.secret_key import SECRET_KEY_ROUTES
from hawker.api.contract.token import TOKEN_ROUTES
from hawker.api.contract.volume import VOLUME_ROUTES
from hawker.api.route import AnyRoute

ROUTES: tuple[AnyRoute, ...] = (
    *APP_ROUTES,
    *MACHINE_ROUTES,
    *OPERATION_ROUTES,
    *INSIDE_ROUTES,
    *HISTORY_ROUTES,
    *LEASE_ROUTES,
    *MEMORY_ROUTES,
    *METADATA_ROUTES,
    *ORG_ROUTES,
    *VOLUME_ROUTES,
    *SECRET_ROUTES,
    *SECRET_KEY_ROUTES,
    *TOKEN_ROUTES,
    *IP_ROUTES,
    *POLICY_ROUTES,
    *NODE_ROUTES,
    *CLUSTER_ROUTES,
    *PLACEMENT_ROUTES,
    *MARKET_ROUTES,
    *RUN_ROUTES,
    *IMAGE_ROUTES,
    *DOCTOR_ROUTES,
    *CATALOG_ROUTES,
)

PEER_ROUTES: tuple[AnyRoute, ...] = (*MARKET_PEER_ROUTES, *OWNER_PEER_ROUTES, *CLUSTER_PEER_ROUTES)
"""The calls between nodes. The peer API serves them beside `ROUTES`."""


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
"""Calls that are understood and not answered: a typed 501, where a 404 would mean absence."""
