"""Where a worker and its fleet meet, which do not know each other: what the node answers, what it publishes, and the
failover of its machines. The daemon and the simulators join them here.
"""

from collections.abc import Sequence
from functools import partial

from hawker.api.handlers import Handlers
from hawker.catalog.contract import Catalog
from hawker.fleet.app_bundle import AppBundler
from hawker.fleet.app_handlers import PeerAppHandlers
from hawker.fleet.failover import Failover
from hawker.fleet.failover_view import FailoverView
from hawker.fleet.handlers import ClusterHandlers
from hawker.fleet.members import wrong_clocks
from hawker.fleet.membership import Fleet
from hawker.fleet.sources import PublishedState
from hawker.gossip.contract import Member
from hawker.ids import NodeId
from hawker.node import labels_of
from hawker.worker.assembly import AssembledWorker
from hawker.worker.handlers import FleetSide, node_info_of, worker_handlers
from hawker.worker.order import AppBundles


def node_handlers(
    worker: AssembledWorker,
    *,
    fleet: Fleet | None = None,
    catalog: Catalog | None = None,
    bundler: AppBundler | None = None,
    bundles: AppBundles | None = None,
) -> Handlers:
    """Everything that a node answers by itself. A node that is alone has no fleet, no catalog and no bundler; `bundles`
    is then what it does with the apps of its orders."""
    deps = worker.deps
    side = FleetSide(
        catalog=catalog, fleet=fleet, bundles=bundler or bundles, wrong_clocks=partial(_wrong_clocks, fleet)
    )
    handlers = worker_handlers(worker, side)
    labels = labels_of(deps.settings.labels)
    ClusterHandlers(worker.node, deps.store, labels, node_info_of(worker), fleet).bind(handlers)
    PeerAppHandlers(
        worker.node.id,
        deps.store,
        deps.clock,
        counts=worker.apps,
        enforce=deps.fences.renew_soon,
        catalog=catalog,
        bundler=bundler,
        members=partial(_members, fleet),
    ).bind(handlers)
    return handlers


def published_by(worker: AssembledWorker) -> PublishedState:
    images = worker.deps.images
    return PublishedState(
        node=worker.node.id,
        store=worker.deps.store,
        health_of=worker.health.of,
        room=worker.room,
        images=lambda: [str(image.digest) for image in images.list()],
    )


def failover_of(worker: AssembledWorker, sight: FailoverView) -> Failover:
    deps = worker.deps
    return Failover(worker.node.id, deps.store, deps.clock, worker.operations, sight, worker.changes.listen)


def _members(fleet: Fleet | None) -> Sequence[Member]:
    return () if fleet is None else fleet.members


def _wrong_clocks(fleet: Fleet | None) -> Sequence[tuple[NodeId, str]]:
    return () if fleet is None else wrong_clocks(fleet.me, fleet.members)
