"""The calls that only nodes of a cluster make to each other. The peer API serves them beside `ROUTES`; the public one
never does.
"""

from hawker.api.route import AnyRoute
from hawker.api.routes.cluster import CLUSTER_PEER_ROUTES
from hawker.api.routes.market import MARKET_PEER_ROUTES
from hawker.api.routes.owners import OWNER_PEER_ROUTES

PEER_ROUTES: tuple[AnyRoute, ...] = (*MARKET_PEER_ROUTES, *OWNER_PEER_ROUTES, *CLUSTER_PEER_ROUTES)
