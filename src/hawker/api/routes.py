"""The route table: every call that a node answers. `ROUTES` is the only list of them; all else is derived from it.

Beside it stand the calls that only nodes of a cluster make to each other, which the public API never serves, and the
calls of the Machines API that are not answered yet.
"""

from hawker.api.contract.app import APP_ROUTES, CREATE_APP, IP_ROUTES, LIST_APPS
from hawker.api.contract.app_file import APP_FILE_PEER_ROUTES, APP_FILE_ROUTES
from hawker.api.contract.app_log import APP_LOG_PEER_ROUTES, APP_LOG_ROUTES
from hawker.api.contract.audit import AUDIT_PEER_ROUTES, AUDIT_ROUTES
from hawker.api.contract.catalog import CATALOG_ROUTES
from hawker.api.contract.certificate import CERTIFICATE_ROUTES, PLATFORM_CERTIFICATE_ROUTES
from hawker.api.contract.cluster import (
    ADMIT_HOST,
    CLUSTER_PEER_ROUTES,
    CLUSTER_ROUTES,
    CORDON_NODE,
    DRAIN_NODE,
    REVOKE_INVITE,
    UNCORDON_NODE,
)
from hawker.api.contract.deploy import DEPLOY_PEER_ROUTES, DEPLOY_ROUTES
from hawker.api.contract.exec import INSIDE_ROUTES
from hawker.api.contract.flyctl import FLYCTL_ROUTES
from hawker.api.contract.image import IMAGE_PEER_ROUTES, IMAGE_ROUTES, REGISTRY_PEER_ROUTES, REGISTRY_ROUTES
from hawker.api.contract.machine import MACHINE_ROUTES, METADATA_ROUTES
from hawker.api.contract.machine_operation import LEASE_ROUTES, MEMORY_ROUTES, OPERATION_ROUTES
from hawker.api.contract.market import LIST_PLACEMENTS, MARKET_PEER_ROUTES, MARKET_ROUTES, PLACEMENT_ROUTES
from hawker.api.contract.move import (
    GET_MOVE,
    LIMIT_MOVE,
    LIST_MOVES,
    MOVE_CHANGES,
    MOVE_ROUTES,
    RECLAIM_MOVE,
)
from hawker.api.contract.move_peer import MOVE_PEER_ROUTES
from hawker.api.contract.move_turn import TURN_ROUTES
from hawker.api.contract.network_policy import POLICY_ROUTES
from hawker.api.contract.node import DOCTOR_ROUTES, NODE_INFO, NODE_ROUTES
from hawker.api.contract.org import LIST_ORG_MACHINES, ORG_ROUTES, QUOTA_ROUTES
from hawker.api.contract.owner import OWNER_PEER_ROUTES
from hawker.api.contract.port import MACHINE_PORT_ROUTES, PUBLISHED_PORT_ROUTES
from hawker.api.contract.private_network import LIST_PRIVATE_NAMES, WIREGUARD_ROUTES
from hawker.api.contract.release import RELEASE_ROUTES
from hawker.api.contract.run import ABORT_RUN, GET_RUN, HISTORY_ROUTES, LIST_RUNS, RETRY_RUN, RUN_ROUTES
from hawker.api.contract.secret import SECRET_KEY_ROUTES, SECRET_ROUTES
from hawker.api.contract.token import CREATE_DEPLOY_TOKEN, TOKEN_ROUTES
from hawker.api.contract.volume import LIST_ORG_VOLUMES, VOLUME_ROUTES
from hawker.api.route import AnyRoute
from hawker.value_object import ValueObject

ROUTES: tuple[AnyRoute, ...] = (
    *APP_ROUTES,
    *RELEASE_ROUTES,
    *DEPLOY_ROUTES,
    *APP_FILE_ROUTES,
    *APP_LOG_ROUTES,
    *MACHINE_ROUTES,
    *OPERATION_ROUTES,
    *INSIDE_ROUTES,
    *HISTORY_ROUTES,
    *LEASE_ROUTES,
    *MEMORY_ROUTES,
    *METADATA_ROUTES,
    *MACHINE_PORT_ROUTES,
    *PUBLISHED_PORT_ROUTES,
    *ORG_ROUTES,
    *VOLUME_ROUTES,
    *MOVE_ROUTES,
    *SECRET_ROUTES,
    *SECRET_KEY_ROUTES,
    *TOKEN_ROUTES,
    *IP_ROUTES,
    *CERTIFICATE_ROUTES,
    *POLICY_ROUTES,
    *NODE_ROUTES,
    *CLUSTER_ROUTES,
    *QUOTA_ROUTES,
    *PLATFORM_CERTIFICATE_ROUTES,
    *AUDIT_ROUTES,
    *PLACEMENT_ROUTES,
    *MARKET_ROUTES,
    *RUN_ROUTES,
    *IMAGE_ROUTES,
    *REGISTRY_ROUTES,
    *WIREGUARD_ROUTES,
    *DOCTOR_ROUTES,
    *CATALOG_ROUTES,
)

PUBLIC_ROUTES: tuple[AnyRoute, ...] = (*ROUTES, *FLYCTL_ROUTES)
"""What clients are answered: also the calls of flyctl, each made of calls in `ROUTES`."""

PEER_ROUTES: tuple[AnyRoute, ...] = (
    *DEPLOY_PEER_ROUTES,
    *APP_LOG_PEER_ROUTES,
    *AUDIT_PEER_ROUTES,
    *MARKET_PEER_ROUTES,
    *OWNER_PEER_ROUTES,
    LIST_PRIVATE_NAMES,
    *CLUSTER_PEER_ROUTES,
    *IMAGE_PEER_ROUTES,
    *APP_FILE_PEER_ROUTES,
    *REGISTRY_PEER_ROUTES,
    *MOVE_PEER_ROUTES,
    *TURN_ROUTES,
)
"""The calls between nodes. The peer API serves them beside those of `ROUTES` that nodes pass on."""

_PASSED = (
    ADMIT_HOST,
    *MOVE_CHANGES,
    CORDON_NODE,
    CREATE_APP,
    DRAIN_NODE,
    GET_MOVE,
    GET_RUN,
    LIMIT_MOVE,
    LIST_APPS,
    LIST_MOVES,
    LIST_ORG_MACHINES,
    LIST_ORG_VOLUMES,
    LIST_PLACEMENTS,
    LIST_RUNS,
    ABORT_RUN,
    NODE_INFO,
    RETRY_RUN,
    RECLAIM_MOVE,
    REVOKE_INVITE,
    UNCORDON_NODE,
)
_NAMES = frozenset({"app_name", "machine_id", "volume_id"})
_NEVER = frozenset({CREATE_DEPLOY_TOKEN.name})
_BETWEEN_NODES = frozenset(route.name for route in (*PEER_ROUTES, *_PASSED))


def asked_by_nodes(route: AnyRoute) -> bool:
    """Whether a node may ask it of another with the token that all nodes can make: what a client's call about an app, a
    machine or a volume needs elsewhere, lists of all nodes, orders. Nothing that shows or changes who is of the
    cluster, makes tokens, or copies a node's store, images or catalog."""
    if route.name in _NEVER:
        return False
    return route.name in _BETWEEN_NODES or not _NAMES.isdisjoint(route.params.__struct_fields__)


class Unserved(ValueObject, frozen=True):
    """`path` as in a route, where a last `*` is everything below; `what` completes "... is not served by this node"."""

    path: str
    what: str


UNSERVED = (
    Unserved("/v1/tokens/oidc", "making OIDC tokens"),
    Unserved("/v1/tokens/kms", "making KMS tokens"),
)
"""Calls that are understood and not answered: a typed 501, where a 404 would mean absence."""
